//! `grow CONNECTION RULE PARAMETERS.. WINDOW SSTHRESH COVERED`: the window, in segments, of a sender in slow start before its
//! first loss after an acknowledgement of COVERED segments; `standard` where the rule leaves growth to standard TCP.
//!
//! Rules: `standard`, `dbc DMAX`, `burst F MICE`. The window has as many digits as it needs to come back unchanged.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use spand_proto::growth::threshold::OwnThreshold;
use spand_proto::growth::{GrownWindow, Growth, MICE_SEGMENTS, burst_increment};
use spand_proto::timer::paced_round;
use spand_proto::units::{Micros, Segments};

use super::line::{Fault, Words};

/// Most segments of one acknowledgement that byte counting counts.
const MOST_COUNTED: u32 = 2;

/// Answers what follows the word `grow`.
pub(super) fn grow(words: &mut Words<'_>) -> Result<String, Fault> {
    let _connection: u32 = words.whole("connection")?;
    let grown = match words.word("growth")? {
        "standard" => {
            State::of(words)?;
            None
        }
        "dbc" => {
            let growth = Growth::Dbc { dmax: words.whole("dmax")? };
            let state = State::of(words)?;
            state.grown(growth, state.covered.min(MOST_COUNTED))?
        }
        "burst" => {
            let f: NonZeroU32 = words.whole("f")?;
            let mice: u32 = words.whole("mice_t")?;
            let state = State::of(words)?;
            // An acknowledgement counts once, whatever it covers.
            if mice == MICE_SEGMENTS {
                state.grown(Growth::Burst { f }, 1)?
            } else {
                let grows = state.window < f64::from(mice.min(state.ssthresh));
                grows.then(|| state.window + burst_increment(state.window, mice, f))
            }
        }
        other => return Err(Fault::new(format!("there is no growth `{other}`"))),
    };
    Ok(grown.map_or_else(|| "standard".to_owned(), |window| window.to_string()))
}

/// A sender at an acknowledgement.
struct State {
    window: f64,
    ssthresh: u32,
    covered: u32,
}

impl State {
    fn of(words: &mut Words<'_>) -> Result<Self, Fault> {
        let window = words.positive("window")?;
        let ssthresh = words.whole("ssthresh")?;
        let covered: NonZeroU32 = words.whole("segments covered")?;
        Ok(Self { window, ssthresh, covered: covered.get() })
    }

    fn grown(&self, growth: Growth, acked: u32) -> Result<Option<f64>, Fault> {
        let window = GrownWindow::from_f64(self.window)
            .ok_or_else(|| Fault::new(format!("window is `{}`, more than any sender's", self.window)))?;
        Ok(growth.grow(window, Segments(self.ssthresh), Segments(acked)).map(GrownWindow::as_f64))
    }
}

// The start of Aron and Druschel:
//
// - `measure CONNECTION TIME ACKED RTT`, in whole microseconds and segments, with each acknowledgement of new segments: answered
//   `none`, or with the threshold measured so far and `open` or `settled`.
// - `paced TARGET SENT RTT HZ RATE`, in segments, seconds and segments per second: answered with how many segments a paced slow
//   start sends and the seconds between two of them.

/// More is a fault of the script.
const MOST_CONNECTIONS: usize = 1_000_000;

/// What the senders have measured.
#[derive(Debug, Default)]
pub(super) struct Measured(BTreeMap<u64, OwnThreshold>);

impl Measured {
    /// Answers what follows the word `measure`.
    pub(super) fn measure(&mut self, words: &mut Words<'_>) -> Result<String, Fault> {
        let connection = words.whole("connection")?;
        let at = Micros(words.whole("time")?);
        let acked = Segments(words.whole("segments acknowledged")?);
        let rtt = Micros(words.whole("round trip")?);
        if self.0.len() >= MOST_CONNECTIONS {
            return Err(Fault::new(format!("there are {MOST_CONNECTIONS} connections already")));
        }
        let own = self.0.entry(connection).or_default();
        Ok(own.on_ack(at, acked, rtt).map_or_else(
            || "none".to_owned(),
            |threshold| format!("{} {}", threshold.0, if own.settled() { "settled" } else { "open" }),
        ))
    }
}

