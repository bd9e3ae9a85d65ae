//! What gateways have each other know beside what they saw, as bytes.

use std::net::IpAddr;

use spand_core::types::Trigger;
use spand_proto::network::Network;
use spand_proto::units::{Timestamp, Window};

use super::network::{self, read_network, write_network};
use super::{FormatError, Kind, begun, opened};
use crate::exchange::MESSAGE_BYTES;
use spand_core::encoding::numbers::{Malformed, Reader, Writer, bits, flags};
use spand_core::sharing::{HeldBack, Notice, StartSeen};

/// Fewest bytes of a notice, and most.
const LEAST: usize = 2 + network::LEAST;
const MOST: usize = 64;
/// Most notices in one message: as many as it has room for where each is the longest.
pub const NOTICES_AT_ONCE: usize = (MESSAGE_BYTES - 32) / MOST;

/// What a notice is about, its first byte.
#[repr(u8)]
enum Tag {
    HeldBack = 1,
    Seat = 2,
    Start = 3,
    Established = 4,
    Lease = 5,
    Settled = 6,
}

/// Notices of one gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Notices {
    /// A number that rises with each message of a gateway, also over its restarts: its clock in nanoseconds, or the next one.
    pub number: u64,
    /// In order.
    pub notices: Vec<Notice>,
}

/// The message of these, of which the first [`NOTICES_AT_ONCE`] are written.
pub fn write_notices(notices: &Notices) -> Vec<u8> {
    let mut out = begun(Kind::Notices);
    let written = notices.notices.get(..NOTICES_AT_ONCE).unwrap_or(&notices.notices);
    out.whole(notices.number);
    out.whole(written.len() as u64);
    for notice in written {
        write(notice, &mut out);
    }
    out.bytes
}

/// Reads a message of notices.
///
/// # Errors
///
/// Why it is none.
pub fn read_notices(message: &[u8]) -> Result<Notices, FormatError> {
    let mut input = opened(message, Kind::Notices)?;
    let number = input.whole()?;
    let notices = input.list(LEAST, read)?;
    input.end()?;
    if notices.len() > NOTICES_AT_ONCE {
        return Err(FormatError::Nonsense);
    }
    Ok(Notices { number, notices })
}

fn write(notice: &Notice, out: &mut Writer) {
    match notice {
        Notice::HeldBack(HeldBack { network, cap, halved, withdrawn }) => {
            out.byte(Tag::HeldBack as u8);
            write_network(*network, out);
            out.byte(bits([withdrawn.is_some()]));
            out.fraction(cap.bytes());
            out.whole(halved.0);
            if let Some(until) = withdrawn {
                out.whole(until.0);
            }
        }
        Notice::Seat { host, here } => {
            out.byte(Tag::Seat as u8);
            out.byte(bits([*here]));
            write_host(*host, out);
        }
        Notice::Start(StartSeen { host, network, trigger, at }) => {
            out.byte(Tag::Start as u8);
            out.byte(trigger_byte(*trigger));
            write_host(*host, out);
            write_network(*network, out);
            out.whole(at.0);
        }
        Notice::Lease { network, segments, as_of } => {
            out.byte(Tag::Lease as u8);
            write_network(*network, out);
            out.whole((*segments).into());
            out.whole(as_of.0);
        }
        Notice::Settled { network, as_of } => {
            out.byte(Tag::Settled as u8);
            write_network(*network, out);
            out.whole(as_of.0);
        }
        Notice::Established { host, network } => {
            out.byte(Tag::Established as u8);
            write_host(*host, out);
            write_network(*network, out);
        }
    }
}

fn read(input: &mut Reader<'_>) -> Result<Notice, Malformed> {
    match input.byte()? {
        tag if tag == Tag::HeldBack as u8 => {
            let network = read_network(input)?;
            let [is_withdrawn] = flags(input.byte()?)?;
            let cap = Window::from_bytes(input.fraction()?).ok_or(Malformed::Nonsense)?;
            let halved = Timestamp(input.whole()?);
            let withdrawn = if is_withdrawn { Some(Timestamp(input.whole()?)) } else { None };
            Ok(Notice::HeldBack(HeldBack { network, cap, halved, withdrawn }))
        }
        tag if tag == Tag::Seat as u8 => {
            let [here] = flags(input.byte()?)?;
            Ok(Notice::Seat { host: read_host(input)?, here })
        }
        tag if tag == Tag::Start as u8 => {
            let trigger = input.byte()?;
            let trigger = TRIGGERS.into_iter().find(|known| trigger_byte(*known) == trigger);
            let trigger = trigger.ok_or(Malformed::Nonsense)?;
            let (host, network) = (read_host(input)?, read_network(input)?);
            Ok(Notice::Start(StartSeen { host, network, trigger, at: Timestamp(input.whole()?) }))
        }
        tag if tag == Tag::Lease as u8 => {
            let (network, segments) = (read_network(input)?, input.narrow()?);
            Ok(Notice::Lease { network, segments, as_of: Timestamp(input.whole()?) })
        }
        tag if tag == Tag::Settled as u8 => {
            Ok(Notice::Settled { network: read_network(input)?, as_of: Timestamp(input.whole()?) })
        }
        tag if tag == Tag::Established as u8 => {
            Ok(Notice::Established { host: read_host(input)?, network: read_network(input)? })
        }
        _ => Err(Malformed::Nonsense),
    }
}

const TRIGGERS: [Trigger; 3] = [Trigger::PassiveOpen, Trigger::ActiveOpen, Trigger::Idle];

fn trigger_byte(trigger: Trigger) -> u8 {
    match trigger {
        Trigger::PassiveOpen => 1,
        Trigger::ActiveOpen => 2,
        Trigger::Idle => 3,
    }
}

/// A host inside, as a network of one address.
fn write_host(host: IpAddr, out: &mut Writer) {
    write_network(Network::new(host.into()), out);
}

fn read_host(input: &mut Reader<'_>) -> Result<IpAddr, Malformed> {
    let network = read_network(input)?.prefix();
    if network.prefix_len() == network.max_prefix_len() { Ok(network.addr()) } else { Err(Malformed::Nonsense) }
}
