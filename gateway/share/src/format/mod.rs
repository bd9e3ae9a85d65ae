//! What gateways send each other, as bytes.
//!
//! ```text
//! message       format (1 byte), kind (1 byte: 1 cells, 2 member, 3 notices, 4 again), then what it holds
//! cells         gateway, tap, bucket length (µs); count, then each cell
//! cell          network, bucket index, presence, [as of] [newest sample] [raised] (ns after the bucket's start),
//!               bucket, contributions, round trips, share of connections followed (1 byte: parts of 256, less one),
//!               connections at once, the fewest of them at a sample
//! network       family (1 byte: 4 or 6), prefix length (1 byte), as many bytes of the address as the prefix reaches into
//! contributions count, then each: presence, [hash of the address, connection] (8 bytes each), what it contributed
//! round trips   count, then each: hash of the address (8 bytes), count, sum (µs)
//! member        gateway, tap, instance (8 bytes), name, version, bucket length (µs), buckets, rule, hash of the prefix list
//!               (8 bytes), oldest format read and newest written (1 byte each), clock (ns), count, then of each closed
//!               bucket: index, cells that left, their hashes (8 bytes); presence, [address]
//! notices       number (rises with each message of a gateway), count, then each: what it is about (1 byte), then its values
//! 1 held back   network, presence, cap (8 bytes, a fraction of bytes), halved (ns), [no advice until] (ns)
//! 2 seat        presence (the host is here), host
//! 3 start       trigger (1 byte: 1 passive open, 2 active open, 3 idle), host, network, at (ns)
//! 4 established host, network
//! 5 lease       network, segments, as of (ns)
//! 6 settled     network, as of (ns)
//! host          a network of one address
//! again         count, then the index of each bucket of which the gateway that gets it is to send its closed cells
//! text          count of bytes, UTF-8 without control characters
//! ```
//!
//! Numbers, buckets and contributions are written as in the store (`encoding`), numbers of a fixed length little endian. A cell without
//! *as of* is of a closed bucket, as of its end. A presence byte has a bit, from the lowest, for each value in brackets that follows it.
//!
//! A gateway writes [`FORMAT`] and reads [`FORMATS_READ`], so that gateways of two successive formats understand each other. Messages
//! come from other machines: counts that a message cannot hold allocate nothing, bytes left over are refused, and what makes sense is
//! judged by the engine that takes the cell.
//!
//! Measured: a closed cell takes 125, 404 and 1,520 bytes on average with 1, 4 and 16 contributions, each of another address and with a
//! loss that shows the queue; so a message holds 524, 162 or 43 of them.
//!
//! Clients leave a gateway by pseudonym alone. There is no place for an address in a cell, and a cell that has one is not written.

mod cell;
mod member;
mod network;
mod notice;
#[cfg(test)]
mod tests;

use spand_core::sharing::{GatewayId, TapId};
use spand_core::window::cells::Cell;
use spand_proto::network::Network;
use spand_proto::units::Micros;

pub(super) use self::cell::MOST_CONTRIBUTIONS;
use self::cell::{CellHead, Unwritable};
pub use self::member::{Member, read_member, write_member};
pub use self::notice::{NOTICES_AT_ONCE, Notices, read_notices, write_notices};
use super::exchange::MESSAGE_BYTES;
use spand_core::encoding::numbers::{Malformed, Reader, Writer};
use spand_core::encoding::parts::Layout;

/// The format that is written: the first byte of every message.
pub const FORMAT: u8 = 3;
/// The formats that are read, the oldest first: the one that is written and the one before, where there is one.
pub const FORMATS_READ: [u8; 2] = [FORMAT - 1, FORMAT];

/// The second byte: what a message holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Cells of one gateway.
    Cells = 1,
    /// Who a member is.
    Member = 2,
    /// What publishers have each other know.
    Notices = 3,
    /// A question for closed cells.
    Again = 4,
}

/// Most bytes before the cells: format, kind, gateway, tap, bucket length and count.
const HEADER_BYTES: usize = 2 + 3 + 5 + 10 + 3;

/// Why a message is not read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FormatError {
    /// Another release wrote it.
    #[error("the message has format {0}, and this gateway reads {reads}", reads = formats_read())]
    Unknown(u8),
    /// It ends too early.
    #[error("the message is cut short")]
    Truncated,
    /// No gateway writes such bytes.
    #[error("the message holds nonsense")]
    Nonsense,
    /// It has more bytes than any message.
    #[error("the message is longer than {MESSAGE_BYTES} bytes")]
    TooLong,
    /// It holds something else than its topic is about.
    #[error("the message holds something else than its topic is about")]
    Misplaced,
    /// A name, version or address in it is longer than allowed, or has control characters.
    #[error("the message has a text that is too long or not printable")]
    Text,
    /// The member estimates by a rule that there is not in this release.
    #[error("the message names `{0}` as its rule, which this gateway does not have")]
    Rule(String),
}

impl From<Malformed> for FormatError {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Short => Self::Truncated,
            Malformed::Nonsense => Self::Nonsense,
        }
    }
}

fn formats_read() -> String {
    match FORMATS_READ.as_slice() {
        [only] => format!("format {only}"),
        [first, .., last] => format!("formats {first} to {last}"),
        [] => String::new(),
    }
}

