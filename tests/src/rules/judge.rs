//! Holds a rule's estimates against the kernel's windows.

use spand_core::estimate::Rule;
use spand_core::types::{SampleReason, WindowSample};
use spand_proto::units::Window;

use super::record::Kernel;
use super::scenario::{CHANGES_S, Question, SINGLE_S};
use super::series::{Point, Sample, Series, place_of};

/// Samples from which on the estimate has to be right.
pub const ENOUGH: usize = 100;
/// Seconds after a change from which on it has to be.
pub const FOLLOW_S: u64 = 60;
/// Seconds after which a series without changes has settled.
const SETTLED_S: f64 = 30.0;

/// One figure of a rule on a recording.
#[derive(Clone, Debug)]
pub struct Figure {
    /// What it is.
    pub name: &'static str,
    /// Its value, as a part.
    pub value: f64,
    /// The most it may be, to either side; `None` where nothing is asked.
    pub most: Option<f64>,
}

/// The figures of one rule on one recording; the first is the one that counts.
pub fn judge(series: &Series, rule: &'static dyn Rule) -> Vec<Figure> {
    let points = series.estimates(rule, |_| true);
    match series.scenario.question {
        Question::Peaks => peaks(series, &points),
        Question::Follow => follow(series, &points),
        Question::SingleLoss => single(series, &points, rule),
        Question::AppLimited => limited(series, &points),
        Question::Advised => advised(series, &points),
        Question::Nat => nat(series, &points),
        Question::Liar => liar(series, &points, rule),
    }
}

/// Mean share shown by the kernel's peaks (each less one segment) that `takes` picks.
pub fn mean(series: &Series, takes: impl Fn(&Kernel, f64) -> bool) -> Option<f64> {
    let kernel = series.recorded.kernel.iter();
    let picked: Vec<f64> =
        kernel.filter(|k| takes(k, series.seconds(k.time_ns))).map(|kernel| kernel.segments).collect();
    (!picked.is_empty()).then(|| picked.iter().sum::<f64>() / picked.len() as f64)
}

/// The largest distance of `points` from `target`, signed.
fn worst<'a>(points: impl Iterator<Item = &'a Point>, target: f64) -> Option<f64> {
    let offs = points.filter_map(|point| Some(point.share? / target - 1.0));
    offs.max_by(|one, next| one.abs().total_cmp(&next.abs()))
}

fn figure(name: &'static str, value: Option<f64>, most: Option<f64>) -> Option<Figure> {
    value.map(|value| Figure { name, value, most })
}

