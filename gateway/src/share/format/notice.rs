//! What gateways have each other know beside what they saw, as bytes.

use spand_proto::units::{Timestamp, Window};

use super::network::{self, read_network, write_network};
use super::{FormatError, Kind, begun, opened};
use crate::encoding::numbers::{Malformed, Reader, Writer, bits, flags};
use crate::publisher::{HeldBack, Notice};
use crate::share::exchange::MESSAGE_BYTES;

/// Fewest bytes of a notice, and most.
const LEAST: usize = 1 + network::LEAST;
const MOST: usize = 64;
/// Most notices in one message: as many as it has room for where each is the longest.
pub const NOTICES_AT_ONCE: usize = (MESSAGE_BYTES - 32) / MOST;

/// What a notice is about, its first byte.
#[repr(u8)]
enum Tag {
    HeldBack = 1,
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
        _ => Err(Malformed::Nonsense),
    }
}