/// What a message is, by its second byte.
fn kind_of(byte: u8) -> Option<Kind> {
    [Kind::Cells, Kind::Member, Kind::Notices, Kind::Again].into_iter().find(|kind| *kind as u8 == byte)
}

/// What a message holds; `None` where no release so far writes that.
pub fn kind_of_message(message: &[u8]) -> Option<Kind> {
    message.get(1).copied().and_then(kind_of)
}

/// Most buckets that are asked for at once.
pub const AGAIN_AT_ONCE: usize = 16;

/// The message that asks for the closed cells of these buckets.
pub fn write_again(buckets: &[u64]) -> Vec<u8> {
    let mut out = begun(Kind::Again);
    let buckets = buckets.get(..AGAIN_AT_ONCE).unwrap_or(buckets);
    out.whole(buckets.len() as u64);
    for index in buckets {
        out.whole(*index);
    }
    out.bytes
}

/// Reads which they are.
///
/// # Errors
///
/// Why it asks for nothing.
pub fn read_again(message: &[u8]) -> Result<Vec<u64>, FormatError> {
    let mut input = opened(message, Kind::Again)?;
    let buckets = input.list(1, Reader::whole)?;
    input.end()?;
    if buckets.len() > AGAIN_AT_ONCE { Err(FormatError::Nonsense) } else { Ok(buckets) }
}

/// A message with only its first two bytes.
fn begun(kind: Kind) -> Writer {
    Writer { bytes: vec![FORMAT, kind as u8] }
}

/// What follows the first two bytes of a message of this kind.
fn opened(message: &[u8], kind: Kind) -> Result<Reader<'_>, FormatError> {
    if message.len() > MESSAGE_BYTES {
        return Err(FormatError::TooLong);
    }
    let mut input = Reader { rest: message };
    let format = input.byte()?;
    if !FORMATS_READ.contains(&format) {
        return Err(FormatError::Unknown(format));
    }
    match input.byte()? {
        found if found == kind as u8 => Ok(input),
        found if kind_of(found).is_some() => Err(FormatError::Misplaced),
        _ => Err(FormatError::Nonsense),
    }
}

/// A batch of cells being written, at most [`MESSAGE_BYTES`].
#[derive(Debug)]
pub struct BatchWriter {
    head: CellHead,
    cells: Writer,
    count: usize,
}

impl BatchWriter {
    /// With no cells of this gateway yet.
    pub fn new(gateway: GatewayId, tap: TapId, bucket: Micros) -> Self {
        Self { head: CellHead { gateway, tap, bucket }, cells: Writer::default(), count: 0 }
    }

    /// Adds a cell of the gateway; `false` and unchanged where it has no room, which a new batch has.
    ///
    /// A cell that must not or cannot be written, such as one with a client's address, is dropped and logged, and a debug build panics:
    /// none comes here unless the engine is wrong. It gives `true`, since in a new batch it would fare no better.
    pub fn add(&mut self, network: Network, cell: &Cell) -> bool {
        let added = self.try_add(network, cell);
        if let Err(why) = &added {
            tracing::error!(%network, "a cell was dropped instead of sent: {why}");
        }
        debug_assert!(added.is_ok(), "a cell cannot be written: {added:?}");
        added.unwrap_or(true)
    }

    /// The same, with why not.
    fn try_add(&mut self, network: Network, cell: &Cell) -> Result<bool, Unwritable> {
        let before = self.cells.bytes.len();
        let written = cell::write(self.head, network, cell, &mut self.cells);
        let (after, most) = (self.cells.bytes.len(), MESSAGE_BYTES - HEADER_BYTES);
        let added = match written {
            Ok(()) if after <= most => Ok(true),
            Ok(()) if after - before <= most => Ok(false),
            Ok(()) => Err(Unwritable::TooLarge),
            Err(why) => Err(why),
        };
        if added == Ok(true) {
            self.count += 1;
        } else {
            self.cells.bytes.truncate(before);
        }
        added
    }

    /// Whether it has no cell.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many cells it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// The message.
    pub fn finish(self) -> Vec<u8> {
        let CellHead { gateway, tap, bucket } = self.head;
        let mut out = begun(Kind::Cells);
        out.whole(gateway.0.into());
        out.whole(tap.0.into());
        out.whole(bucket.0);
        out.whole(self.count as u64);
        out.bytes.extend_from_slice(&self.cells.bytes);
        out.bytes
    }
}

/// Cells of one gateway.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Whose they are.
    pub gateway: GatewayId,
    /// Whose packets those are.
    pub tap: TapId,
    /// How long the gateway's buckets are.
    pub bucket: Micros,
    /// The cells with their networks.
    pub cells: Vec<(Network, Cell)>,
}

/// Reads a batch of cells.
///
/// # Errors
///
/// Why the message is no such batch.
pub fn read_batch(message: &[u8]) -> Result<Batch, FormatError> {
    let mut input = opened(message, Kind::Cells)?;
    let (gateway, tap) = (GatewayId(input.narrow()?), TapId(input.narrow()?));
    let bucket = Micros(input.whole()?);
    let head = CellHead { gateway, tap, bucket };
    let layout = if message.first() == Some(&FORMAT) { Layout::Full } else { Layout::Queue };
    let cells = input.list(cell::LEAST, |input| cell::read(head, layout, input))?;
    input.end()?;
    Ok(Batch { gateway, tap, bucket, cells })
}
