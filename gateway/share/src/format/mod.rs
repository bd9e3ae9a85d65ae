//! What gateways send each other, as bytes.
//!
//! ```text
//! message  format (1 byte), kind (1 byte: 1 cells, 2 member, 3 notices, 4 again), then what it holds, by postcard
//! cells    gateway, tap, bucket length (µs), cells as in `cell::WireCell`
//! member   [`Member`]
//! notices  [`Notices`]
//! again    index of each bucket of which the gateway that gets it is to send its closed cells
//! ```
//!
//! A gateway reads the format that it writes. Messages come from other machines: counts that a message cannot hold allocate nothing, bytes
//! left over are refused, and what makes sense is judged by the engine that takes the cell.
//!
//! A closed cell takes 132, 423 and 1,587 bytes on average with 1, 4 and 16 contributions (measured). Each contribution is of another address
//! and has a loss with a queue. A message thus holds 496, 154 or 41 cells.
//!
//! Clients leave a gateway by pseudonym alone: a cell that has an address is not written.

mod cell;
mod member;
mod notice;
#[cfg(test)]
mod tests;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spand_cells::{Cell, GatewayId, TapId};
use spand_proto::network::Network;
use spand_proto::units::Micros;

pub(super) use self::cell::MOST_CONTRIBUTIONS;
use self::cell::{CellHead, Unwritable, WireCell};
pub use self::member::{Member, read_member, write_member};
pub use self::notice::{NOTICES_AT_ONCE, Notices, read_notices, write_notices};
use super::exchange::MESSAGE_BYTES;

/// The format: the first byte of every message. Whatever changes the bytes of a type in a message raises it.
const FORMAT: u8 = 4;

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
    #[error("the message has format {0}, and this gateway reads format {FORMAT}: upgrade the older gateway")]
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
}

impl From<postcard::Error> for FormatError {
    fn from(error: postcard::Error) -> Self {
        match error {
            postcard::Error::DeserializeUnexpectedEnd => Self::Truncated,
            postcard::Error::DeserializeBadUtf8 => Self::Text,
            _ => Self::Nonsense,
        }
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
    written(Kind::Again, &buckets.get(..AGAIN_AT_ONCE).unwrap_or(buckets))
}

/// Reads which they are.
///
/// # Errors
///
/// Why it asks for nothing.
pub fn read_again(message: &[u8]) -> Result<Vec<u64>, FormatError> {
    let buckets: Vec<u64> = opened(message, Kind::Again)?;
    if buckets.len() > AGAIN_AT_ONCE { Err(FormatError::Nonsense) } else { Ok(buckets) }
}

/// A message that holds this.
fn written(kind: Kind, what: &impl Serialize) -> Vec<u8> {
    appended(what, vec![FORMAT, kind as u8])
}

fn appended(what: &impl Serialize, to: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(what, to).expect("every list in a message has a length")
}

/// What a message of this kind holds.
fn opened<T: DeserializeOwned>(message: &[u8], kind: Kind) -> Result<T, FormatError> {
    match message {
        _ if message.len() > MESSAGE_BYTES => Err(FormatError::TooLong),
        [format, ..] if *format != FORMAT => Err(FormatError::Unknown(*format)),
        [_, found, held @ ..] => match kind_of(*found) {
            Some(found) if found == kind => match postcard::take_from_bytes(held)? {
                (what, []) => Ok(what),
                _ => Err(FormatError::Nonsense),
            },
            Some(_) => Err(FormatError::Misplaced),
            None => Err(FormatError::Nonsense),
        },
        _ => Err(FormatError::Truncated),
    }
}

/// A batch of cells being written, at most [`MESSAGE_BYTES`].
#[derive(Debug)]
pub struct BatchWriter {
    head: CellHead,
    cells: Vec<u8>,
    count: usize,
}

impl BatchWriter {
    /// With no cells of this gateway yet.
    pub fn new(gateway: GatewayId, tap: TapId, bucket: Micros) -> Self {
        Self { head: CellHead { gateway, tap, bucket }, cells: Vec::new(), count: 0 }
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
        let cell = appended(&WireCell::new(self.head, network, cell)?, Vec::new());
        let most = MESSAGE_BYTES - HEADER_BYTES;
        if cell.len() > most {
            return Err(Unwritable::TooLarge);
        }
        let has_room = self.cells.len() + cell.len() <= most;
        if has_room {
            self.cells.extend(cell);
            self.count += 1;
        }
        Ok(has_room)
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
        // As a list of cells: their number, then each.
        let mut message = written(Kind::Cells, &(gateway, tap, bucket, self.count));
        message.extend(self.cells);
        message
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
    let (gateway, tap, bucket, cells): (_, _, _, Vec<WireCell>) = opened(message, Kind::Cells)?;
    let head = CellHead { gateway, tap, bucket };
    let cells = cells.into_iter().map(|cell| cell.read(head)).collect::<Option<_>>();
    Ok(Batch { gateway, tap, bucket, cells: cells.ok_or(FormatError::Nonsense)? })
}
