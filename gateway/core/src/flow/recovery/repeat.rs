//! A retransmission, and whether acknowledgements or the timer caused it.

use spand_proto::units::Micros;

/// Part of our timeout after which silence counts as one: the tap's round trip is shorter, and clocks are coarse.
const TIMEOUT_PERCENT: u64 = 75;
/// Part of our timeout within which an answer comes, seen from a tap some milliseconds away.
const ANSWER_PART: u64 = 16;

/// A transmission below the highest sequence sent that is no copy, window probe or keep-alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    /// Its first position.
    pub(crate) start: u64,
    /// Position after its last byte.
    pub(crate) end: u64,
    /// `SND.UNA`.
    pub(crate) una: u64,
    /// `SND.NXT`.
    pub(crate) nxt: u64,
    /// Bytes SACKed above `una`.
    pub(crate) sacked: u64,
    /// Segment size, where known.
    pub(crate) mss: u64,
    /// The bytes were not seen before: lost before the tap.
    pub(crate) unseen: bool,
    /// Their state just before.
    pub(crate) standing: Standing,
    /// Time since they were last sent.
    pub(crate) since_sent: Option<Micros>,
    /// Time since the last acknowledgement.
    pub(crate) since_ack: Option<Micros>,
    /// The retransmission timeout.
    pub(crate) timeout: Micros,
    /// Both ends agreed on SACK, so the sender may send tail loss probes.
    pub(crate) sack_permitted: bool,
}

/// State of bytes when they are retransmitted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Standing {
    /// Sent once.
    #[default]
    SentOnce,
    /// Retransmitted before.
    Repeated,
    /// Marked lost, and not retransmitted since.
    Lost,
}

impl Repeat {
    /// Only the timer explains it: the acknowledgements do not show that the retransmission was lost; with `no_advance` none advanced
    /// since the timeout. Duplicates do not restart the timer (`tcp_rearm_rto`).
    pub(super) fn is_by_timer_alone(&self, no_advance: bool) -> bool {
        let waited = if self.sack_permitted { self.timeout } else { self.least_timeout() };
        let quiet = !self.sack_permitted || self.since_ack.is_none_or(|since| since.0 >= self.timeout.0 / ANSWER_PART);
        let waited = quiet && self.since_sent.is_some_and(|since| since >= waited);
        self.standing == Standing::Repeated && (waited || no_advance)
    }

    fn least_timeout(&self) -> Micros {
        Micros(self.timeout.0 * TIMEOUT_PERCENT / 100)
    }

    /// No acknowledgement came, and this was not sent, for about a timeout.
    pub(super) fn is_after_silence(&self) -> bool {
        let least_timeout = self.least_timeout();
        let no_ack = self.since_ack.is_none_or(|since| since >= least_timeout);
        no_ack && self.since_sent.is_some_and(|since| since >= least_timeout)
    }
}
