//! A transmission of what was sent before, and whether acknowledgements or the timer asked for it.

use spand_proto::units::Micros;

/// Part of our own timeout after which a silence counts as one: the tap's round trip is the shorter, and clocks are coarse.
const TIMEOUT_PERCENT: u64 = 75;
/// Part of our own timeout that no answer takes, seen from a tap some milliseconds away.
const ANSWER_PART: u64 = 16;

/// A transmission of bytes below the highest sequence sent, no copy, probe of a zero window or keep-alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repeat {
    /// Its first position and the one after its last.
    pub(crate) start: u64,
    /// Position after its last byte.
    pub(crate) end: u64,
    /// `SND.UNA` and `SND.NXT`.
    pub(crate) una: u64,
    /// Highest position sent.
    pub(crate) nxt: u64,
    /// Bytes SACKed above `una`.
    pub(crate) sacked: u64,
    /// Segment size, where known.
    pub(crate) mss: u64,
    /// The bytes were never seen before: lost before the tap.
    pub(crate) unseen: bool,
    /// How they stood just before.
    pub(crate) standing: Standing,
    /// Time since they were last sent.
    pub(crate) since_sent: Option<Micros>,
    /// Time since the last acknowledgement.
    pub(crate) since_ack: Option<Micros>,
    /// The retransmission timeout.
    pub(crate) timeout: Micros,
    /// Both ends agreed on SACK, so the sender may probe its tail.
    pub(crate) sack_permitted: bool,
    /// The sender paces: what an acknowledgement asks for leaves later.
    pub(crate) paced: bool,
    /// Its timestamp value.
    pub(crate) ts_value: Option<u32>,
}

/// What is known of bytes when they are repeated.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Standing {
    /// They were sent once.
    #[default]
    SentOnce,
    /// They were repeated before.
    Repeated,
    /// They count as lost, and were not repeated since they do.
    Lost,
}

impl Repeat {
    /// Nothing but the timer asks for it: what was repeated is still on its way as far as acknowledgements tell, none of which
    /// advanced since the timer ran out where `unheard`. Duplicates do not keep the timer from running out (`tcp_rearm_rto`).
    pub(super) fn has_no_reason(&self, unheard: bool) -> bool {
        let waited = if self.sack_permitted { self.timeout } else { self.patience() };
        let quiet = !self.sack_permitted || self.since_ack.is_none_or(|since| since.0 >= self.timeout.0 / ANSWER_PART);
        let waited = quiet && self.since_sent.is_some_and(|since| since >= waited);
        self.standing == Standing::Repeated && (waited || unheard)
    }

    /// Without SACK fewer duplicates than the sender waits for start no fast retransmit, and do not keep the timer from running out.
    pub(super) fn is_after_few(&self, duplicates: u16, threshold: u16) -> bool {
        let few = !self.sack_permitted && duplicates < threshold;
        few && self.since_sent.is_some_and(|since| since >= self.patience())
    }

    /// Without SACK a sender repeats at an acknowledgement, or when its timer runs out, which duplicates do not keep it from: it may
    /// wait for more of them than the tap knows of.
    pub(super) fn is_unasked(&self) -> bool {
        let quiet = self.since_ack.is_none_or(|since| since.0 >= self.timeout.0 / ANSWER_PART);
        !self.sack_permitted && !self.paced && quiet && self.since_sent.is_some_and(|since| since >= self.patience())
    }

    fn patience(&self) -> Micros {
        Micros(self.timeout.0 * TIMEOUT_PERCENT / 100)
    }

    /// Nothing was heard, and this was not sent, for about a timeout.
    pub(super) fn is_after_silence(&self) -> bool {
        let patience = self.patience();
        let heard_nothing = self.since_ack.is_none_or(|since| since >= patience);
        heard_nothing && self.since_sent.is_some_and(|since| since >= patience)
    }
}
