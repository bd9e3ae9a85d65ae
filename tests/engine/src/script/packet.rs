//! The packets of a connection.

use std::str::FromStr;

use etherparse::{TcpHeader, TcpOptionElement};
use spand_core::wire::segment::Endpoint;

use super::parse::{Number, Range};
use super::{Moment, Opening, Packet};
use crate::frame::framed;

const CLIENT: usize = 0;
const SERVER: usize = 1;
/// The time in which a server beside the tap answers.
const REACTION_US: u64 = 50;

/// A connection: its ends, and what each side sent.
pub(super) struct Talk {
    /// Client and server.
    pub(super) ends: [Endpoint; 2],
    isn: [u32; 2],
    pub(super) mss: u32,
    timestamps: bool,
    /// What each side acknowledged last.
    acked: [u64; 2],
    ip_id: [u16; 2],
    /// What each side sent with which timestamp: the end of its range.
    sent: [Vec<(u64, u32)>; 2],
}

pub(super) fn parsed<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is nothing that fits here"))
}

/// Returns the SYN, the SYN-ACK right after it, since the tap is beside the server, and the acknowledgement a round trip later.
pub(super) fn handshake(opening: &Opening) -> [Packet; 3] {
    let packet = |at: u64, from_server: bool, flags: &str| {
        let packet = Packet::new(opening.name.clone(), Moment::At(opening.at_us + at), from_server);
        Packet { flags: flags.to_owned(), bare: !opening.timestamps, ..packet }
    };
    let syn = |at: u64, from_server: bool, flags: &str| {
        let mss = u16::try_from(opening.mss).ok().map(|mss| mss + if opening.timestamps { 12 } else { 0 });
        let (scale, sack_permitted) = (opening.scale, opening.sack);
        Packet {
            mss,
            scale,
            sack_permitted,
            ack: from_server.then_some(Number::Is(1)),
            ..packet(at, from_server, flags)
        }
    };
    let ack = Packet { ack: Some(Number::Is(1)), ..packet(REACTION_US + opening.rtt_us, false, ".") };
    let [asks, grants] = if opening.ecn { ["SEW", "SE."] } else { ["S", "S."] };
    [syn(0, false, asks), syn(REACTION_US, true, grants), ack]
}

impl Talk {
    pub(super) fn new(ends: [Endpoint; 2], opening: &Opening) -> Self {
        Self {
            ends,
            isn: opening.isn,
            mss: opening.mss,
            timestamps: opening.timestamps,
            acked: [1, 1],
            ip_id: [0, 0],
            sent: [Vec::new(), Vec::new()],
        }
    }

    /// The packets of a line, each with its bytes on the wire: a range longer than a segment is several.
    pub(super) fn packets(&mut self, packet: &Packet, now_us: u64) -> Result<Vec<(Vec<u8>, u32)>, String> {
        let side = if packet.from_server { SERVER } else { CLIENT };
        let is_syn = packet.flags.contains('S');
        let [next, heard] = [side, 1 - side].map(|of| self.sent[of].iter().map(|(end, _)| *end).max().unwrap_or(1));
        match packet.ack {
            Some(Number::Is(ack)) => self.acked[side] = ack,
            Some(Number::Beyond(bytes)) => self.acked[side] += bytes,
            Some(Number::All) => self.acked[side] = heard,
            None => {}
        }
        let (left, right) = match packet.range {
            Some(Range::From(left, right)) => (left, right),
            Some(Range::Next(bytes)) => (next, next + bytes),
            None if is_syn => (0, 0),
            None => (next, next),
        };
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let mut at = left;
        while at < right {
            let end = right.min(at + u64::from(self.mss));
            ranges.push((at, end));
            at = end;
        }
        if ranges.is_empty() {
            ranges.push((left, right));
        }
        let last = ranges.len() - 1;
        ranges
            .iter()
            .enumerate()
            .map(|(n, range)| {
                let at_us = now_us + n as u64 * packet.each_us;
                self.packet(packet, *range, n == last, side, at_us)
            })
            .collect()
    }

    fn packet(
        &mut self,
        packet: &Packet,
        (left, right): (u64, u64),
        last: bool,
        side: usize,
        at_us: u64,
    ) -> Result<(Vec<u8>, u32), String> {
        let [from, to] = if side == SERVER { [self.ends[SERVER], self.ends[CLIENT]] } else { self.ends };
        let has = |flag: char| packet.flags.contains(flag);
        let absolute = |isn: u32, offset: u64| isn.wrapping_add(u32::try_from(offset & 0xffff_ffff).unwrap_or(0));
        let mut tcp =
            TcpHeader::new(from.port, to.port, absolute(self.isn[side], left), packet.window.unwrap_or(65_000));
        tcp.syn = has('S');
        tcp.ack = has('.');
        tcp.rst = has('R');
        // The last segment of a range ends what the application wrote, or closes.
        tcp.psh = has('P') && last;
        tcp.fin = has('F') && last;
        tcp.ece = has('E');
        tcp.cwr = has('W');
        if tcp.ack {
            tcp.acknowledgment_number = absolute(self.isn[1 - side], self.acked[side]);
        }
        let value = packet.value.unwrap_or_else(|| u32::try_from(at_us / 1_000).unwrap_or(u32::MAX));
        tcp.set_options(&self.options(packet, side, value)).map_err(|fault| fault.to_string())?;
        let end = right + u64::from(tcp.fin) + u64::from(tcp.syn);
        self.sent[side].push((end, value));
        self.ip_id[side] = packet.id.unwrap_or_else(|| self.ip_id[side].wrapping_add(1));
        let len = usize::try_from(right - left).map_err(|fault| fault.to_string())?;
        framed(&tcp, [from.address, to.address], (self.ip_id[side], packet.ecn), len)
    }

    fn options(&self, packet: &Packet, side: usize, value: u32) -> Vec<TcpOptionElement> {
        let mut options = Vec::new();
        options.extend(packet.mss.map(TcpOptionElement::MaximumSegmentSize));
        options.extend(packet.scale.map(TcpOptionElement::WindowScale));
        if packet.sack_permitted {
            options.push(TcpOptionElement::SelectiveAcknowledgementPermitted);
        }
        if self.timestamps && !packet.bare {
            let echo = packet.echo.unwrap_or_else(|| self.echo(packet, side));
            options.extend([TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(value, echo)]);
        }
        let isn = self.isn[1 - side];
        let number = |offset: u64| isn.wrapping_add(u32::try_from(offset & 0xffff_ffff).unwrap_or(0));
        let mut blocks = packet.sack.iter().map(|(left, right)| (number(*left), number(*right)));
        if let Some(first) = blocks.next() {
            let rest = [blocks.next(), blocks.next(), blocks.next()];
            options.push(TcpOptionElement::SelectiveAcknowledgement(first, rest));
        }
        options
    }

    /// The timestamp of the newest segment that the acknowledgement covers.
    fn echo(&self, packet: &Packet, side: usize) -> u32 {
        let covered = packet.sack.iter().map(|(_, right)| *right).max().unwrap_or(0).max(self.acked[side]);
        let heard = self.sent[1 - side].iter().filter(|(end, _)| *end <= covered);
        heard.map(|(_, value)| *value).max().unwrap_or(0)
    }
}
