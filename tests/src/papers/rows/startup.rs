//! A transfer's first seconds, and timers (Aron & Druschel).

use anyhow::Result;

use crate::papers::ns::{Figures, Output, number};
use crate::papers::row::{Judged, Outcomes, Row, Setting, Way};

const SCRIPT: &str = "startup.tcl";
const ORIGINAL: &str = "original";
const THRESHOLD: &str = "threshold";
const GIVEN: &str = "given";

/// T8 and T9: a path, and the threshold that is its pipe's part of a sender.
struct Path {
    name: &'static str,
    pipe_segments: u32,
    seconds: u32,
}

const SATELLITE: Path = Path { name: "satellite", pipe_segments: 210, seconds: 60 };
const WAN: Path = Path { name: "wan", pipe_segments: 97, seconds: 5 };

fn settings(path: &Path) -> Vec<Setting> {
    let setting = |scheme: &str| {
        Setting::new(scheme, &[("path", path.name)]).with("scheme", scheme).with("seconds", path.seconds)
    };
    vec![setting(ORIGINAL), setting(GIVEN).with("threshold", path.pipe_segments), setting(THRESHOLD)]
}

/// T8.
pub(super) fn satellite() -> Row {
    Row {
        id: "T8",
        what: "Aron & Druschel Figure 9, a satellite link (580 ms): effective throughput with a measured threshold",
        expected: "the original at most 18 % (to whole percents); beyond 20 s the measured threshold almost 5 times that (4.5 or more)",
        source: "5.2.1: 18 % at most in the time shown, which holds less than 5 s and more than 20 s; almost 5-fold beyond 20 s. The paper's simulator is not ns-2",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: settings(&SATELLITE),
        judge: satellite_judged,
    }
}

/// T9.
pub(super) fn wide_area() -> Row {
    Row {
        id: "T9",
        what: "Aron & Druschel Figure 10, eight senders on a fast wide-area path (60 ms): effective throughput with a measured threshold",
        expected: "somewhere below 5 s the measured threshold nearly 10 times the original (9.5 or more)",
        source: "5.2.2: nearly 10-fold below 5 s; the paper's simulator is not ns-2",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: settings(&WAN),
        judge: wide_area_judged,
    }
}

fn at(outcomes: &Outcomes, setting: &str, second: u32) -> Option<f64> {
    outcomes.one(setting, &moment(&second.to_string()))
}

fn gain(outcomes: &Outcomes, second: u32) -> Option<f64> {
    let original = at(outcomes, ORIGINAL, second)?;
    at(outcomes, THRESHOLD, second).map(|measured| measured / original)
}

fn report_levels(judged: &mut Judged, outcomes: &Outcomes, seconds: &[u32]) {
    for second in seconds {
        for (setting, words) in [(GIVEN, "given threshold"), (THRESHOLD, "measured threshold")] {
            let found = at(outcomes, setting, *second).map(|found| format!("{found:.1}"));
            judged.report(format!("{words} at {second} s, %"), "", found);
        }
    }
}

fn satellite_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for second in [10, 20, 30, 60] {
        let found = at(outcomes, ORIGINAL, second).map(|found| (format!("{found:.1}"), found.round() <= 18.0));
        judged.target(format!("original at {second} s, %"), "18 or less", found);
    }
    let what = |second| format!("measured threshold at {second} s, times the original");
    judged.report(what(20), "", gain(outcomes, 20).map(|gain| format!("{gain:.1}")));
    for second in [30, 60] {
        let found = gain(outcomes, second).map(|gain| (format!("{gain:.1}"), gain >= 4.5));
        judged.target(what(second), "4.5 or more", found);
    }
    report_levels(&mut judged, outcomes, &[20, 30, 60]);
    judged
}

fn wide_area_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    let gains: Option<Vec<f64>> = (1..5).map(|second| gain(outcomes, second)).collect();
    let found = gains.map(|gains| {
        let text: Vec<String> = gains.iter().map(|gain| format!("{gain:.1}")).collect();
        (text.join(", "), gains.iter().any(|gain| *gain >= 9.5))
    });
    judged.target("measured threshold at 1, 2, 3, 4 s, times the original", "9.5 or more in one", found);
    judged.report("at 5 s", "", gain(outcomes, 5).map(|gain| format!("{gain:.1}")));
    for (second, text) in [(1, "6.62 (3, Figure 3)"), (5, "19.81 (3, Figure 3)")] {
        let found = at(outcomes, ORIGINAL, second).map(|found| format!("{found:.1}"));
        judged.report(format!("original at {second} s, %"), text, found);
    }
    report_levels(&mut judged, outcomes, &[2, 5]);
    judged
}

