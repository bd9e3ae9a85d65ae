//! State of SACK, losses and retransmissions. Few connections need it, so it is allocated on demand: at most one per sender,
//! bounded as senders are.

use spand_proto::units::Timestamp;

/// Bytes above the cumulative acknowledgement that arrived, are lost or were retransmitted, and what keeps them from being
/// counted twice.
#[derive(Clone, Debug)]
pub(super) struct Repairs {
    /// Bytes in segments marked SACKed.
    pub(super) sacked: u64,
    /// Bytes that duplicate acknowledgements count as arrived, without SACK.
    pub(super) duplicated: u64,
    /// Bytes in segments marked lost and not SACKed.
    pub(super) lost: u64,
    /// Bytes ever marked lost; lost retransmissions count again.
    pub(super) ever_lost: u64,
    /// Those of them before the transfer under way.
    pub(super) settled_lost: u64,
    /// Bytes in segments retransmitted and not SACKed since.
    pub(super) retransmitted: u64,
    /// Position below which everything not SACKed is marked lost already.
    pub(super) lost_below: u64,
    /// Position after the highest byte SACKed.
    pub(super) sacked_to: u64,
    /// Recent SACK blocks, newest first; unused ones are empty.
    pub(super) blocks: [(u64, u64); 3],
    /// Borders without room since the last [`super::Scoreboard::take_unsplit`].
    pub(super) unsplit: u32,
    /// Lower bound of the send times of retransmissions that neither arrived nor are marked lost again.
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
