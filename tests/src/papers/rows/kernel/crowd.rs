//! Openings by the senders under way (Yu & Newman, section 5), with the product's own programs.

use std::time::Duration;

use anyhow::Result;
use spand_proto::estimate::RuleKind;
use spand_proto::start::Shape;
use spand_proto::units::BytesPerSecond;

use crate::campaign::statistics::Mean;
use crate::lab::path::{PathConfig, Queue};
use crate::papers::crowd::{self, Advice, Arm, Crowd, Host, Lives};
use crate::papers::ns::Figures;
use crate::papers::row::{Judged, Outcomes, Programs, Row, Setting, Way, seeds};
use crate::product::Mode;

/// Raised where the experiment changes.
const VERSION: u32 = 1;

const FIRST: &str = "first_5_s_packets";
const TOTAL: &str = "total_packets";

/// The paper's baseline.
const PAPERS: Host = Host { window: 1, threshold: Some(10) };
/// Linux as it is.
const STOCK: Host = Host { window: 10, threshold: None };
/// With the product: the paper's first window, and no threshold but the opening's.
const ADVISED: Host = Host { window: 1, threshold: None };

const RENO: &str = "reno1";
const LINUX: &str = "reno";
const LISS: &str = "liss";
const ISS: &str = "iss";
const MISS: &str = "miss";
const JS: &str = "js";

const fn advised(name: &'static str, rule: RuleKind, shape: Shape, mode: Mode) -> Arm {
    Arm { name, host: ADVISED, advice: Some(Advice { rule, shape, mode }) }
}

const ARMS: [Arm; 6] = [
    Arm { name: RENO, host: PAPERS, advice: None },
    Arm { name: LINUX, host: STOCK, advice: None },
    advised(LISS, RuleKind::Liss, Shape::Threshold, Mode::Careful),
    advised(ISS, RuleKind::Iss, Shape::Threshold, Mode::Careful),
    // Its shape is for comparison and runs in this mode alone.
    advised(MISS, RuleKind::Miss, Shape::Measured, Mode::Paper),
    advised(JS, RuleKind::Liss, Shape::Jump, Mode::Careful),
];

fn setting(name: &str, life_s: u32, length_s: u32, others: u8) -> Setting {
    Setting::new(name, &[]).with("life_s", life_s).with("length_s", length_s).with("others", others)
}

fn run(setting: &Setting, seed: u64, programs: &Programs) -> Result<Figures> {
    let seconds = |name: &str| setting.option(name).map(Duration::from_secs);
    let crowd = Crowd {
        path: PathConfig::bottleneck(BytesPerSecond(2_000_000), Duration::from_millis(150), Queue::Packets(50)),
        clients: 5,
        others: setting.option("others")?,
        lives: Lives {
            arrivals: Duration::from_secs(5),
            life: seconds("life_s")?,
            shape: 1.35,
            length: seconds("length_s")?,
        },
    };
    crowd::run(&crowd, &ARMS, seed, programs)
}

const LONG: &str = "minutes-20";

/// K2.
pub(super) fn long_lives() -> Row {
    Row {
        id: "K2",
        what: "Yu & Newman Figure 3 on this kernel: 16 Mbit/s, 300 ms, queue of 50, a connection each 5 s that sends for 100 s in the mean; packets acknowledged in the first 5 s of each, and in all; six paths side by side",
        expected: "in the first 5 s, times Reno's with a first window of 1 and a threshold of 10: LISS 1.2 or more, JS 1.6 or more; against stock Reno no target",
        source: "the text (1.48, 2.22), less what ends by itself on a real path",
        way: Way::Kernel { version: VERSION, run },
        seeds: 3,
        quick_seeds: 1,
        settings: vec![setting(LONG, 100, 1_200, 0).long(), setting("minutes-4", 100, 240, 0)],
        judge: long_lives_judged,
    }
}

