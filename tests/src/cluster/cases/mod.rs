//! What the campaign tries, each case by itself: what was to be shown, and what was seen.

pub mod agents;
pub mod away;
pub mod cells;
pub mod convergence;
pub mod flood;
pub mod group;
pub mod nats;
pub mod servers;
pub mod sites;
mod standing;
pub mod upgrade;

use std::fmt;
use std::path::PathBuf;

use anyhow::Result;

/// A case: its name, what it is about, and what runs it.
pub type Case = (&'static str, &'static str, fn(&Programs, Size) -> Result<Vec<Row>>);

/// All of them.
pub const CASES: &[Case] = &[
    ("cells", "what cells cost, and starts while as many come as a gateway must take", cells::run),
    ("agents", "hosts that change over when gateways die, stand still and come back", agents::run),
    ("convergence", "from one gateway's sample to the others' published estimates", convergence::run),
    ("servers", "the stream's leader is killed, stopped and paused under traffic", servers::run),
    ("group", "two gateways whose taps see the same packets, of which one dies", group::run),
    ("sites", "two sites over a slow path that is cut for a minute", sites::run),
    ("upgrade", "servers of the version before, upgraded one at a time under traffic", upgrade::run),
    ("nats", "what the servers take for a byte, and the highest rate without a growing queue", nats::run),
    ("flood", "a member's user sends without pause on every topic", flood::run),
    ("away", "all servers away for ten minutes, their return, and a gateway that starts again", away::run),
];

/// How much of a case is run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Size {
    /// With the numbers that the targets name.
    Full,
    /// Small enough for every change; rates and times of it are no figures.
    Quick,
}

/// The programs that cases start.
#[derive(Clone, Debug)]
pub struct Programs {
    /// A gateway.
    pub gateway: PathBuf,
    /// This campaign, whose command `load` is a gateway with made-up cells.
    pub own: PathBuf,
}

/// What became of one target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It was reached.
    Met,
    /// It was not.
    Short,
    /// There is none, or this size does not judge it.
    Stated,
}

/// A line of the result.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was looked at.
    pub what: String,
    /// What it should be.
    pub target: String,
    /// What it was, with its unit.
    pub figure: String,
    /// What that means.
    pub verdict: Verdict,
}

impl Row {
    /// With a target that is always judged.
    pub fn judged(what: impl Into<String>, target: impl Into<String>, figure: impl Into<String>, met: bool) -> Self {
        let verdict = if met { Verdict::Met } else { Verdict::Short };
        Self { what: what.into(), target: target.into(), figure: figure.into(), verdict }
    }

    /// Of a rate or a time: judged in full size alone.
    pub fn timed(
        size: Size,
        what: impl Into<String>,
        target: impl Into<String>,
        figure: impl Into<String>,
        met: bool,
    ) -> Self {
        let row = Self::judged(what, target, figure, met);
        let verdict = if size == Size::Full { row.verdict } else { Verdict::Stated };
        Self { verdict, ..row }
    }

    /// Without a target.
    pub fn stated(what: impl Into<String>, figure: impl Into<String>) -> Self {
        Self { what: what.into(), target: String::new(), figure: figure.into(), verdict: Verdict::Stated }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Met => "met",
            Verdict::Short => "SHORT",
            Verdict::Stated => "",
        };
        write!(f, "{:5} | {} | {} | {}", verdict, self.what, self.target, self.figure)
    }
}
