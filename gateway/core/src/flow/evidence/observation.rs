//! Defines what the evidence of a sender takes: packets sent, acknowledgements and losses, by their positions in the sequence space.

use spand_proto::units::{Micros, Timestamp, Window};

use crate::types::SampleReason;

/// One packet with payload from the sender.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sent {
    /// Payload never seen before, in bytes.
    pub new_bytes: u32,
    /// Payload sent before, in bytes.
    pub retransmitted_bytes: u32,
    /// The payload is a whole multiple of the segment size: the application had at least that much to send.
    pub full_sized: bool,
    /// The application's write did not end with it (no PSH): more data was queued.
    pub more: bool,
    /// Something marked lost waits for its retransmission.
    pub repeats_wait: bool,
    /// Bytes in the network after this packet: outstanding, less SACKed, less marked lost, plus retransmitted (RFC 6675).
    pub pipe: u64,
    /// Highest sequence sent less highest acknowledgement, after this packet, in bytes.
    pub flight: u64,
    /// The peer's window in bytes from the highest acknowledgement, scaled.
    pub peer_window: Option<u64>,
    /// Time since the last acknowledgement towards this sender.
    pub since_ack: Option<Micros>,
    /// Time since the lowest outstanding segment was sent last.
    pub since_oldest: Option<Micros>,
    /// Its sender's clock, where it carries one (RFC 7323).
    pub stamp: Option<u32>,
}

impl Sent {
    /// Whether the application had no more data after it: it is smaller than `mss`, though the peer's window had room for that.
    pub(super) fn ran_dry(&self, mss: u32) -> bool {
        let has_room = |window: u64| window >= self.flight.saturating_add(u64::from(mss));
        self.new_bytes > 0 && !self.full_sized && self.peer_window.is_none_or(has_room)
    }
}

/// The packet sent last among those newly acknowledged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Newest {
    /// When it was sent.
    pub sent_at: Timestamp,
    /// It was a retransmission.
    pub again: bool,
}

/// One acknowledgement towards the sender.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Acked {
    /// Bytes in the network after it; see [`Sent::pipe`].
    pub pipe: u64,
    /// Highest sequence sent less highest acknowledgement, after it, in bytes.
    pub flight: u64,
    /// The round-trip time that it measured: of the newest segment delivered.
    pub rtt: Option<Micros>,
    /// The newest packet delivered, if it was sent later than all delivered before.
    pub newest: Option<Newest>,
    /// Bytes acknowledged or SACKed so far, each once.
    pub delivered_bytes: u64,
    /// Something marked lost is or waits to be retransmitted.
    pub repairs: bool,
}

/// How the sender detected congestion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LossKind {
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
pub struct SenderSample {
    /// The value.
    pub window: Window,
    /// Its reason.
    pub reason: SampleReason,
    /// Its connection had lost something before.
    pub reduced_before: bool,
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
