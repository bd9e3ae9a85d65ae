//! What an acknowledgement tells recovery, and what becomes of recovery by it.

use spand_proto::units::Timestamp;

use super::Counted;
use crate::flow::shadow::observation::LossKind;

/// What an acknowledgement did to `SND.UNA`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum AckKind {
    /// It advanced.
    Advance,
    /// It stayed, and the peer says that it got something else, or more of the same (RFC 5681 section 2, RFC 6675).
    Duplicate,
    /// It stayed for another reason: data of the peer's, or a window update.
    #[default]
    Other,
}

/// What an acknowledgement tells recovery.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of one acknowledgement")]
pub(crate) struct Progress {
    /// `SND.UNA` after it.
    pub(crate) una: u64,
    /// Highest position sent.
    pub(crate) nxt: u64,
    /// When an answer of the sender passes the tap at the earliest.
    pub(crate) heard_at: Timestamp,
    /// What it did to the cumulative acknowledgement.
    pub(crate) kind: AckKind,
    /// It acknowledges cumulatively what was sent once and not SACKed before (`FLAG_ORIG_SACK_ACKED`).
    pub(crate) original: bool,
    /// Its first SACK block reports a duplicate segment (RFC 2883).
    pub(crate) dsack: bool,
    /// The timestamp it echoes.
    pub(crate) echo: Option<u32>,
    /// It carries an ECN echo.
    pub(crate) ece: bool,
    /// Bytes that count as lost after it, those repeated already among them; 0 without SACK.
    pub(crate) lost: u64,
    /// Of them, bytes repeated.
    pub(crate) repeated: u64,
    /// With it, something repeated counts as lost once more.
    pub(crate) lost_again: bool,
    /// What a sender without SACK counts.
    pub(crate) counted: Option<Counted>,
}

/// What became of recovery by an acknowledgement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Turn {
    /// A tail loss probe turned out to have repaired a loss.
    pub(crate) probe_loss: bool,
    /// The last reduction was spurious.
    pub(crate) undone: bool,
    /// The recovery point is acknowledged.
    pub(crate) ended: bool,
    /// What the sender reacts to with this acknowledgement: an ECN echo, more losses above the recovery point that it
    /// repeated already, or after a timeout the loss of a repeat.
    pub(crate) began: Option<LossKind>,
}
