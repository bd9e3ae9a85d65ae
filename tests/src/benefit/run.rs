//! One run from end to end: the lab, the learning, the timed transfers, and what their packets show.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::flight;
use super::learn::learn;
use super::result::{Learning, Learnt, Measured, Run, RunResult};
use super::scenario::{Arm, Event, Question, Scenario, Senders, Work};
use super::stage::{Programs, Recorded, Stage};
use super::work::{self, Asked, Done, Progress};
use crate::accuracy::result::Health;
use crate::campaign;
use crate::campaign::statistics::quantile;
use crate::lab::path::Carrier;
use crate::lab::truth::FlowId;
use crate::product::{ApplyMethod, StartVariant};

/// Time between two words about how far it is.
const SAY_PERIOD: Duration = Duration::from_secs(10);
/// Initial window of Linux as it ships, in segments.
const KERNEL_WINDOW: u32 = 10;
/// Segments that fit into every receiver's first window of 64 KB, headers of its buffers left out.
const RECEIVER_SEGMENTS: u32 = 40;
/// Time for the last acknowledgements and ends of connections.
const SETTLE: Duration = Duration::from_millis(1_500);

/// Runs `scenario`; `say` hears how far it is.
pub fn run(scenario: &Scenario, run: &Run, programs: &Programs, say: &(dyn Fn(&str) + Sync)) -> Result<RunResult> {
    let begin = Instant::now();
    let mut stage = Stage::build(scenario, run, programs)?;
    if run.learning == Learning::Advised {
        stage.start_agent(scenario, (run, run.start), programs)?;
    }
    let taught = watched(say, "learning", |progress| learn(&stage, scenario, run.seed, progress))?;
    if run.learning == Learning::Plain {
        stage.start_agent(scenario, (run, run.start), programs)?;
    }
    stage.product.check()?;
    thread::sleep(SETTLE);
    let advised: Vec<(usize, u64)> =
        (0..).zip(&scenario.sites).filter(|(_, site)| site.is_product()).map(|(n, site)| (n, site.path.mss)).collect();
    let advice = if run.way == ApplyMethod::None { Vec::new() } else { stage.wait_for_advice(&advised)? };
    let shares = |stage: &Stage| (0..scenario.sites.len()).map(|n| stage.share(n)).collect::<Result<Vec<_>>>();
    let before = shares(&stage)?;
    let recording = stage.record()?;
    let mut met = BTreeMap::new();
    let (parts, flights) = match scenario.work {
        Work::Flights { .. } => {
            let (done, planned) = watched(say, "timed", |progress| flight::connect(&stage, scenario, progress))?;
            (vec![(run.start, done)], Some(planned))
        }
        _ if run.start == StartVariant::Plain => {
            let done = watched(say, "timed", |progress| work::timed(&stage, scenario, run.seed, progress))?;
            (vec![(run.start, done)], None)
        }
        _ => (in_turns(&mut stage, scenario, run, programs, (&advised, &mut met), say)?, None),
    };
    stage.product.check()?;
    thread::sleep(SETTLE);
    let recorded = stage.recorded(recording)?;
    let after = shares(&stage)?;
    let mut health = Health {
        transfers: parts.iter().map(|(_, done)| done.asked.len() as u64).sum(),
        failed: parts.iter().map(|(_, done)| done.failed).sum(),
        captured: recorded.packets.0,
        tap_dropped: recorded.packets.1,
        ..Health::default()
    };
    health.add_paths(&stage.lab.emulator);
    if run.paths == Carrier::Kernel {
        stage.lab.counts()?.into_iter().flatten().for_each(|counts| health.add_counts(counts));
    }
    let mut learnt = Vec::new();
    for (place, (n, _)) in advised.iter().copied().enumerate() {
        learnt.push(Learnt {
            case: scenario.sites.get(n).map_or_else(String::new, |site| site.case.clone()),
            transfers: taught.get(n).copied().unwrap_or(0),
            share_before: before.get(n).copied().flatten(),
            share_after: after.get(n).copied().flatten(),
            agent: advice.get(place).cloned(),
        });
    }
    let flights = flights.map(|planned| flight::judge(&planned, &recorded));
    let (mut transfers, mut unseen) = (Vec::new(), 0);
    for (start, done) in parts.iter().filter(|_| flights.is_none()) {
        let (seen, lacking) = measured(scenario, done, &recorded)?;
        let is_beside = *start != run.start;
        let label = |one: Measured| if is_beside && one.arm == Arm::Product.name() { beside_it(one) } else { one };
        transfers.extend(seen.into_iter().map(label));
        unseen += lacking;
    }
    let fault = fault(&health, &learnt, unseen).or_else(|| wrong_window(scenario, &transfers));
    for line in stage.product.stop(&stage.lab) {
        say(&line);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let kernel = campaign::kernel();
    Ok(RunResult { run: run.clone(), kernel, health, learnt, transfers, met, flights, fault, seconds })
}

/// Times a variant of the start and the plain one in turns, on what the gateway has learnt once: what it learns differs from run to
/// run by more than starts do. The agent is another each time. Adds what the variant's connections met to `met`.
fn in_turns(
    stage: &mut Stage,
    scenario: &Scenario,
    run: &Run,
    programs: &Programs,
    (advised, met): (&[(usize, u64)], &mut BTreeMap<String, u64>),
    say: &(dyn Fn(&str) + Sync),
) -> Result<Vec<(StartVariant, Done)>> {
    let Work::Sizes { bytes, rounds } = scenario.work else {
        bail!("starts are compared where one transfer is timed at a time: {} has others", scenario.name())
    };
    let one_round = Scenario { work: Work::Sizes { bytes, rounds: 1 }, ..scenario.clone() };
    let mut parts = Vec::new();
    for round in 0..rounds {
        // Which one is first changes from round to round and from seed to seed: estimates go on learning.
        let variant_first = (u64::from(round) + run.seed).is_multiple_of(2);
        let order = if variant_first { [run.start, StartVariant::Plain] } else { [StartVariant::Plain, run.start] };
        for start in order {
            stage.product.stop_agent();
            stage.start_agent(scenario, (run, start), programs)?;
            stage.wait_for_advice(advised)?;
            let seed = run.seed ^ u64::from(round) << 16;
            let what = format!("timed, start {}, round {}", start.name(), round + 1);
            let done = watched(say, &what, |progress| work::timed(stage, &one_round, seed, progress))?;
            stage.product.check()?;
            if start == run.start {
                for (name, count) in stage.product.method_events()? {
                    *met.entry(name).or_default() += count;
                }
            }
            parts.push((start, done));
        }
    }
    Ok(parts)
}

/// A transfer of the product with the plain start, timed beside a variant.
fn beside_it(one: Measured) -> Measured {
    Measured { arm: StartVariant::Plain.name().to_owned(), ..one }
}

/// Why a run means nothing.
fn fault(health: &Health, learnt: &[Learnt], unseen: usize) -> Option<String> {
    if let Some(fault) = health.fault() {
        return Some(fault);
    }
    if let Some(path) = learnt.iter().find(|path| path.share_before.is_none()) {
        return Some(format!("the gateway learnt nothing of {} from {} transfers", path.case, path.transfers));
    }
    if health.failed > 0 || unseen > 0 {
        return Some(format!("{} transfers broke, {unseen} were not seen whole", health.failed));
    }
    None
}

/// Which host did not start with the window that it was given, by the median of its first flights. Only one flow alone shows
/// it: where many start at once, first segments are lost, and what is sent again before the first acknowledgement counts too.
fn wrong_window(scenario: &Scenario, transfers: &[Measured]) -> Option<String> {
    if !matches!(scenario.question, Question::Alone | Question::Grid) {
        return None;
    }
    let whole = |arm: Arm| match arm {
        Arm::Fixed(segments) | Arm::RenoFrom(segments) => Some(segments),
        Arm::Cubic => Some(KERNEL_WINDOW),
        Arm::Product | Arm::Bbr | Arm::Reno => None,
    };
    for site in &scenario.sites {
        let Senders::All(arm) = site.senders else { continue };
        let Some(window) = whole(arm) else { continue };
        // Only what the window holds back; a receiver may hold it back before.
        let of_it = transfers.iter().filter(|one| one.case == site.case && one.arm == arm.name());
        let long = of_it.filter(|one| one.bytes.div_ceil(site.path.mss) >= u64::from(window));
        let Some(flight) = quantile(long.map(|one| f64::from(one.first_flight)), 0.5) else { continue };
        let least = window.min(RECEIVER_SEGMENTS);
        if flight < f64::from(least) || flight > f64::from(window) {
            return Some(format!("{} starts with {flight} segments on {}, not {window}", arm.name(), site.case));
        }
    }
    None
}

/// Timed transfers with what their packets showed, and how many did not show whole.
fn measured(scenario: &Scenario, done: &Done, recorded: &Recorded) -> Result<(Vec<Measured>, usize)> {
    let warm = match scenario.work {
        Work::Rounds { warm, .. } => warm,
        Work::Crowd { .. } => 1,
        _ => 0,
    };
    let mut unseen = 0;
    // Connections that had the same ends so far: a client's ports come back.
    let mut uses: BTreeMap<FlowId, usize> = BTreeMap::new();
    let mut all = Vec::new();
    for Asked { site, client, round, bytes, flow, offset } in done.asked.iter().copied() {
        let nth = uses.entry(flow).or_default();
        *nth += usize::from(offset == 0);
        let nth = nth.saturating_sub(1);
        let Some(round) = round.checked_sub(warm) else { continue };
        let site = scenario.sites.get(site).context("a site of this scenario")?;
        let timeline = recorded.timelines.get(&flow).and_then(|connections| connections.get(nth));
        let Some(seen) = timeline.and_then(|timeline| timeline.transfer(offset, bytes)) else {
            unseen += 1;
            continue;
        };
        let (mut case, mut path) = (site.case.clone(), site.path);
        if let Work::After { event, .. } = scenario.work {
            case = format!("{case}, minute {}", round + 1);
            if let Event::Rate(kbit) = event {
                path.kbit = kbit;
            }
        }
        all.push(Measured {
            case,
            arm: site.senders.label(client),
            bytes,
            client,
            round,
            completion_ms: seen.completion_ms,
            bound_ms: path.bound_ms(bytes),
            packets: seen.packets,
            again: seen.again,
            first_flight: seen.first_flight,
            first_flight_ms: seen.first_flight_ms,
        });
    }
    Ok((all, unseen))
}

/// Does `work` on this thread's behalf while `say` hears how far it is.
fn watched<T: Send>(
    say: &(dyn Fn(&str) + Sync),
    what: &str,
    work: impl FnOnce(&Progress) -> Result<T> + Send,
) -> Result<T> {
    let progress = Progress::default();
    thread::scope(|scope| {
        let worker = scope.spawn(|| work(&progress));
        let mut reported = Instant::now();
        while !worker.is_finished() {
            thread::sleep(Duration::from_millis(20));
            if reported.elapsed() >= SAY_PERIOD {
                reported = Instant::now();
                let (done, planned) = (&progress.done, &progress.planned);
                let (done, planned) = (done.load(Ordering::Relaxed), planned.load(Ordering::Relaxed));
                say(&format!("{what}: {done} of {planned} transfers"));
            }
        }
        worker.join().map_err(|panic| std::panic::resume_unwind(panic))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benefit::scenarios;

    #[test]
    fn a_host_that_does_not_start_with_its_window_is_found() {
        let scenario = scenarios::all().into_iter().find(|scenario| scenario.name() == "alone-48-64-bbr").unwrap();
        let transfer = |arm: Arm, first_flight: u32| Measured {
            case: "S1".to_owned(),
            arm: arm.name(),
            bytes: 100_000,
            client: 0,
            round: 0,
            completion_ms: 1.0,
            bound_ms: 1.0,
            packets: 100,
            again: 0,
            first_flight,
            first_flight_ms: 0.0,
        };
        let sound = [transfer(Arm::Cubic, 10), transfer(Arm::Fixed(48), 48), transfer(Arm::Fixed(64), 44)];
        assert_eq!(wrong_window(&scenario, &sound), None);
        assert!(wrong_window(&scenario, &[transfer(Arm::Fixed(48), 10)]).is_some());
        assert!(wrong_window(&scenario, &[transfer(Arm::Cubic, 11)]).is_some());
        // Ten kilobytes say nothing of a window of 48 segments.
        let short = Measured { bytes: 10_000, ..transfer(Arm::Fixed(48), 10) };
        assert_eq!(wrong_window(&scenario, &[short]), None);
        // Among many starts at once a flight of 11 holds a retransmission.
        let crowded = Scenario { question: Question::Burst, ..scenario };
        assert_eq!(wrong_window(&crowded, &[transfer(Arm::Cubic, 11)]), None);
    }
}