fn peaks(series: &Series, points: &[Point]) -> Vec<Figure> {
    let Some(target) = mean(series, |kernel, _| kernel.peak) else { return Vec::new() };
    let enough = || points.iter().filter(|point| point.samples >= ENOUGH);
    // The flows' first peaks stand over those that follow, so that the mean so far is another.
    let so_far = enough()
        .filter_map(|point| Some(point.share? / mean(series, |kernel, at| kernel.peak && at <= point.at_s)? - 1.0))
        .max_by(|one, next| one.abs().total_cmp(&next.abs()));
    let last = points.last().and_then(|point| point.share).map(|share| share / target - 1.0);
    let count = enough().count();
    let typical = {
        let mut offs: Vec<f64> = enough().filter_map(|point| Some((point.share? / target - 1.0).abs())).collect();
        offs.sort_by(f64::total_cmp);
        offs.get(count / 2).copied()
    };
    [
        figure("worst after 100 samples", worst(enough(), target), Some(0.15)),
        figure("worst against the peaks until then", so_far, None),
        figure("median", typical, None),
        figure("at the end", last, None),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn follow(series: &Series, points: &[Point]) -> Vec<Figure> {
    let ends = [CHANGES_S[1], series.scenario.seconds];
    let mut figures = Vec::new();
    let names =
        [["halved: 60 s later", "halved: after 60 s, worst"], ["doubled: 60 s later", "doubled: after 60 s, worst"]];
    for ((change, end), names) in CHANGES_S.into_iter().zip(ends).zip(names) {
        // The first round trips after a change belong to neither.
        let Some(target) = mean(series, |kernel, at| kernel.peak && at > change as f64 + 15.0 && at <= end as f64)
        else {
            continue;
        };
        let after = points.iter().filter(|point| point.at_s >= (change + FOLLOW_S) as f64 && point.at_s <= end as f64);
        let at = after.clone().next().and_then(|point| point.share).map(|share| share / target - 1.0);
        figures.extend(figure(names[0], at, Some(0.15)));
        figures.extend(figure(names[1], worst(after, target), None));
    }
    figures
}

fn single(series: &Series, points: &[Point], rule: &'static dyn Rule) -> Vec<Figure> {
    // The packet that was lost, and what the sender noticed of it.
    let its = |sample: &&Sample| {
        let at = series.seconds(sample.window.at.0);
        sample.window.reason == SampleReason::Loss && (SINGLE_S as f64..SINGLE_S as f64 + 1.5).contains(&at)
    };
    let moved = |with: &[Point], without: &[Point]| {
        let moved = with.iter().zip(without).filter_map(|(with, without)| Some(with.share? / without.share? - 1.0));
        moved.max_by(|one, next| one.abs().total_cmp(&next.abs()))
    };
    if let Some(lost) = series.samples.iter().find(its) {
        let (at, connection) = (lost.window.at, lost.window.connection);
        let rest = |sample: &Sample| sample.window.at != at || sample.window.connection != connection;
        return figure("moved by one loss", moved(points, &series.estimates(rule, rest)), Some(0.05))
            .into_iter()
            .collect();
    }
    // It hit a slow start, which gives no sample: the last end before it stands for a loss at half of its window.
    let before = |sample: &&Sample| {
        sample.window.reason == SampleReason::End && series.seconds(sample.window.at.0) < SINGLE_S as f64
    };
    let Some(end) = series.samples.iter().rposition(|sample| before(&sample)) else { return Vec::new() };
    let mut changed = series.clone();
    if let Some(sample) = changed.samples.get(end).copied() {
        let half = Window::from_bytes(sample.window.window.bytes() / 2.0).unwrap_or_default();
        let window = WindowSample { window: half, reason: SampleReason::Loss, ..sample.window };
        changed.samples.insert(end + 1, Sample { window, ..sample });
    }
    figure("moved by one loss put in", moved(&changed.estimates(rule, |_| true), points), Some(0.05))
        .into_iter()
        .collect()
}

fn limited(series: &Series, points: &[Point]) -> Vec<Figure> {
    let settled = || points.iter().filter(|point| point.at_s >= SETTLED_S);
    let samples = mean(series, |kernel, _| !kernel.bound);
    let peaks = mean(series, |kernel, _| kernel.peak);
    [
        figure("above the mean of all samples, worst", samples.and_then(|target| worst(settled(), target)), Some(0.25)),
        figure("against the peaks, worst", peaks.and_then(|target| worst(settled(), target)), None),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn advised(series: &Series, points: &[Point]) -> Vec<Figure> {
    let settled = || points.iter().filter(|point| point.at_s >= SETTLED_S);
    let peaks = mean(series, |kernel, _| kernel.peak);
    let own = mean(series, |kernel, _| {
        let advised = place_of(&series.scenario, kernel.remote.ip()).is_some_and(|(.., group)| group.advised);
        kernel.peak && !advised
    });
    let shares: Vec<f64> = settled().filter_map(|point| point.share).collect();
    let drift = shares.first().zip(shares.last()).map(|(first, last)| last / first - 1.0);
    [
        figure("against the peaks, worst", peaks.and_then(|target| worst(settled(), target)), Some(0.5)),
        figure("against those of starts without advice", own.and_then(|target| worst(settled(), target)), None),
        figure("drift from 30 s to the end", drift, None),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn nat(series: &Series, points: &[Point]) -> Vec<Figure> {
    let settled = || points.iter().filter(|point| point.at_s >= SETTLED_S).filter_map(|point| point.share);
    let (least, most) = (settled().reduce(f64::min), settled().reduce(f64::max));
    let of_site = |site: usize| {
        mean(series, |kernel, _| {
            !kernel.bound && place_of(&series.scenario, kernel.remote.ip()).is_some_and(|(of, ..)| of == site)
        })
    };
    let clients: Vec<f64> = series
        .clients()
        .into_iter()
        .filter_map(|client| mean(series, |kernel, _| !kernel.bound && kernel.remote.ip() == client))
        .collect();
    let of_clients = (!clients.is_empty()).then(|| clients.iter().sum::<f64>() / clients.len() as f64);
    let points = || points.iter().filter(|point| point.at_s >= SETTLED_S);
    [
        figure("against the mean of the clients' means, worst", of_clients.and_then(|t| worst(points(), t)), Some(0.5)),
        figure("against the few long flows, worst", of_site(0).and_then(|target| worst(points(), target)), None),
        figure("against the many short ones, worst", of_site(1).and_then(|target| worst(points(), target)), None),
        figure("largest against smallest", least.zip(most).map(|(least, most)| most / least - 1.0), None),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn liar(series: &Series, points: &[Point], rule: &'static dyn Rule) -> Vec<Figure> {
    let honest = series.estimates(rule, |sample| sample.site == 0);
    let settled = points.iter().zip(&honest).filter(|(point, _)| point.at_s >= SETTLED_S);
    let moved = settled.filter_map(|(with, without)| Some(with.share? / without.share? - 1.0));
    let moved = moved.max_by(|one, next| one.abs().total_cmp(&next.abs()));
    figure("moved by the liar, worst", moved, Some(0.25)).into_iter().collect()
}
