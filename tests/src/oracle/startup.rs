//! The start of Aron and Druschel:
//!
//! - `measure CONNECTION TIME ACKED RTT`, in whole microseconds and segments, with each acknowledgement of new segments: answered
//!   `none`, or with the threshold measured so far and `open` or `settled`.
//! - `paced TARGET SENT RTT HZ RATE`, in segments, seconds and segments per second: answered with how many segments a paced slow
//!   start sends and the seconds between two of them.

use std::collections::BTreeMap;

use spand_proto::growth::threshold::OwnThreshold;
use spand_proto::timer::paced_round;
use spand_proto::units::{Micros, Segments};

use super::line::{Fault, Words};

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
