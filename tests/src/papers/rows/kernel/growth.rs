//! The kernel's windows in slow start, against the contract's function.

use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use spand_proto::growth::Growth;
use spand_proto::units::BytesPerSecond;

use super::side_by_side;
use crate::accuracy::result::Health;
use crate::advised::{Advice, Stage, ask, by_connection, follow};
use crate::benefit::stage::prefix;
use crate::lab::path::{PathConfig, Queue};
use crate::lab::topology::NetworkPlan;
use crate::lab::traffic::Plan;
use crate::papers::ns::Figures;
use crate::papers::row::{Programs, Setting};

const ACKNOWLEDGEMENTS: &str = "acknowledgements";
const CONNECTIONS: &str = "connections";
const DIFFERENT: &str = "connections_that_differ";

const SEGMENT_BYTES: u64 = 1_448;
/// Each way.
const DELAY: Duration = Duration::from_millis(40);
/// Networks side by side, and connections one after the other to each.
const NETWORKS: u8 = 4;
const EACH: usize = 6;
/// The window that connections start with.
const FIRST: u32 = 2;

pub(super) fn run(setting: &Setting, _seed: u64, _programs: &Programs) -> Result<Figures> {
    let (base, threshold): (String, u32) = (setting.option("base")?, setting.option("threshold")?);
    let growth = growth_of(setting)?;
    let stage = Stage::build(&base, &networks(threshold, growth)?)?;
    let transfer = Plan::transfer(Plan::AS_THE_HOST, bytes(threshold, growth));
    side_by_side(usize::from(NETWORKS), |network| {
        (0..EACH).try_for_each(|_| ask(&stage.lab, network, 0, &transfer).map(drop))
    })?;
    thread::sleep(DELAY * 4);
    let expected = u64::from(NETWORKS) * EACH as u64;
    ensure!(stage.started() == expected, "{} of {expected} connections started on advice", stage.started());
    Health::check_paths(&stage.lab.emulator)?;
    let connections = by_connection(stage.finish()?);
    ensure!(connections.len() as u64 == expected, "{} of {expected} connections were seen", connections.len());
    let (mut acknowledgements, mut different) = (0, 0);
    for rows in connections.values() {
        let followed = follow(rows, FIRST, growth);
        acknowledgements += followed.acknowledgements;
        if let Some(difference) = followed.difference {
            eprintln!("{}: {difference}", setting.name);
            different += 1;
        }
    }
    Ok(Figures::from([
        (ACKNOWLEDGEMENTS.to_owned(), f64::from(u32::try_from(acknowledgements)?)),
        (CONNECTIONS.to_owned(), f64::from(u32::try_from(connections.len())?)),
        (DIFFERENT.to_owned(), f64::from(different)),
    ]))
}

fn growth_of(setting: &Setting) -> Result<Growth> {
    let parameter: NonZeroU32 = setting.option("parameter")?;
    Ok(match setting.option::<String>("growth")?.as_str() {
        "dbc" => Growth::Dbc { dmax: parameter },
        "burst" => Growth::Burst { f: parameter },
        other => bail!("`{other}` is no growth"),
    })
}

/// Fast paths whose queues nothing overflows.
fn networks(threshold: u32, growth: Growth) -> Result<Vec<(NetworkPlan, Option<Advice>)>> {
    let path = PathConfig::bottleneck(BytesPerSecond(2_500_000), DELAY, Queue::Packets(1_000));
    let advice = Advice::start(FIRST, threshold, SEGMENT_BYTES, path.base_rtt()).growing(growth);
    let network = |n: u8| {
        let prefix = prefix(usize::from(n))?;
        Ok((NetworkPlan { prefix, clients: 1, path }, Some(advice)))
    };
    (0..NETWORKS).map(network).collect()
}

/// Enough for slow start to end: byte counting needs up to `dmax`, Burst TCP up to the whole window for one segment more.
fn bytes(threshold: u32, growth: Growth) -> u64 {
    let each = match growth {
        Growth::Standard => 1,
        Growth::Dbc { dmax } => dmax.get(),
        Growth::Burst { .. } => threshold / 2,
    };
    2 * u64::from(threshold * each + threshold) * SEGMENT_BYTES
}
