//! What is known beyond plain sending: SACK, losses and what was sent again. Most connections never come to that, so it has a
//! place of its own, made when it is first needed: a sender has one at most, which bounds them as senders are.

use spand_proto::units::Timestamp;

/// Bytes above the cumulative acknowledgement that arrived, are lost or were sent again, and what keeps that from being counted
/// over and over.
#[derive(Clone, Debug)]
pub(super) struct Repairs {
    /// Bytes in segments marked SACKed.
    pub(super) sacked: u64,
    /// Bytes that duplicate acknowledgements say have arrived, where the peers did not agree on SACK.
    pub(super) duplicated: u64,
    /// Bytes in segments marked lost and not SACKed.
    pub(super) lost: u64,
    /// Bytes ever marked lost, what was sent again and is lost again anew.
    pub(super) ever_lost: u64,
    /// Those of them before the transfer under way.
    pub(super) settled_lost: u64,
    /// Bytes in segments retransmitted and not SACKed since.
    pub(super) retransmitted: u64,
    /// Position below which everything not SACKed is marked lost already.
    pub(super) lost_below: u64,
    /// Position after the highest byte SACKed.
    pub(super) sacked_to: u64,
    /// SACK blocks taken lately, newest first; empty ones where there were fewer.
    pub(super) blocks: [(u64, u64); 3],
    /// Borders that found no room since [`super::Scoreboard::take_unsplit`] last asked.
    pub(super) unsplit: u32,
    /// What was sent again, and neither arrived nor is deemed lost once more, was sent no earlier.
    pub(super) repeats_unsettled_since: Timestamp,
}

impl Repairs {
    /// Nothing to repair.
    pub(super) const NONE: Self = Self {
        sacked: 0,
        duplicated: 0,
        lost: 0,
        ever_lost: 0,
        settled_lost: 0,
        retransmitted: 0,
        lost_below: 0,
        sacked_to: 0,
        blocks: [(0, 0); 3],
        unsplit: 0,
        repeats_unsettled_since: Timestamp(u64::MAX),
    };
}

impl Default for Repairs {
    fn default() -> Self {
        Self::NONE
    }
}