fn long_lives_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for (name, text, least) in [(LISS, 1.48, 1.2), (JS, 2.22, 1.6)] {
        let found = ratio(outcomes, LONG, (name, FIRST), RENO);
        let what = format!("{name}: first 5 s (text: {text})");
        judged.within(what, format!("{least} or more"), least..=f64::INFINITY, found, times);
    }
    for name in [ISS, MISS, LINUX] {
        report(&mut judged, outcomes, LONG, (name, FIRST), RENO);
    }
    for name in [LISS, ISS, MISS, JS] {
        report(&mut judged, outcomes, LONG, (name, FIRST), LINUX);
    }
    totals_and_starts(&mut judged, outcomes, LONG);
    judged
}

const SHORT: &str = "life-5";
const SHORT_SHARED: &str = "life-5-others";

/// K3.
pub(super) fn short_lives() -> Row {
    Row {
        id: "K3",
        what: "Yu & Newman Figure 17 on this kernel: as K2, with connections that live 5 s in the mean, alone and beside five others that stay",
        expected: "in the first 5 s: MISS not above LISS; total of JS 0.93 or more of Reno's",
        source: "the text, section 5.4",
        way: Way::Kernel { version: VERSION, run },
        seeds: 3,
        quick_seeds: 1,
        settings: vec![setting(SHORT, 5, 180, 0), setting(SHORT_SHARED, 5, 180, 5)],
        judge: short_lives_judged,
    }
}

fn short_lives_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for setting in [SHORT, SHORT_SHARED] {
        let miss = ratio(outcomes, setting, (MISS, FIRST), LISS);
        let what = format!("{setting}, {MISS}: first 5 s, times {LISS}'s");
        judged.within(what, "1 or less", 0.0..=1.0, miss, times);
        let total = ratio(outcomes, setting, (JS, TOTAL), RENO);
        let what = format!("{setting}, {JS}: total, times {RENO}'s");
        judged.within(what, "0.93 or more", 0.93..=f64::INFINITY, total, times);
        for name in [LINUX, LISS, ISS, MISS, JS] {
            report(&mut judged, outcomes, setting, (name, FIRST), RENO);
        }
        totals_and_starts(&mut judged, outcomes, setting);
    }
    judged
}

fn totals_and_starts(judged: &mut Judged, outcomes: &Outcomes, setting: &str) {
    for name in [LINUX, LISS, ISS, MISS, JS] {
        report(judged, outcomes, setting, (name, TOTAL), RENO);
    }
    for name in [LISS, ISS, MISS, JS] {
        let mean = |figure: &str| outcomes.mean(setting, &format!("{name}_{figure}")).map(|mean| mean.value);
        let starts = mean("starts_on_advice").zip(mean("connections"));
        let found = starts.map(|(starts, all)| {
            let of = |figure| mean(figure).map_or_else(|| "-".to_owned(), |segments| format!("{segments:.1}"));
            let (window, threshold) = (of("start_window_segments"), of("start_threshold_segments"));
            format!("{starts:.0} of {all:.0}, window {window}, threshold {threshold} segments")
        });
        judged.report(format!("{setting}, {name}: starts on advice, means"), "", found);
    }
}

fn report(judged: &mut Judged, outcomes: &Outcomes, setting: &str, of: (&str, &str), baseline: &str) {
    let what = if of.1 == FIRST { "first 5 s" } else { "total" };
    let found = ratio(outcomes, setting, of, baseline).map(|mean| times(&mean));
    judged.report(format!("{setting}, {}: {what}, times {baseline}'s", of.0), "", found);
}

/// An arm's figure as a multiple of another's, seed by seed.
fn ratio(outcomes: &Outcomes, setting: &str, (arm, figure): (&str, &str), baseline: &str) -> Option<Mean> {
    let (ours, theirs) = (format!("{arm}_{figure}"), format!("{baseline}_{figure}"));
    let change = outcomes.change((setting, &ours), (setting, &theirs))?;
    Some(Mean { value: 1.0 + change.value, ..change })
}

fn times(mean: &Mean) -> String {
    let half = mean.half_width.map_or_else(String::new, |half| format!(" ±{half:.2}"));
    format!("{:.2}{half} ({})", mean.value, seeds(mean.count))
}
