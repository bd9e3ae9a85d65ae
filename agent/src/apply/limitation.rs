//! What an apply method cannot do of `docs/explain/definitions.md` ("The start").

use serde::Serialize;
use strum::IntoStaticStr;

/// Something that an apply method cannot do.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Limitation {
    /// Nothing is applied at all.
    Everything,
    /// No check of the connection's own round trip.
    HandshakeRtt,
    /// The size of a transfer is not known.
    TransferSize,
    /// No comparison by connection.
    ControlGroup,
    /// No retreat on a loss in the first flight.
    Retreat,
    /// The window leaves as one burst.
    Pacing,
    /// The slow-start threshold stays unset.
    Threshold,
    /// The lease bounds each start, not their sum.
    Budget,
    /// Sockets that should be left alone cannot be distinguished.
    Exemptions,
    /// Only the first transfer of a connection is started.
    Restart,
    /// The kernel sends the first ten segments of a connection at once.
    FirstTen,
    /// What is paced leaves at the kernel's own rate.
    Rate,
    /// Transfers that begin later on a connection are not detected.
    LaterFlights,
    /// Slow start goes by the kernel's own rule; of no account where no other is chosen.
    Growth,
    /// Every start is paced at the share; of no account where no other shape is chosen.
    Shape,
}

impl Limitation {
    /// Limitations of route metrics.
    pub const ROUTE: [Self; 10] = [
        Self::HandshakeRtt,
        Self::TransferSize,
        Self::ControlGroup,
        Self::Retreat,
        Self::Pacing,
        Self::Threshold,
        Self::Budget,
        Self::Exemptions,
        Self::Growth,
        Self::Shape,
    ];

    /// Limitations where nothing is applied.
    pub const DRY_RUN: [Self; 3] = [Self::Everything, Self::Growth, Self::Shape];

    /// Limitations of our congestion controls.
    pub const BPF_STAY: [Self; 1] = [Self::FirstTen];

    /// Limitations when connections are handed over to the host's own congestion control.
    pub const BPF_HAND_OVER: [Self; 6] =
        [Self::FirstTen, Self::Rate, Self::LaterFlights, Self::Restart, Self::Growth, Self::Shape];

    /// Limitations of socket options.
    pub const BPF_SOCKOPS: [Self; 7] =
        [Self::FirstTen, Self::Rate, Self::LaterFlights, Self::Restart, Self::Threshold, Self::Growth, Self::Shape];

    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// One sentence for people.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Everything => "nothing is changed: set `apply` to route or bpf",
            Self::HandshakeRtt => "the round trip of a connection's handshake is not compared with the estimate's",
            Self::TransferSize => {
                "every transfer is taken to be of policy.service_bytes, or long where that is not set"
            }
            Self::ControlGroup => "connections are not held out one by one: whole networks are, in time slots",
            Self::Retreat => "a lost first flight takes no advice back here",
            Self::Pacing => {
                "the window leaves as one burst: outside paper mode it is bounded by route.burst_fraction and \
                 route.burst_cap_segments"
            }
            Self::Threshold => "the slow-start threshold is not set: growth goes on as in plain TCP",
            Self::Budget => "the gateway's lease bounds each start, but not the sum of concurrent ones",
            Self::Exemptions => {
                "MPTCP, sockets with a congestion control of their own, and connections whose SYN was retransmitted cannot be \
                 distinguished"
            }
            Self::Restart => {
                "only a connection's first transfer is started: after an idle time it begins as in plain TCP, and sizes stated \
                 later have no effect"
            }
            Self::FirstTen => {
                "Linux never paces a connection's first ten segments: they leave as one burst, as in plain TCP"
            }
            Self::Rate => {
                "what is paced leaves at the kernel's own rate, up to twice the window in a round trip (BBR: about three times), \
                 and the connection stays paced"
            }
            Self::Growth => {
                "start.growth has no effect: that needs apply = \"bpf\" with bpf.variant = \"stay\" on a kernel that takes congestion \
                 controls of ours"
            }
            Self::Shape => {
                "start.shape has no effect: that needs apply = \"bpf\" with bpf.variant = \"stay\"; starts are the share's window, paced"
            }
            Self::LaterFlights => {
                "a connection counts in the budget for two round trips from its handshake: what leaves later, as a TLS server's \
                 answer, does not"
            }
        }
    }
}
