//! What both ends say of themselves in their SYNs.

use crate::wire::segment::{Flags, Segment};

/// A sender's own SYN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Syn {
    /// Initial sequence number.
    pub(crate) isn: u32,
    /// It answered another SYN, so an option in it was in that one, too.
    pub(crate) is_answer: bool,
    /// It requests or grants ECN by the flags of RFC 3168. Accurate ECN (RFC 9768) is requested by the same flags and granted by others.
    pub(crate) ecn: bool,
    /// Both ends agreed on RFC 3168. Otherwise ECE and CWR may be bits of a counter.
    pub(crate) ecn_agreed: bool,
    /// Its options; `None` where the snap length cut them.
    pub(crate) offer: Option<Offer>,
}

/// Options of a SYN.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Offer {
    /// Maximum segment size it accepts.
    pub(crate) mss: Option<u16>,
    /// Shift of the windows it announces.
    pub(crate) window_scale: Option<u8>,
    /// It takes SACK blocks.
    pub(crate) sack_permitted: bool,
    /// It uses timestamps.
    pub(crate) timestamps: bool,
}

impl Syn {
    /// What `segment`, a SYN, says.
    pub(crate) fn of(segment: &Segment) -> Self {
        let options = &segment.options;
        let [answers, echo, reduced] = [Flags::ACK, Flags::ECE, Flags::CWR].map(|flag| segment.flags.has(flag));
        Self {
            isn: segment.seq,
            is_answer: answers,
            ecn: echo && reduced != answers,
            ecn_agreed: echo && answers && !reduced,
            offer: (!options.truncated).then_some(Offer {
                mss: options.mss,
                window_scale: options.window_scale,
                sack_permitted: options.sack_permitted,
                timestamps: options.timestamps.is_some(),
            }),
        }
    }
}

/// The shift of the windows that a sender announces after its SYN (RFC 7323 section 2.2): that of its own SYN where both
/// SYNs had one, none where one of them had none.
pub(crate) fn window_shift(own: Option<Syn>, peer: Option<Syn>) -> Option<u8> {
    let shift = |syn: Option<Syn>| syn.and_then(|syn| syn.offer).map(|offer| offer.window_scale);
    match (shift(own), shift(peer)) {
        (Some(None), _) | (_, Some(None)) => Some(0),
        (Some(shift), Some(_)) => shift,
        // An answer has the option only where the SYN had it.
        (Some(shift), None) => shift.filter(|_| own.is_some_and(|syn| syn.is_answer)),
        (None, _) => None,
    }
}
