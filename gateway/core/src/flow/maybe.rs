//! Values that may not be known, in no more room than known ones: an `Option` of eight bytes takes sixteen, and a table holds
//! millions of them.

use spand_proto::units::{Micros, Timestamp};

/// A time, where known. The engine believes none as late as the last one there is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MaybeTime(u64);

impl MaybeTime {
    pub(crate) const NONE: Self = Self(u64::MAX);

    pub(crate) const fn some(at: Timestamp) -> Self {
        Self(at.0)
    }

    pub(crate) fn get(self) -> Option<Timestamp> {
        (self != Self::NONE).then_some(Timestamp(self.0))
    }
}

impl Default for MaybeTime {
    fn default() -> Self {
        Self::NONE
    }
}

/// A position in a sequence or a number, where known; the last one there is is never reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MaybeCount(u64);

impl MaybeCount {
    pub(crate) const NONE: Self = Self(u64::MAX);

    pub(crate) const fn some(count: u64) -> Self {
        Self(count)
    }

    pub(crate) fn get(self) -> Option<u64> {
        (self != Self::NONE).then_some(self.0)
    }

    pub(crate) fn is_some(self) -> bool {
        self != Self::NONE
    }
}

impl Default for MaybeCount {
    fn default() -> Self {
        Self::NONE
    }
}

/// A round trip or another time between packets, where known: up to an hour, which none of them reaches
/// ([`super::rtt::round_trip`]).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MaybeMicros(u32);

impl MaybeMicros {
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn some(time: Micros) -> Self {
        Self(u32::try_from(time.0).unwrap_or(u32::MAX).min(u32::MAX - 1))
    }

    pub(crate) fn get(self) -> Option<Micros> {
        (self != Self::NONE).then_some(Micros(u64::from(self.0)))
    }

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }
}

impl Default for MaybeMicros {
    fn default() -> Self {
        Self::NONE
    }
}

impl From<Option<Micros>> for MaybeMicros {
    fn from(time: Option<Micros>) -> Self {
        time.map_or(Self::NONE, Self::some)
    }
}
