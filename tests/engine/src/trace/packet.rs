//! A packet of a generated connection, as the tap sees it.

use std::net::Ipv4Addr;

use arrayvec::ArrayVec;

/// Payload of a full-sized segment: 1,500 less headers and timestamps.
pub const MSS: u32 = 1_448;

/// Addresses and ports, the server's first.
#[derive(Clone, Copy, Debug)]
pub struct Tuple {
    /// Server, inside.
    pub server: (Ipv4Addr, u16),
    /// Client, outside.
    pub client: (Ipv4Addr, u16),
}

/// A packet to be written.
#[derive(Clone, Debug)]
pub struct Packet {
    /// From the server (data), else from the client (acknowledgements).
    pub from_server: bool,
    /// First sequence number.
    pub seq: u32,
    /// Acknowledgement.
    pub ack: u32,
    /// TCP flags.
    pub flags: u8,
    /// Payload bytes.
    pub payload_len: u32,
    /// SACK blocks.
    pub sack: ArrayVec<(u32, u32), 3>,
    /// The time whose timestamp it echoes; `None`: a millisecond before its own.
    pub echo_ns: Option<u64>,
    /// The sender sent these bytes before.
    pub is_retransmission: bool,
}

/// Synchronise sequence numbers.
pub const SYN: u8 = 0x02;
/// No more data from the sender.
pub const FIN: u8 = 0x01;
/// Reset.
pub const RST: u8 = 0x04;
/// The acknowledgement number is valid.
pub const ACK: u8 = 0x10;
/// Push.
pub const PSH: u8 = 0x08;

/// A packet without new data.
pub fn control(from_server: bool, seq: u32, ack: u32, flags: u8, payload_len: u32) -> Packet {
    Packet { from_server, seq, ack, flags, payload_len, sack: ArrayVec::new(), echo_ns: None, is_retransmission: false }
}
