//! How figures are read out of what scripts print.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::campaign::statistics::Mean;
use crate::papers::ns::{Figures, Output, number};

/// The name of a line that is there once, the place of a word in it, and the figure that it is.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Line(String, usize, String);

/// What reads an output.
#[derive(Clone, Debug)]
pub struct Read {
    pub(super) lines: Vec<Line>,
    /// What knows the script, where lines do not do.
    pub(super) by: Option<fn(&Output) -> Result<Figures>>,
}

impl Read {
    /// The figures.
    pub fn figures(&self, output: &Output) -> Result<Figures> {
        let read = |Line(line, word, figure): &Line| Ok((figure.clone(), number(output.line(line)?, *word)?));
        self.by.map_or_else(|| self.lines.iter().map(read).collect(), |by| by(output))
    }
}

/// The reader of this name.
pub(super) fn reader(name: &str) -> Result<fn(&Output) -> Result<Figures>> {
    Ok(match name {
        "mice" => mice,
        "yu" => yu,
        "startup" => startup,
        "barakat" => barakat,
        "spand" => spand,
        other => bail!("nothing reads `{other}`"),
    })
}

/// A mouse has at most these packets.
const MICE_PACKETS: f64 = 32.0;
/// When the constant stream runs, in seconds.
const STREAM: Range<f64> = 300.0..500.0;

/// What the main transfers with one rule came to.
#[derive(Default)]
struct Class {
    seconds: Vec<f64>,
    /// Of mice that began while the constant stream ran.
    during: Vec<f64>,
    sent: f64,
    dropped: f64,
}

/// Mice and elephants of each rule.
fn mice(output: &Output) -> Result<Figures> {
    let mut classes: BTreeMap<(&str, &str), Class> = BTreeMap::new();
    let class =
        |words: &[String]| -> Result<&str> { Ok(if number(words, 1)? <= MICE_PACKETS { "mice" } else { "elephants" }) };
    let mut ended = 0_u32;
    for words in output.lines("flow") {
        let rule = words.first().context("a rule")?;
        let (begun, seconds) = (number(words, 2)?, number(words, 3)?);
        let class = classes.entry((rule, class(words)?)).or_default();
        class.seconds.push(seconds);
        class.sent += number(words, 4)?;
        if STREAM.contains(&begun) {
            class.during.push(seconds);
        }
        ended += 1;
    }
    for words in output.lines("drop") {
        let rule = words.first().context("a rule")?;
        classes.entry((rule, class(words)?)).or_default().dropped += 1.0;
    }
    let begun = number(output.line("begun")?, 0)?;
    ensure!(f64::from(ended) <= begun, "{ended} transfers ended, {begun} began");
    let mut figures = Figures::from([("unfinished".to_owned(), begun - f64::from(ended))]);
    for ((rule, name), class) in classes {
        let mut add = |what: &str, value: Option<f64>| {
            figures.extend(value.map(|value| (format!("{rule}_{name}_{what}"), value)));
        };
        add("count", Some(class.seconds.len() as f64));
        add("mean_seconds", Mean::of(&class.seconds).map(|mean| mean.value));
        add("median_seconds", median(&class.seconds));
        add("during_mean_seconds", Mean::of(&class.during).map(|mean| mean.value));
        add("loss", (class.sent > 0.0).then(|| class.dropped / class.sent));
    }
    Ok(figures)
}

/// The middle one, or between the two in the middle.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(lower, upper))
}

fn yu(output: &Output) -> Result<Figures> {
    let mut figures = Figures::new();
    for line in output.lines("first") {
        figures.insert(format!("first_{}_s_packets", number(line, 0)?), number(line, 1)?);
    }
    figures.insert("total_packets".to_owned(), number(output.line("total")?, 0)?);
    figures.insert("connections".to_owned(), number(output.line("connections")?, 0)?);
    if let Ok(openings) = output.line("openings") {
        for (place, name) in ["openings", "opening_window_segments", "opening_threshold_segments"].iter().enumerate() {
            figures.insert((*name).to_owned(), number(openings, place)?);
        }
    }
    Ok(figures)
}

fn startup(output: &Output) -> Result<Figures> {
    let mut figures = Figures::new();
    for line in output.lines("at") {
        figures.insert(format!("throughput_percent_at_{}_s", number(line, 0)?), number(line, 1)?);
    }
    for line in output.lines("threshold").take(1) {
        figures.insert("first_threshold_segments".to_owned(), number(line, 1)?);
    }
    figures.insert("estimations".to_owned(), output.lines("threshold").count() as f64);
    figures.insert("timeouts".to_owned(), number(output.line("timeouts")?, 0)?);
    Ok(figures)
}

/// The first drop, and whether it came in slow start.
fn barakat(output: &Output) -> Result<Figures> {
    let in_slow_start = "in_slow_start".to_owned();
    let Ok(drop) = output.line("drop") else {
        output.line("none")?;
        return Ok(Figures::from([(in_slow_start, 0.0)]));
    };
    let phase = drop.get(2).map_or("", String::as_str);
    ensure!(["slow-start", "avoidance"].contains(&phase), "a drop in the phase `{phase}`");
    Ok(Figures::from([
        ("first_drop_seconds".to_owned(), number(drop, 0)?),
        ("window_at_first_drop_segments".to_owned(), number(drop, 1)?),
        (in_slow_start, f64::from(u8::from(phase == "slow-start"))),
    ]))
}

/// Mean seconds of a scheme's transfers, and the mean window of starts on advice.
fn spand(output: &Output) -> Result<Figures> {
    let mut figures = Figures::new();
    for words in output.lines("transfers") {
        let scheme = words.first().map_or("", String::as_str);
        figures.insert(format!("{scheme}_seconds"), number(words, 2)?);
    }
    ensure!(!figures.is_empty(), "no transfer came to its end");
    if let Some(words) = output.lines("starts").next() {
        figures.insert("start_segments".to_owned(), number(words, 1)?);
    }
    Ok(figures)
}