/// T10.
pub(super) fn paced() -> Row {
    let setting = |name: &str, path: &str, scheme: &str, event: &str| {
        Setting::new(name, &[("path", path), ("scheme", scheme), ("event", event)]).with("seconds", 5)
    };
    Row {
        id: "T10",
        what: "Aron & Druschel Figures 9 and 10: paced slow start on top of the measured threshold",
        expected: "satellite: 5 times the threshold alone, or more, below 5 s; wide area at 0.7 s: +20 % or more with a clock of 10 ms, +85 % with one of 2 ms",
        source: "5.2.1, 5.2.2",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: vec![
            setting("satellite-none", "satellite", "threshold", "0.01"),
            setting("satellite-10ms", "satellite", "paced", "0.01"),
            setting("wan-none", "wan", "threshold", "0.01"),
            setting("wan-10ms", "wan", "paced", "0.01"),
            setting("wan-2ms", "wan", "paced", "0.002"),
        ],
        judge: paced_judged,
    }
}

fn paced_judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    let ratio = |of: &str, to: &str, second: &str| {
        let at = |setting| outcomes.one(setting, &moment(second));
        at(of).zip(at(to)).map(|(of, to)| of / to)
    };
    for second in ["2", "3", "4"] {
        let found =
            ratio("satellite-10ms", "satellite-none", second).map(|ratio| (format!("{ratio:.1}"), ratio >= 5.0));
        judged.target(format!("satellite at {second} s, times the threshold alone"), "5 or more", found);
    }
    let percent = |ratio: f64| format!("{:+.0} %", (ratio - 1.0) * 100.0);
    let coarse = ratio("wan-10ms", "wan-none", "0.7");
    let fine = ratio("wan-2ms", "wan-none", "0.7");
    for (clock, ratio, least) in [("10 ms", coarse, 1.20), ("2 ms", fine, 1.85)] {
        let found = ratio.map(|ratio| (percent(ratio), ratio >= least));
        judged.target(format!("wide area at 0.7 s, {clock}"), format!("{} or more", percent(least)), found);
    }
    judged
}

/// T11.
pub(super) fn timers() -> Row {
    let setting = |timers: &str| Setting::new(timers, &[("timers", timers)]);
    Row {
        id: "T11",
        what: "Aron & Druschel Figure 7, a T1 line (100 ms): a slow start beside a transfer, with round trips measured by 500 ms and by 1 ms",
        expected: "44 and 66 % of the line in the 5 s that follow, to 10 points",
        source: "the text, section 5.1; ns-2 has one clock for measuring and for timeouts, and the paper's simulator another TCP",
        way: Way::Simulated { script: "timers.tcl", read: read_timers },
        seeds: 10,
        quick_seeds: 3,
        settings: vec![setting("original"), setting("proposed")],
        judge: |outcomes| {
            let mut judged = Judged::default();
            for (name, text) in [("original", 44.0), ("proposed", 66.0)] {
                let share = outcomes.mean(name, "share_percent");
                let what = format!("{name} timers, %");
                judged.within(what, format!("{text}"), text - 10.0..=text + 10.0, share, |mean| {
                    format!("{:.1}", mean.value)
                });
                let timeouts = outcomes.mean(name, "timeouts").map(|mean| format!("{:.1}", mean.value));
                judged.report(format!("{name} timers: timeouts in these 5 s"), "", timeouts);
            }
            let gain = outcomes.mean("proposed", "share_percent").zip(outcomes.mean("original", "share_percent"));
            let gain = gain.map(|(proposed, original)| format!("{:+.1} points", proposed.value - original.value));
            judged.report("gain", "+22 points", gain);
            judged
        },
    }
}

fn read_timers(output: &Output) -> Result<Figures> {
    Ok(Figures::from([
        ("share_percent".to_owned(), number(output.line("share")?, 0)?),
        ("timeouts".to_owned(), number(output.line("timeouts")?, 0)?),
    ]))
}

fn moment(second: &str) -> String {
    format!("throughput_percent_at_{second}_s")
}

fn read(output: &Output) -> Result<Figures> {
    let mut figures = Figures::new();
    for line in output.lines("at") {
        figures.insert(moment(&number(line, 0)?.to_string()), number(line, 1)?);
    }
    let mut senders = 0.0;
    for line in output.lines("threshold") {
        figures.entry("first_threshold_segments".to_owned()).or_insert(number(line, 1)?);
        senders += 1.0;
    }
    figures.insert("estimations".to_owned(), senders);
    figures.insert("timeouts".to_owned(), number(output.line("timeouts")?, 0)?);
    Ok(figures)
}
