//! Why a network is left as plain TCP: a closed list with stable names.

use serde::{Serialize, Serializer};
use spand_proto::start::RefusalReason;
use strum::{Display, IntoStaticStr};

/// Why the policy leaves a network alone.
#[derive(Clone, Copy, Debug, Display, Eq, IntoStaticStr, PartialEq)]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// It overlaps an excluded prefix.
    Excluded,
    /// It is not inside any included prefix.
    NotIncluded,
    /// Advice is paused on this host.
    Paused,
    /// The lifetime of the advice is over.
    Expired,
    /// The start function gave no start.
    #[strum(transparent)]
    Refused(RefusalReason),
    /// It is held out in this time slot, to be compared with.
    HeldOut,
    /// The mode is `observe`: nothing is applied.
    Observe,
    /// The start is what the host does anyway.
    SameAsDefault,
}

impl Reason {
    /// Its stable name in counters and output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// One sentence for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Excluded => "the network overlaps a prefix in destinations.exclude",
            Self::NotIncluded => "the network is not inside any prefix in destinations.include",
            Self::Paused => "advice is paused on this host: `spand-agent resume` takes it up again",
            Self::Expired => "the lifetime of the advice is over and the gateway did not renew it",
            Self::Refused(_) => "the start function gave no start",
            Self::HeldOut => "the network is held out in this time slot, so that advised ones can be compared with it",
            Self::Observe => "the mode is observe: everything is computed and nothing applied",
            Self::SameAsDefault => "the start is the window this host begins with anyway",
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
