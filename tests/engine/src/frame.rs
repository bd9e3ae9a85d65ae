//! Frames of raw IP, as the engine takes them.

use std::net::IpAddr;

use etherparse::{IpFragOffset, Ipv4Header, Ipv6Header, TcpHeader, ip_number};
use spand_core::engine::Engine;
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;

/// `LINKTYPE_RAW`: packets begin with their IP header.
const RAW_IP: u16 = 101;

/// Gives the engine a frame of these bytes and this length on the wire.
pub fn take(engine: &mut Engine, now: Timestamp, (bytes, wire_len): &(Vec<u8>, u32)) {
    engine.handle_frame(now, &Frame { link_type: RAW_IP, wire_len: *wire_len, input: 0, data: bytes });
}

/// The bytes up to the payload, and how many there are with it.
pub fn framed(
    tcp: &TcpHeader,
    [from, to]: [IpAddr; 2],
    (id, ecn): (u16, u8),
    payload: usize,
) -> Result<(Vec<u8>, u32), String> {
    let mut bytes = Vec::new();
    let len = tcp.header_len() + payload;
    let fits = |len: usize| u16::try_from(len).map_err(|_| format!("a packet of {len} bytes is too long"));
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = Ipv4Header::new(fits(len)?, 64, ip_number::TCP, from.octets(), to.octets())
                .map_err(|fault| fault.to_string())?;
            (ip.identification, ip.dont_fragment, ip.fragment_offset) = (id, true, IpFragOffset::ZERO);
            ip.ecn = etherparse::IpEcn::try_new(ecn).map_err(|fault| fault.to_string())?;
            ip.write(&mut bytes).map_err(|fault| fault.to_string())?;
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let ip = Ipv6Header {
                traffic_class: ecn,
                payload_length: fits(len)?,
                next_header: ip_number::TCP,
                hop_limit: 64,
                source: from.octets(),
                destination: to.octets(),
                ..Ipv6Header::default()
            };
            ip.write(&mut bytes).map_err(|fault| fault.to_string())?;
        }
        _ => return Err("both ends have addresses of one kind".to_owned()),
    }
    tcp.write(&mut bytes).map_err(|fault| fault.to_string())?;
    let wire_len = u32::try_from(bytes.len() + payload).map_err(|fault| fault.to_string())?;
    Ok((bytes, wire_len))
}
