//! Numbers of refusal reasons: for the programs, of networks that are left alone; from them, in the events of connections.
//!
//! The start function's own reasons have the numbers of the contract (`spand.v1.RefusalReason`).

use spand_proto::start::RefusalReason;
use strum::VariantArray;

use crate::policy::Reason;

const HELD_OUT: u8 = 100;
const OBSERVE: u8 = 101;
const OTHER: u8 = 102;
/// `REFUSED_PAUSED` of `bpf/tables.h`.
const PAUSED: u8 = 103;

/// The number of a reason.
pub(super) fn of(reason: Reason) -> u8 {
    match reason {
        Reason::Refused(reason) => number(reason),
        Reason::HeldOut => HELD_OUT,
        Reason::Observe => OBSERVE,
        Reason::Paused => PAUSED,
        Reason::Excluded | Reason::NotIncluded | Reason::Expired | Reason::SameAsDefault => OTHER,
    }
}

/// The start function's reason with this number, where it is one of those.
pub(super) fn reason(wire: u8) -> Option<RefusalReason> {
    RefusalReason::VARIANTS.iter().copied().find(|reason| number(*reason) == wire)
}

/// Whether the network as a whole is held out: its connections are controls.
pub(super) fn is_held_out(number: u8) -> bool {
    number == HELD_OUT
}

fn number(reason: RefusalReason) -> u8 {
    match reason {
        RefusalReason::NoEstimate => 1,
        RefusalReason::TooFewSamples => 2,
        RefusalReason::TooFewConnections => 3,
        RefusalReason::Stale => 4,
        RefusalReason::NoRtt => 5,
        RefusalReason::RttMismatch => 6,
        RefusalReason::MssZero => 7,
        RefusalReason::EmptyTransfer => 8,
        RefusalReason::NoOpening => 9,
    }
}
