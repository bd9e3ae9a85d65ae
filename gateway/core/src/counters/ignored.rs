//! Reasons for which something is ignored.

use strum::{EnumMessage, IntoStaticStr, VariantArray};

/// Why a frame, a segment or a sample was not used. The names are stable: they are metric labels and table rows.
#[derive(Clone, Copy, Debug, EnumMessage, Eq, Hash, IntoStaticStr, Ord, PartialEq, PartialOrd, VariantArray)]
#[repr(u8)]
#[strum(serialize_all = "snake_case")]
pub enum Ignored {
    /// Frame: an unknown link type.
    LinkType,
    /// Frame: neither IPv4 nor IPv6 inside (ARP, LLDP, …).
    NotIp,
    /// Frame: IP, but not TCP.
    NotTcp,
    /// Frame: GRE or MPLS in IP, and no tunnel of this kind is configured; not decapsulated.
    TunnelGreNotConfigured,
    /// Frame: GRE or MPLS in IP, and its outer addresses are not both endpoints of one configured tunnel; not decapsulated.
    TunnelGreUnknownEndpoint,
    /// Frame: VXLAN, and no tunnel of this kind is configured; not decapsulated.
    TunnelVxlanNotConfigured,
    /// Frame: VXLAN, and its outer addresses are not both endpoints of one configured tunnel; not decapsulated.
    TunnelVxlanUnknownEndpoint,
    /// Frame: Geneve, and no tunnel of this kind is configured; not decapsulated.
    TunnelGeneveNotConfigured,
    /// Frame: Geneve, and its outer addresses are not both endpoints of one configured tunnel; not decapsulated.
    TunnelGeneveUnknownEndpoint,
    /// Frame: GTP-U, and no tunnel of this kind is configured; not decapsulated.
    TunnelGtpNotConfigured,
    /// Frame: GTP-U, and its outer addresses are not both endpoints of one configured tunnel; not decapsulated.
    TunnelGtpUnknownEndpoint,
    /// Frame: IP in IP, and no tunnel of this kind is configured; not decapsulated.
    TunnelIpInIpNotConfigured,
    /// Frame: IP in IP, and its outer addresses are not both endpoints of one configured tunnel; not decapsulated.
    TunnelIpInIpUnknownEndpoint,
    /// Frame: TZSP, and no tunnel of this kind is configured; not decapsulated.
    TunnelTzspNotConfigured,
    /// Frame: TZSP, and its outer addresses are not both endpoints of one configured tunnel; not decapsulated.
    TunnelTzspUnknownEndpoint,
    /// Frame: a fragment of an IP packet; not reassembled.
    Fragment,
    /// Frame: a header was cut by the snap length.
    Truncated,
    /// Frame: inconsistent headers.
    Malformed,
    /// Frame: too many layers of encapsulation.
    TooDeep,
    /// Segment: neither end is inside (`traffic.internal`).
    NotInternal,
    /// Segment: of a connection to the gateway's own listeners.
    OwnTraffic,
    /// Segment: a second copy of the same packet from the mirror port.
    DuplicateCopy,
    /// Segment: of a connection that is not followed under overload; a SYN still announces its start.
    Shed,
    /// Segment: no room in the flow table.
    NoRoom,
    /// Segment: earlier than the previous one; its time was clamped to that.
    TimeBackwards,
    /// Segment: more than a day later than the previous one, not confirmed by a second frame; its time was clamped.
    TimeForwards,
    /// Segment: outside every window of its connection, as where two VLANs use the same addresses; not passed to the sender model.
    BeyondWindow,
    /// Segment: a reset whose sequence number its receiver does not expect; it ends the connection only if nothing more comes.
    ResetNotExpected,
    /// Segment: a SYN on a connection that continues; if it is acknowledged, it opens the next connection after all.
    SynNotAnswered,
    /// Round-trip time: negative, or more than two minutes.
    Mistimed,
    /// Sample: only one direction of the connection is visible.
    OneSided,
    /// Sample: the connection started before the capture, its window is not known yet.
    Midstream,
    /// Sample: a packet record of the connection holds no time (pcapng Simple Packet Blocks).
    Untimed,
    /// Sample: packet records of the connection came out of order in time.
    Unordered,
    /// Sample: the application, not the window, limited the sender; kept as a lower bound.
    AppLimited,
    /// Sample: the receiver's window limited the sender; kept as a lower bound.
    ReceiverLimited,
    /// Sample: the transfer ended in slow start; kept as a lower bound.
    SlowStartEnd,
    /// Sample: packet loss in slow start gives none.
    SlowStartLoss,
    /// Sample: a loss gives none while it is not known which congestion control the sender runs.
    UnknownControl,
    /// Sample: a retransmission timeout gives none.
    Timeout,
    /// Sample: the transfer ended after a loss, which gave one already.
    EndAfterLoss,
    /// Sample: the connection ended, with the capture or by its idle timeout, with data outstanding.
    Unfinished,
    /// Sample: the segment size is not known.
    NoMss,
    /// Sample: a loss during recovery belongs to the one that started the recovery.
    LossInRecovery,
    /// Sequence range: the scoreboard or the interval count had no room to keep it apart; what is derived from it is not exact.
    Inexact,
    /// Connection: the memory for segments was full, and its senders' outstanding data is kept as one segment from then on.
    SegmentMemory,
    /// Connection: dropped after a short idle time, since it held segments of which none was ever acknowledged.
    Unacknowledged,
    /// Round-trip time: a retransmitted segment was acknowledged (Karn's rule).
    Karn,
    /// Network: no room in the table of networks.
    NoRoomNetwork,
    /// Event: the queue was full and the oldest was dropped.
    EventQueueFull,
    /// Advice: too many pairs of hosts had advice; the oldest was dropped early, and starts between them count as not advised.
    AdviceForgotten,
    /// Congestion control: too many hosts; the one idle longest was dropped and will be identified again.
    NoRoomHost,
    /// Service size: its transfer was cut off with data outstanding.
    CutTransfer,
    /// Service size: too many services; the one idle longest was dropped.
    NoRoomService,
    /// Service size: its remote address has reached its limit of sizes per half hour.
    ServiceRemoteLimit,
    /// Service size: the queue of transfers to the engine that keeps the services was full.
    TransferQueueFull,
    /// Window option: the window that the sender reported at a sample is inconsistent with its flight size, which is used.
    WindowOption,
}

impl Ignored {
    /// What it means, in a sentence.
    pub fn meaning(self) -> &'static str {
        self.get_documentation().unwrap_or_default()
    }

    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
