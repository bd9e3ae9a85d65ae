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
use crate::papers::row::{Judged, Outcomes, Programs, Row, Setting, Way};

const ACKNOWLEDGEMENTS: &str = "acknowledgements";
const CONNECTIONS: &str = "connections";
const DIFFERENT: &str = "connections_that_differ";

/// Fewest over all settings.
const LEAST: f64 = 10_000.0;
const SEGMENT_BYTES: u64 = 1_448;
/// Each way.
const DELAY: Duration = Duration::from_millis(40);
/// Networks side by side, and connections one after the other to each.
const NETWORKS: u8 = 4;
const EACH: usize = 6;
/// The window that connections start with.
const FIRST: u32 = 2;

/// Name, base, growth and its parameter, threshold.
const SETTINGS: [(&str, &str, &str, u32, u32); 7] = [
    ("dbc-2", "reno", "dbc", 2, 200),
    ("dbc-8", "reno", "dbc", 8, 200),
    ("dbc-4-cubic", "cubic", "dbc", 4, 200),
    ("burst-4", "reno", "burst", 4, 40),
    ("burst-8", "reno", "burst", 8, 40),
    ("burst-8-cubic", "cubic", "burst", 8, 40),
    ("burst-16", "reno", "burst", 16, 40),
];

/// K5.
pub(super) fn followed() -> Row {
    let setting = |(name, base, growth, parameter, threshold): (&str, &str, &str, u32, u32)| {
        Setting::new(name, &[("base", base), ("growth", growth)])
            .with("parameter", parameter)
            .with("threshold", threshold)
    };
    Row {
        id: "K5",
        what: "byte counting and Burst TCP in the kernel: the window after every acknowledgement of slow start",
        expected: "the contract's function to the segment; 10,000 acknowledgements or more in all",
        source: "the function itself (spand_proto::growth)",
        way: Way::Kernel { version: 1, run },
        seeds: 1,
        quick_seeds: 1,
        settings: SETTINGS.into_iter().map(setting).collect(),
        judge: judged,
    }
}

fn judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    let mut all = Some(0.0);
    for (name, ..) in SETTINGS {
        let one = |figure| outcomes.one(name, figure);
        let found = one(ACKNOWLEDGEMENTS).zip(one(CONNECTIONS)).zip(one(DIFFERENT));
        all = all.zip(one(ACKNOWLEDGEMENTS)).map(|(all, more)| all + more);
        let found = found.map(|((acknowledgements, connections), different)| {
            let words = format!("{different:.0} of {connections:.0}, {acknowledgements:.0} acknowledgements");
            (words, different == 0.0)
        });
        judged.target(format!("{name}: connections whose window differs"), "0", found);
    }
    let found = all.map(|all| (format!("{all:.0}"), all >= LEAST));
    judged.target("acknowledgements followed", format!("{LEAST:.0} or more"), found);
    judged
}

fn run(setting: &Setting, _seed: u64, _programs: &Programs) -> Result<Figures> {
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
