//! Reasons for which something is ignored.

use strum::{IntoStaticStr, VariantArray};

/// Why a frame, a segment or a sample was not used. The names are stable: they are metric labels and table rows.
#[derive(Clone, Copy, Debug, Eq, Hash, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum Ignored {
    /// Frame: a link type that is not understood.
    LinkType,
    /// Frame: neither IPv4 nor IPv6 inside (ARP, LLDP, …).
    NotIp,
    /// Frame: IP, but not TCP.
    NotTcp,
    /// Frame: GRE or MPLS in IP, and no tunnel of this kind is configured; not looked into.
    TunnelGreNotConfigured,
    /// Frame: GRE or MPLS in IP, and its outer addresses are not both endpoints of one configured tunnel; not looked into.
    TunnelGreUnknownEndpoint,
    /// Frame: VXLAN, and no tunnel of this kind is configured; not looked into.
    TunnelVxlanNotConfigured,
    /// Frame: VXLAN, and its outer addresses are not both endpoints of one configured tunnel; not looked into.
    TunnelVxlanUnknownEndpoint,
    /// Frame: Geneve, and no tunnel of this kind is configured; not looked into.
    TunnelGeneveNotConfigured,
    /// Frame: Geneve, and its outer addresses are not both endpoints of one configured tunnel; not looked into.
    TunnelGeneveUnknownEndpoint,
    /// Frame: GTP-U, and no tunnel of this kind is configured; not looked into.
    TunnelGtpNotConfigured,
    /// Frame: GTP-U, and its outer addresses are not both endpoints of one configured tunnel; not looked into.
    TunnelGtpUnknownEndpoint,
    /// Frame: IP in IP, Teredo or AYIYA, and no tunnel of this kind is configured; not looked into.
    TunnelIpInIpNotConfigured,
    /// Frame: IP in IP, Teredo or AYIYA, and its outer addresses are not both endpoints of one configured tunnel; not looked into.
    TunnelIpInIpUnknownEndpoint,
    /// Frame: a fragment of an IP packet that gives its segment with another one, if at all.
    Fragment,
    /// IP packet: given up in fragments because there were more such packets, or parts of it, than are kept.
    FragmentNoRoom,
    /// IP packet: a fragment of it did not come within 30 s, or before the end of the capture.
    FragmentTimeout,
    /// IP packet: its fragments overlap or contradict each other.
    FragmentOverlap,
    /// IP packet: a fragment ends beyond the longest packet that there can be.
    FragmentTooLarge,
    /// Frame: the snap length cut a header.
    Truncated,
    /// Frame: headers that contradict themselves.
    Malformed,
    /// Frame: more layers of encapsulation than are followed.
    TooDeep,
    /// Segment: neither end lies inside the organisation.
    NotInternal,
    /// Segment: of a connection to the gateway's own listeners.
    OwnTraffic,
    /// Segment: a second copy of the same packet from the mirror port.
    DuplicateCopy,
    /// Segment: of a connection that is left alone under overload.
    Shed,
    /// Segment: no room in the flow table.
    NoRoom,
    /// Segment: its time was before the one seen last; clamped to it.
    TimeBackwards,
    /// Segment: its time was more than a day after the one seen last, and no second frame bore it out; clamped.
    TimeForwards,
    /// Segment: data or an acknowledgement beyond any window that its receiver announced, or numbers far from all that the
    /// connection sent and acknowledged; kept from the replica.
    BeyondWindow,
    /// Segment: a reset whose sequence number its receiver does not expect; it ends the connection only where nothing more comes.
    ResetNotExpected,
    /// Segment: a SYN on a connection that goes on; where an answer acknowledges it, the next connection takes it after all.
    SynNotAnswered,
    /// Round-trip time: the answer bears an earlier time than the question, or one more than two minutes later.
    Mistimed,
    /// Sample: only one direction of the connection is visible.
    OneSided,
    /// Sample: the connection was there before the capture, its window is not known yet.
    Midstream,
    /// Sample: the application, not the window, limited the sender; kept as a lower bound.
    AppLimited,
    /// Sample: the receiver's window limited the sender; kept as a lower bound.
    ReceiverLimited,
    /// Sample: a loss in slow start gives none.
    SlowStartLoss,
    /// Sample: a retransmission timeout gives none.
    Timeout,
    /// Sample: the transfer ended after a loss, which gave one already.
    EndAfterLoss,
    /// Sample: the connection was over, by the end of the capture or of the table's patience, with data outstanding.
    Unfinished,
    /// Sample: the segment size is not known.
    NoMss,
    /// Sample: a loss told while an earlier one was being repaired belongs to that one.
    LossInRecovery,
    /// Sequence range: the scoreboard or the interval count had no room to keep it apart; what rests on it is not exact.
    Inexact,
    /// Connection: the memory for segments was full, and what its senders had outstanding is kept as one from then on.
    SegmentMemory,
    /// Connection: forgotten after a short silence, since it held segments of which none was ever acknowledged.
    Unacknowledged,
    /// Round-trip time: a retransmitted segment was acknowledged (Karn's rule).
    Karn,
    /// Network: no room in the table of networks.
    NoRoomNetwork,
    /// Event: the queue was full and the oldest went.
    EventQueueFull,
    /// Advice: more pairs of hosts were told than are remembered, and the oldest went before its lifetime was over; starts
    /// between them count as not advised.
    AdviceForgotten,
    /// Congestion control: more hosts spoke than are remembered, and this one had not for longest; it is asked anew.
    NoRoomHost,
    /// Service size: its transfer was cut off with data outstanding.
    CutTransfer,
    /// Service size: more services sent than are remembered, and this one had not for longest.
    NoRoomService,
    /// Service size: its remote address gave as many in this half hour as one may.
    ServiceRemoteLimit,
    /// Service size: the engine that keeps the services had too many transfers waiting to be told of one more.
    TransferUntold,
    /// Window option: the window that the sender said at a sample is not borne out by what was in the network; the replica's
    /// counts.
    WindowOption,
}

impl Ignored {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
