//! A transfer's first seconds, and timers (Aron & Druschel).

use anyhow::Result;

use crate::papers::output::{Figures, Output, number};
use crate::papers::row::{Judged, Outcomes, Row, Setting, Way};

const SCRIPT: &str = "startup.tcl";
const ORIGINAL: &str = "original";
const THRESHOLD: &str = "threshold";
const GIVEN: &str = "given";

/// T8 and T9: a path, the threshold that is its pipe's part of a sender, and the bands.
struct Path {
    name: &'static str,
    pipe_segments: u32,
    seconds: u32,
    /// Moment, what the original and the given threshold came to before, least ratio.
    moments: &'static [(u32, f64, f64, f64)],
}

const SATELLITE: Path = Path {
    name: "satellite",
    pipe_segments: 210,
    seconds: 60,
    moments: &[(20, 18.8, 74.7, 3.5), (30, 21.3, 83.1, 3.5), (60, 27.1, 91.6, 0.0)],
};
const WAN: Path =
    Path { name: "wan", pipe_segments: 97, seconds: 5, moments: &[(2, 9.4, 76.3, 5.0), (5, 26.7, 88.8, 2.5)] };

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
        expected: "original and given threshold within 10 % of an earlier run; measured at least 3.5 times the original at 20 and 30 s (paper: about 5)",
        source: "the text and a run of this project; the paper's simulator is not ns-2",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: settings(&SATELLITE),
        judge: |outcomes| judged(outcomes, &SATELLITE),
    }
}

/// T9.
pub(super) fn wide_area() -> Row {
    Row {
        id: "T9",
        what: "Aron & Druschel Figure 10, eight senders on a fast wide-area path (60 ms): effective throughput with a measured threshold",
        expected: "original and given threshold within 10 % of an earlier run; measured at least 5 times the original at 2 s, 2.5 at 5 s (paper: nearly 10 below 5 s)",
        source: "the text and a run of this project",
        way: Way::Simulated { script: SCRIPT, read },
        seeds: 1,
        quick_seeds: 1,
        settings: settings(&WAN),
        judge: |outcomes| judged(outcomes, &WAN),
    }
}

fn judged(outcomes: &Outcomes, path: &Path) -> Judged {
    let mut judged = Judged::default();
    for &(second, original, given, least) in path.moments {
        let at = |setting| outcomes.one(setting, &moment(&second.to_string()));
        judged.near(format!("original at {second} s, %"), original, original / 10.0, 1, at(ORIGINAL));
        judged.near(format!("given threshold at {second} s, %"), given, given / 10.0, 1, at(GIVEN));
        let measured = at(THRESHOLD);
        let ratio = measured.zip(at(ORIGINAL)).map(|(measured, original)| measured / original);
        if least > 0.0 {
            let found = ratio.map(|ratio| (format!("{ratio:.1}"), ratio >= least));
            judged.target(
                format!("measured threshold at {second} s, times the original"),
                format!("{least} or more"),
                found,
            );
        }
        judged.report(format!("measured threshold at {second} s, %"), "", measured.map(|found| format!("{found:.1}")));
    }
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
        expected: "satellite: at least 2 times the threshold alone below 5 s (paper: 5); wide area at 0.7 s: a clock of 2 ms more than one of 10 ms (paper: +85 %, +20 %), and that more than none",
        source: "the text, section 5.2",
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
            ratio("satellite-10ms", "satellite-none", second).map(|ratio| (format!("{ratio:.1}"), ratio >= 2.0));
        judged.target(format!("satellite at {second} s, times the threshold alone"), "2 or more", found);
    }
    let percent = |ratio: f64| format!("{:+.0} %", (ratio - 1.0) * 100.0);
    let coarse = ratio("wan-10ms", "wan-none", "0.7");
    let fine = ratio("wan-2ms", "wan-none", "0.7");
    judged.target("wide area at 0.7 s, 10 ms", "above 0", coarse.map(|ratio| (percent(ratio), ratio > 1.0)));
    let found = fine.zip(coarse).map(|(fine, coarse)| (percent(fine), fine > coarse));
    judged.target("wide area at 0.7 s, 2 ms", "above that of 10 ms", found);
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
                let share = outcomes.mean(name, "share_percent").map(|mean| mean.value);
                judged.near(format!("{name} timers, %"), text, 10.0, 1, share);
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
