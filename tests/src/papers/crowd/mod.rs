//! Connections that come and go at random over one narrow path, each sending as long as it lives (Yu & Newman, section 5.1), between
//! namespaces on this kernel. What is compared, the arms, has a path, a host and a gateway each, meets the same connections at
//! the same moments, and runs side by side.

mod arm;
mod connections;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use self::arm::Stand;
pub use self::arm::{Advice, Arm, Host};
pub use self::connections::{Connection, Lives};
use self::connections::{Observed, Start, Starts};
use super::ns::Figures;
use super::row::Programs;
use crate::lab::path::PathConfig;
use crate::product::interrupt;

/// Connections break where a machine stands still; more than this part of them, and a run says nothing.
const BROKEN_MAX: f64 = 0.01;
/// Time for every thread to stand before the first connection.
const LEAD: Duration = Duration::from_secs(1);
/// First part of a connection's life, in which its start shows.
const FIRST: Duration = Duration::from_secs(5);

/// The same for every arm.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// The path, of each arm one.
    pub path: PathConfig,
    /// Client addresses at its end.
    pub clients: u8,
    /// Connections of other senders that stay for the whole run, of which no gateway knows.
    pub others: u8,
    /// When connections come and go.
    pub lives: Lives,
}

/// What one connection got through, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    first: u64,
    all: u64,
}

/// What the connections of an arm did.
#[derive(Debug, Default)]
struct Tally {
    carried: Vec<Carried>,
    broken: u32,
}

/// Runs all arms side by side. Figures are named after their arm, as in `reno_first_5_s_packets`.
pub fn run(crowd: &Crowd, arms: &[Arm], seed: u64, programs: &Programs) -> Result<Figures> {
    let connections = crowd.lives.draw(seed, crowd.clients);
    let mut stands: Vec<Stand> = Vec::new();
    for (number, arm) in (0..).zip(arms) {
        stands.push(Stand::build(arm, number, crowd, programs).with_context(|| arm.name.to_owned())?);
    }
    let starts = Starts::observe(stands.first().context("no arm to run")?.port())?;
    let tallies: Vec<Mutex<Tally>> = stands.iter().map(|_| Mutex::default()).collect();
    let begin = Instant::now() + LEAD;
    let end = begin + crowd.lives.length;
    thread::scope(|scope| {
        for stand in &stands {
            stand.others(scope, crowd.others, end)?;
        }
        for connection in &connections {
            thread::sleep((begin + connection.at).saturating_duration_since(Instant::now()));
            for (stand, tally) in stands.iter().zip(&tallies) {
                stand.connect(scope, *connection, tally)?;
            }
            if interrupt::came() {
                bail!("interrupted");
            }
        }
        Ok(())
    })?;
    ensure!(!interrupt::came(), "interrupted");
    let mut observed = starts.by_arm(arm::number_of)?;
    let mut figures = Figures::new();
    for (mut stand, tally) in stands.into_iter().zip(tallies) {
        let tally = tally.into_inner().map_err(|_| anyhow!("a client panicked"))?;
        let observed = observed.remove(&stand.number).unwrap_or_default();
        stand.check_path()?;
        let of_arm = figures_of(&stand, &tally, &observed)?;
        let name = stand.arm.name;
        figures.extend(of_arm.into_iter().map(|(figure, value)| (format!("{name}_{figure}"), value)));
        stand.stop()?;
    }
    Ok(figures)
}

fn figures_of(stand: &Stand, tally: &Tally, observed: &Observed) -> Result<BTreeMap<String, f64>> {
    let arm = stand.arm;
    let count = tally.carried.len();
    let broken = f64::from(tally.broken);
    ensure!(
        count > 0 && broken <= BROKEN_MAX * count as f64,
        "{}: {broken} connections broke, {count} did not",
        arm.name
    );
    arm.check(&observed.starts)?;
    let packets = |of: fn(&Carried) -> u64| tally.carried.iter().map(of).sum::<u64>() as f64 / arm::MSS as f64;
    let on_advice: Vec<&Start> = observed.starts.iter().filter(|start| !arm.host.is_own(start)).collect();
    let mean = |of: fn(&Start) -> Option<u32>| {
        let values: Vec<f64> = on_advice.iter().filter_map(|start| of(start)).map(f64::from).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let mut figures = BTreeMap::from([
        ("first_5_s_packets".to_owned(), packets(|carried| carried.first)),
        ("total_packets".to_owned(), packets(|carried| carried.all)),
        ("connections".to_owned(), count as f64),
        ("broken".to_owned(), broken),
        ("recoveries_without_threshold".to_owned(), f64::from(observed.unbounded)),
        ("starts_on_advice".to_owned(), on_advice.len() as f64),
    ]);
    figures.extend(mean(|start| Some(start.window)).map(|mean| ("start_window_segments".to_owned(), mean)));
    figures.extend(mean(|start| start.threshold).map(|mean| ("start_threshold_segments".to_owned(), mean)));
    Ok(figures)
}
