//! Sums, gaps, clocks and limits.

use super::*;

const SECOND: u64 = 1_000_000_000;
/// 2026-11-28 12:00:00 UTC, a whole hour.
const NOON: u64 = 1_795_867_200;

fn at(s: u64) -> Timestamp {
    Timestamp(s * SECOND)
}

fn reading(packets: u64) -> Reading {
    let counts = Counts { packets, losses: packets / 7, ..Counts::default() };
    Reading { counts, gauges: Gauges { agents: packets % 5, ..Gauges::default() }, differences: Differences::default() }
}

/// One reading a second; each second has three packets more.
fn run(totals: &mut Totals, from: u64, seconds: u64) {
    for second in 0..=seconds {
        totals.take(at(from + second), &reading(1_000 + 3 * second));
    }
}

fn all(totals: &Totals, step: Step) -> Vec<(Point, bool)> {
    totals.points(step, Timestamp(0), Timestamp(u64::MAX))
}

fn packets(points: &[(Point, bool)]) -> u64 {
    points.iter().map(|(point, _)| point.counts.packets).sum()
}

#[test]
fn every_resolution_has_the_same_sums_and_the_last_gauges() {
    let mut totals = Totals::default();
    run(&mut totals, NOON, 2 * 3_600);
    for &step in Step::VARIANTS {
        let points = all(&totals, step);
        assert_eq!(packets(&points), 3 * 2 * 3_600, "{step:?}");
        assert!(points.iter().all(|(point, gap)| !gap && point.at == step.beginning(point.at)), "{step:?}");
        let observed: u64 = points.iter().map(|(point, _)| point.observed.0).sum();
        assert_eq!(observed, 2 * 3_600 * 1_000_000);
        let last = points.last().unwrap().0;
        assert_eq!(last.gauges.agents, (1_000 + 3 * 2 * 3_600) % 5);
    }
    let minutes = all(&totals, Step::Minute);
    // The reading at the beginning of a minute holds the second before it.
    assert_eq!((minutes.len(), minutes[0].0.counts.packets, minutes[1].0.counts.packets), (121, 59 * 3, 180));
    let one = totals.points(Step::Minute, at(NOON + 60), at(NOON + 120));
    assert_eq!(one.iter().map(|(point, _)| point.at).collect::<Vec<_>>(), [at(NOON + 60)]);
}

#[test]
fn a_restart_leaves_a_gap_and_its_open_step_goes_on() {
    let mut before = Totals::default();
    run(&mut before, NOON, 90);
    let saved = before.changes();
    let mut totals = Totals::default();
    let points = saved.iter().filter_map(|((step, _), point)| Some((*step, (*point)?)));
    totals.restore(points, at(NOON + 100));
    assert!(totals.changes().is_empty(), "what was just read is no change");
    // Twice within a minute, then after four.
    run(&mut totals, NOON + 100, 10);
    let mut again = Totals::default();
    again.restore(all(&totals, Step::Minute).into_iter().map(|(point, _)| (Step::Minute, point)), at(NOON + 300));
    run(&mut again, NOON + 300, 20);
    let minutes = all(&again, Step::Minute);
    let shown: Vec<_> =
        minutes.iter().map(|(point, gap)| (point.at.0 / SECOND - NOON, point.counts.packets, *gap)).collect();
    assert_eq!(shown, [(0, 59 * 3, false), (60, (31 + 10) * 3, false), (300, 60, true)]);
    assert_eq!(minutes[1].0.observed, Micros::from_secs(41), "and the ten seconds between are in none");
}

#[test]
fn a_clock_set_back_loses_no_sums_and_no_history() {
    let mut totals = Totals::default();
    run(&mut totals, NOON, 600);
    let saved = all(&totals, Step::Minute).into_iter().map(|(point, _)| (Step::Minute, point));
    let mut again = Totals::default();
    again.restore(saved, at(NOON + 300));
    run(&mut again, NOON + 300, 120);
    let minutes = all(&again, Step::Minute);
    assert_eq!(packets(&minutes), (600 + 120) * 3);
    assert!(minutes.is_sorted_by_key(|(point, _)| point.at));
    assert_eq!((minutes.len(), minutes[6].0.observed), (11, Micros::from_secs(120)));
    // A machine that starts in 1970.
    let mut early = Totals::default();
    early.restore(minutes.iter().map(|(point, _)| (Step::Minute, *point)), at(5));
    run(&mut early, 5, 120);
    assert_eq!(packets(&all(&early, Step::Minute)), (600 + 120 + 120) * 3);
    // And has the time again: 1970 is longer ago than a day.
    let saved: Vec<_> = all(&early, Step::Minute).into_iter().map(|(point, _)| (Step::Minute, point)).collect();
    let mut later = Totals::default();
    later.restore(saved, at(NOON + 700));
    assert_eq!(packets(&all(&later, Step::Minute)), (600 + 120) * 3);
    assert_eq!(later.changes().values().filter(|point| point.is_none()).count(), 3, "which leaves the store");
}

#[test]
fn points_are_limited_and_the_store_hears_of_those_that_go() {
    let mut totals = Totals::default();
    let most = Step::Minute.points() as u64;
    for minute in 0..most + 30 {
        totals.take(at(NOON + minute * 60), &reading(minute));
    }
    // As docs/reference/api.md has it.
    assert_eq!((size_of::<Point>(), Step::VARIANTS.iter().map(|step| step.points()).sum()), (360, 3_168));
    let minutes = all(&totals, Step::Minute);
    assert_eq!((minutes.len(), minutes[0].0.at), (Step::Minute.points(), at(NOON + 30 * 60)));
    let change = totals.changes();
    assert_eq!(change.get(&(Step::Minute, at(NOON + 60))), Some(&None));
    assert_eq!(change.values().filter(|point| point.is_some()).count(), {
        Step::VARIANTS.iter().map(|step| all(&totals, *step).len()).sum::<usize>()
    });
    // A store that fails for a week does not make what waits grow.
    for minute in 0..7 * 1_440 {
        totals.take(at(NOON + (most + 30 + minute) * 60), &reading(minute));
    }
    assert!(totals.changes().len() <= Step::VARIANTS.iter().map(|step| 2 * step.points()).sum());
    // Points of a clock that was ahead go before those of the present.
    let mut ahead = Totals::default();
    let future = (0..most).map(|minute| Point { at: at(2 * NOON / 60 * 60 + minute * 60), ..minutes[0].0 });
    ahead.restore(future.map(|point| (Step::Minute, point)), at(NOON));
    run(&mut ahead, NOON, 60);
    let now = ahead.points(Step::Minute, at(NOON), at(NOON + 3_600));
    assert_eq!((now.len(), all(&ahead, Step::Minute).len()), (2, Step::Minute.points()));
}

#[test]
fn a_count_that_falls_counts_nothing() {
    let mut totals = Totals::default();
    totals.take(at(NOON), &reading(100));
    totals.take(at(NOON + 1), &reading(50));
    totals.take(at(NOON + 2), &reading(57));
    assert_eq!(packets(&all(&totals, Step::Hour)), 7);
}
