//! The strict view of a TCP segment: nonsense cannot be built into it.
//!
//! What the lenient walk over the headers accepts becomes a [`Segment`]; what it does not is counted with a reason
//! ([`crate::counters::Ignored`]). Lengths are those on the wire, so a truncated snap length changes nothing as long as
//! the headers are there.

use std::net::IpAddr;

use arrayvec::ArrayVec;
use spand_proto::units::Timestamp;

/// A TCP segment as it was on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// When the capture saw it.
    pub at: Timestamp,
    /// Who sent it.
    pub source: Endpoint,
    /// To whom.
    pub destination: Endpoint,
    /// First sequence number (RFC 9293 section 3.4).
    pub seq: u32,
    /// Acknowledgement number, where the ACK flag is set.
    pub ack: Option<u32>,
    /// Control flags.
    pub flags: Flags,
    /// Window field, not scaled.
    pub window: u16,
    /// Payload bytes on the wire, captured or not.
    pub payload_len: u32,
    /// IPv4 identification, which distinguishes a retransmission from a mirror port's second copy; IPv6 has none.
    pub ip_id: Option<u16>,
    /// Whether the ECN field of the IP header is not Not-ECT (RFC 3168 section 5).
    pub ect: bool,
    /// Options.
    pub options: Options,
}

/// An address and port.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Endpoint {
    /// IP address, IPv4-mapped ones in their IPv4 form.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
}

/// The control flags (RFC 9293 section 3.1, RFC 3168).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
    /// Urgent pointer is valid.
    pub const URG: u8 = 0x20;
    /// ECN echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;

    /// Whether any flag of `mask` is set.
    pub fn has(self, mask: u8) -> bool {
        self.0 & mask != 0
    }
}

/// The options that reconstruction needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Maximum segment size (SYN only, RFC 9293 section 3.2).
    pub mss: Option<u16>,
    /// Window scale shift, at most 14 (SYN only, RFC 7323 section 2).
    pub window_scale: Option<u8>,
    /// SACK permitted (SYN only, RFC 2018).
    pub sack_permitted: bool,
    /// Timestamps (RFC 7323 section 3).
    pub timestamps: Option<Timestamps>,
    /// SACK blocks in their order on the wire; a first block below the acknowledgement is a DSACK (RFC 2883).
    pub sack: ArrayVec<SackBlock, 4>,
    /// The sender's window and round trip, where it says them.
    pub window: Option<WindowOption>,
    /// Bytes that all options occupy, which the payload of a full-sized segment lacks.
    pub len: u8,
    /// The snap length cut the options, so those missing here may have been on the wire.
    pub truncated: bool,
}

/// The timestamps option.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timestamps {
    /// The sender's clock.
    pub value: u32,
    /// The value it echoes; meaningful only with ACK.
    pub echo: u32,
}

/// The experimental option in which a sender says its own state: kind 254, 12 bytes, experiment 0x5350 (RFC 6994), then both
/// numbers in network order.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WindowOption {
    /// Congestion window in bytes of payload.
    pub window_bytes: u32,
    /// Smoothed round-trip time in microseconds; 0 where none was measured.
    pub srtt_us: u32,
}

/// Bytes that it takes of every segment.
pub const WINDOW_OPTION_LEN: u16 = 12;

/// Bytes the receiver holds, `left` inclusive to `right` exclusive.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SackBlock {
    /// First sequence number held.
    pub left: u32,
    /// First sequence number after it.
    pub right: u32,
}

impl Segment {
    /// Sequence space that the segment occupies: its payload, and one each for SYN and FIN.
    pub fn seq_len(&self) -> u32 {
        self.payload_len
            .saturating_add(u32::from(self.flags.has(Flags::SYN)))
            .saturating_add(u32::from(self.flags.has(Flags::FIN)))
    }
}
