//! One packet of a sender, one acknowledgement to it, and its state: filled once, and read by recovery and by the evidence.

use spand_proto::units::{Micros, Timestamp, Window};

use crate::types::SampleReason;

/// One packet with payload from the sender.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Sent {
    /// Payload never seen before, in bytes.
    pub(crate) new_bytes: u32,
    /// Payload sent before, in bytes.
    pub(crate) retransmitted_bytes: u32,
    /// The payload is a whole multiple of the segment size: the application had at least that much to send.
    pub(crate) full_sized: bool,
    /// The application's write did not end with it (no PSH): more data was queued.
    pub(crate) more: bool,
    /// Something marked lost waits for its retransmission.
    pub(crate) repeats_wait: bool,
    /// Bytes in the network after this packet: outstanding, less SACKed, less marked lost, plus retransmitted (RFC 6675).
    pub(crate) pipe: u64,
    /// Highest sequence sent less highest acknowledgement, after this packet, in bytes.
    pub(crate) flight: u64,
    /// The peer's window in bytes from the highest acknowledgement, scaled.
    pub(crate) peer_window: Option<u64>,
    /// Time since the last acknowledgement towards this sender.
    pub(crate) since_ack: Option<Micros>,
    /// Its sender's clock, where it carries one (RFC 7323).
    pub(crate) stamp: Option<u32>,
}

impl Sent {
    /// Whether the application had no more data after it: it is smaller than `mss`, though the peer's window had room for that.
    pub(crate) fn ran_dry(&self, mss: u32) -> bool {
        let has_room = |window: u64| window >= self.flight.saturating_add(u64::from(mss));
        self.new_bytes > 0 && !self.full_sized && self.peer_window.is_none_or(has_room)
    }
}

/// The packet sent last among those newly acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Newest {
    /// When it was sent.
    pub(crate) sent_at: Timestamp,
    /// It was a retransmission.
    pub(crate) again: bool,
}

/// What an acknowledgement did to `SND.UNA`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum AckKind {
    /// It advanced.
    Advance,
    /// It did not, and is a duplicate or has new SACK blocks (RFC 5681 section 2, RFC 6675).
    Duplicate,
    /// It did not, and carries data of the peer or a window update.
    #[default]
    Other,
}

/// One acknowledgement towards the sender, and what is outstanding after it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckSample {
    /// When it passed the tap.
    pub(crate) at: Timestamp,
    /// When an answer of the sender can pass the tap at the earliest.
    pub(crate) answer_at: Timestamp,
    /// What it did to the cumulative acknowledgement.
    pub(crate) kind: AckKind,
    /// `SND.UNA`.
    pub(crate) una: u64,
    /// `SND.NXT`.
    pub(crate) nxt: u64,
    /// Bytes by which `SND.UNA` advanced, without those that the capture missed.
    pub(crate) advanced: u64,
    /// Its first SACK block reports a duplicate segment (RFC 2883).
    pub(crate) dsack: bool,
    /// It carries an ECN echo.
    pub(crate) ece: bool,
    /// It shows that a retransmission is lost.
    pub(crate) lost_again: bool,
    /// Bytes marked lost, including those retransmitted; 0 without SACK.
    pub(crate) lost: u64,
    /// Of them, bytes retransmitted.
    pub(crate) repeated: u64,
    /// Highest sequence sent less highest acknowledgement, in bytes.
    pub(crate) flight: u64,
    /// The round-trip time that it measured: of the newest segment delivered.
    pub(crate) rtt: Option<Micros>,
    /// The newest packet delivered, if it was sent later than all delivered before.
    pub(crate) newest: Option<Newest>,
    /// Bytes acknowledged or SACKed so far, each once (`tp->delivered`).
    pub(crate) delivered: u64,
}

/// State of a sender, as far as the tap shows it (`enum tcp_ca_state`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum CaState {
    /// `CA_Open`.
    #[default]
    Open,
    /// Something is marked lost and not yet retransmitted: a sender that paces is in `CA_Recovery` already.
    Due,
    /// `CA_CWR`, until data sent after the point is acknowledged.
    Cwr,
    /// `CA_Recovery`.
    Recovery,
    /// `CA_Loss`.
    Loss {
        /// Something was acknowledged since the timeout.
        advanced: bool,
    },
}

impl CaState {
    /// Whether nothing was reduced, as far as is seen.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Due)
    }

    /// Whether a loss is being repaired.
    pub(crate) fn is_repairing(self) -> bool {
        matches!(self, Self::Recovery | Self::Loss { .. })
    }

    /// Whether a timeout is being repaired.
    pub(crate) fn is_loss(self) -> bool {
        matches!(self, Self::Loss { .. })
    }

    /// Whether a reduction is under way that no timeout began.
    pub(crate) fn is_reducing(self) -> bool {
        matches!(self, Self::Cwr | Self::Recovery)
    }
}

/// How the sender detected congestion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LossKind {
    /// A retransmission after duplicate or selective acknowledgements: one per window of data (RFC 6675 section 5).
    FastRetransmit,
    /// A retransmission after silence (RFC 6298).
    Timeout,
    /// A tail loss probe that repaired a loss, reported at the acknowledgement that shows it (RFC 8985 section 7.4).
    TailLossProbe,
    /// An ECN echo: one per window of data (RFC 3168 section 6.1.2).
    Ecn,
}

/// A sample at a loss or an end; the caller adds sender and network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SenderSample {
    /// The value.
    pub(crate) window: Window,
    /// Its reason.
    pub(crate) reason: SampleReason,
    /// Its connection had lost something before.
    pub(crate) reduced_before: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_cut_by_the_peers_window_is_not_app_limited() {
        let sent = Sent { new_bytes: 500, flight: 9_500, peer_window: Some(10_000), ..Sent::default() };
        assert!(!sent.ran_dry(1_000));
        assert!(Sent { peer_window: Some(10_500), ..sent }.ran_dry(1_000));
        assert!(!Sent { peer_window: None, full_sized: true, ..sent }.ran_dry(1_000));
    }
}
