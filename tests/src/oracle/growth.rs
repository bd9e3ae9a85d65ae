//! `grow CONNECTION RULE PARAMETERS.. WINDOW SSTHRESH COVERED`: the window, in segments, of a sender in slow start before its
//! first loss after an acknowledgement of COVERED segments; `standard` where the rule leaves growth to standard TCP.
//!
//! Rules: `standard`, `dbc DMAX`, `burst F MICE`. The window has as many digits as it needs to come back unchanged.

use std::num::NonZeroU32;

use spand_proto::growth::{GrownWindow, Growth, MICE_SEGMENTS, burst_increment};
use spand_proto::units::Segments;

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
}