/// Answers what follows the word `paced`.
pub(super) fn paced(words: &mut Words<'_>) -> Result<String, Fault> {
    let (target, sent) = (words.whole("target")?, words.whole("segments sent")?);
    let (rtt_s, hz) = (words.positive("round trip")?, words.positive("clock's frequency")?);
    let round = paced_round(target, sent, rtt_s, hz, words.positive("rate")?);
    Ok(format!("{} {}", round.segments, round.spacing_s))
}

#[cfg(test)]
mod tests {
    use crate::oracle::Oracle;

    fn answered(question: &str) -> String {
        Oracle::default().answer(question).unwrap()
    }

    #[test]
    fn windows_are_those_of_the_contract() {
        assert_eq!(answered("grow 1 burst 4 32 1 100000 1"), "8");
        assert_eq!(answered("grow 1 burst 8 32 1.0 100000 1"), "4");
        assert_eq!(answered("grow 1 burst 4 32 8 100000 1"), "8.75");
        assert_eq!(answered("grow 1 dbc 2 100 100 1"), "standard");
        assert_eq!(answered("grow 1 dbc 2 1 100 1"), "2");
        assert_eq!(answered("grow 1 standard 1 100 1"), "standard");
    }

    #[test]
    fn byte_counting_counts_two_segments_and_burst_an_acknowledgement() {
        assert_eq!(answered("grow 1 dbc 2 1 100 2"), "3");
        assert_eq!(answered("grow 1 dbc 2 1 100 9"), "3");
        assert_eq!(answered("grow 1 burst 4 32 8 100000 2"), "8.75");
    }

    #[test]
    fn another_end_of_the_mice_is_for_comparisons() {
        assert_eq!(answered("grow 1 burst 4 40 1 100000 1"), "10");
        assert_eq!(answered("grow 1 burst 4 24 24 100000 1"), "standard");
        assert_eq!(answered("grow 1 burst 4 32 32 100000 1"), "standard");
    }

    #[test]
    fn parameters_out_of_range_are_faults() {
        for (question, reason) in [
            ("grow 1 burst 0 32 1 64 1", "f is `0`, not a whole number in range"),
            ("grow 1 dbc 0 1 64 1", "dmax is `0`, not a whole number in range"),
            ("grow 1 dbc 2 1 64 0", "segments covered is `0`, not a whole number in range"),
            ("grow 1 dbc 2 1e9 64 1", "window is `1000000000`, more than any sender's"),
        ] {
            assert_eq!(Oracle::default().answer(question).unwrap_err().to_string(), reason);
        }
    }

    #[test]
    fn a_train_of_acknowledgements_gives_a_threshold_and_a_second_one_settles_it() {
        let mut oracle = Oracle::default();
        let mut last = |begin: u64, gap: u64| {
            let ask = |n| oracle.answer(&format!("measure 1 {} 1 580000", begin + n * gap)).unwrap();
            (0..4).map(ask).filter(|answer| answer != "none").last()
        };
        assert_eq!(last(600_000, 2_730).as_deref(), Some("212 open"));
        assert_eq!(last(1_300_000, 2_600).as_deref(), Some("212 settled"));
        assert_eq!(last(2_000_000, 2_600), None);
    }

    #[test]
    fn a_paced_round_is_the_papers() {
        assert_eq!(Oracle::default().answer("paced 387 3 0.06 500 12916").unwrap(), "30 0.002");
        let fault = Oracle::default().answer("paced 387 3 0 500 12916").unwrap_err().to_string();
        assert_eq!(fault, "round trip is `0`, not a positive number");
    }
}
