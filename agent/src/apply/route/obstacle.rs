//! Why a network gets no route of ours: a closed list with stable names.

use strum::{Display, IntoStaticStr};

/// What prevents a route.
#[derive(Clone, Copy, Debug, Display, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "snake_case")]
pub enum Obstacle {
    /// Nothing leads to the network.
    NoRoute,
    /// The covering route has several next hops.
    Multipath,
    /// The covering route has no gateway: the network is on the link.
    OnLink,
    /// A route of someone else is for the same network, or the covering one has an initial window already.
    Administrator,
    /// Routes of someone else lie inside the network.
    MoreSpecific,
    /// Rules other than the kernel's own decide which table is looked up.
    PolicyRouting,
    /// The covering route has something that cannot be copied faithfully.
    NotCopyable,
    /// The covering route's link is down.
    LinkDown,
    /// Routes, rules or links changed a moment ago.
    Settling,
    /// Someone removed or changed our route: we do not come back.
    SteppedBack,
    /// As many routes as `limits.applied` allows are in force.
    NoRoom,
    /// The kernel refused it.
    Kernel,
    /// The ledger could not be written, and nothing is changed without it.
    Ledger,
    /// The supervising process is not running.
    Unguarded,
}

impl Obstacle {
    /// Its stable name in counters and output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// One sentence for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NoRoute => "no route of table main leads to the network",
            Self::Multipath => "the covering route has several next hops, and a copy of one would move traffic",
            Self::OnLink => "the network is on the link, without a gateway to copy",
            Self::Administrator => {
                "a route for this network that is not ours, or an initcwnd on the covering one, is already set: ours \
                 stays away"
            }
            Self::MoreSpecific => "routes of someone else lie inside the network",
            Self::PolicyRouting => {
                "policy rules of someone else choose the table, and a route could change their choice"
            }
            Self::NotCopyable => "the covering route has a property that a copy cannot keep",
            Self::LinkDown => "the covering route's link is down",
            Self::Settling => "routes, rules or links changed a moment ago: ours comes back when they stand still",
            Self::SteppedBack => "someone removed or changed our route: it stays away until the agent is started again",
            Self::NoRoom => "limits.applied routes are in force already",
            Self::Kernel => "the kernel refused the route; see the log",
            Self::Ledger => "the ledger could not be written, and nothing is changed without it",
            Self::Unguarded => "the supervising process is not running, and routes must not outlive the agent",
        }
    }
}
