//! Shares of every capture against what was recorded and against the kernel's own account (`tests/shares.tsv`), and the least that must be
//! right, whatever was recorded.

use std::collections::BTreeMap;

use spand_tests::shares::{Input, Kind, Row, differences, file, inputs, recorded, rows};

/// Part of the recordings of one network with an estimate, and part of these that are near, of each kind of sender: in percent, at least.
const LEAST: [(Kind, [usize; 2]); 3] = [(Kind::Bbr, [94, 88]), (Kind::LossBased, [92, 100]), (Kind::Paced, [100, 75])];
/// Recordings of mixed traffic that must be right. All of them were wrong once.
const MIXED_RIGHT: usize = 14;
/// An estimate of more confidence than this is one to rely on. On networks that nobody chose, one in ten of these is wrong
/// (`docs/results/accuracy.md`); here at most two are: a host that paces, and short answers by BBR.
const CONFIDENT: f64 = 0.8;
const CONFIDENT_AND_WRONG: usize = 3;

/// What is right for captures of other people's kinds: the share in segments, loss events, the mean round trip in milliseconds.
const OTHERS: [(&str, std::ops::RangeInclusive<f64>, u64, f64); 6] = [
    ("accecn-no-marks", 20.5..=22.5, 21, 104.8),
    ("clock-ahead-60s", 20.5..=22.5, 21, 105.0),
    ("clock-back-0.5s", 20.5..=22.5, 21, 104.8),
    ("two-captures-60ms-apart", 20.5..=22.5, 21, 104.8),
    // Their times are off by as much as their packets lie apart: within a fifth.
    ("inbound-clock-50us-late", 16.8..=25.2, 21, 104.8),
    ("tap-reorders-200us", 16.8..=25.2, 21, 104.8),
];

#[test]
fn captures_of_other_peoples_kinds_give_what_is_right() {
    let inputs: Vec<Input> = inputs().unwrap().into_iter().filter(|input| input.name.starts_with("field/")).collect();
    let rows = rows(&inputs, &|_| {}).unwrap();
    let row = |name: &str| rows.iter().find(|row| row.input.contains(name));
    if inputs.is_empty() {
        return;
    }
    for (name, share, losses, rtt_ms) in OTHERS {
        let row = row(name).unwrap();
        assert!(row.share.is_some_and(|is| share.contains(&is)) && row.losses == losses, "{row:?}");
        assert!(row.rtt_mean_ms.is_some_and(|is| (is - rtt_ms).abs() < 1.0), "{row:?}");
    }
    let kept_alive = row("keepalive-one-byte").unwrap();
    assert_eq!(kept_alive.samples, "1 carried, 1 end_app_limited, 3 end_slow_start, 1 loss");
    let untimed = row("all-times-zero").unwrap();
    assert_eq!((untimed.share, untimed.rtt_min_ms, untimed.samples.as_str()), (None, None, ""));
}

#[test]
fn shares_agree_with_what_was_recorded_and_with_the_kernels_own_account() {
    let inputs = inputs().unwrap();
    let rows = rows(&inputs, &|_| {}).unwrap();
    let mut faults = differences(&rows, &recorded(&file()).unwrap());
    // The first row of a capture is that of its largest network.
    let mut largest = BTreeMap::new();
    for row in &rows {
        largest.entry(row.input.as_str()).or_insert(row);
    }
    let of_kind = |kind: Kind| {
        inputs.iter().filter(move |input| input.truth.is_some_and(|truth| truth.kind == kind && truth.asked))
    };
    let row = |input: &Input| largest.get(input.name.as_str()).copied();
    for (kind, [estimated_least, near_least]) in LEAST {
        let asked = of_kind(kind).count();
        let with_estimate = || of_kind(kind).filter(|input| row(input).is_some_and(|row| row.share.is_some()));
        let exact = || with_estimate().filter(|input| input.truth.is_some_and(|truth| truth.exact));
        let near = exact().filter(|input| row(input).is_some_and(Row::is_near)).count();
        let (estimated, exact) = (with_estimate().count(), exact().count());
        println!("{kind:?}: {estimated} of {asked} with an estimate; {near} of {exact} near");
        if 100 * estimated < estimated_least * asked || 100 * near < near_least * exact {
            faults.push(format!("{kind:?}: below {estimated_least} and {near_least} %"));
        }
    }
    let right = |input: &Input| {
        row(input).is_some_and(|row| row.is_near() || row.bound && row.off_pct.is_some_and(|off| off < 0.0))
    };
    let mixed_right = of_kind(Kind::Mixed).filter(|input| right(input)).count();
    let confident = |input: &Input| row(input).is_some_and(|row| row.confidence.is_some_and(|of| of > CONFIDENT));
    let wrong = of_kind(Kind::Mixed).filter(|input| confident(input) && !right(input)).count();
    let mixed = of_kind(Kind::Mixed).count();
    println!("mixed: {mixed_right} of {mixed} right, {wrong} wrong with confidence above {CONFIDENT}");
    if mixed > 0 && (mixed_right < MIXED_RIGHT || wrong > CONFIDENT_AND_WRONG) {
        faults.push(format!("mixed traffic: fewer than {MIXED_RIGHT} right, or more than {CONFIDENT_AND_WRONG} wrong"));
    }
    assert!(faults.is_empty(), "{}\n`make shares` shows them, and records what is meant", faults.join("\n"));
}
