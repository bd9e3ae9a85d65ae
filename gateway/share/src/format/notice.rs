//! What gateways have each other know beside what they saw.

use serde::{Deserialize, Serialize};
use spand_cells::{Notice, StartSeen};

use super::{FormatError, Kind, opened, written};
use crate::exchange::MESSAGE_BYTES;

/// Most bytes of a notice.
const MOST: usize = 64;
/// Most notices in one message: as many as it has room for where each is the longest.
pub const NOTICES_AT_ONCE: usize = (MESSAGE_BYTES - 32) / MOST;

/// Notices of one gateway.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Notices {
    /// A number that rises with each message of a gateway, also over its restarts: its clock in nanoseconds, or the next one.
    pub number: u64,
    /// In order.
    pub notices: Vec<Notice>,
}

/// The message of these, of which the first [`NOTICES_AT_ONCE`] are written.
pub fn write_notices(notices: &Notices) -> Vec<u8> {
    let Notices { number, notices } = notices;
    written(Kind::Notices, &(number, notices.get(..NOTICES_AT_ONCE).unwrap_or(notices)))
}

/// Reads a message of notices.
///
/// # Errors
///
/// Why it is none.
pub fn read_notices(message: &[u8]) -> Result<Notices, FormatError> {
    let mut read: Notices = opened(message, Kind::Notices)?;
    if read.notices.len() > NOTICES_AT_ONCE {
        return Err(FormatError::Nonsense);
    }
    for notice in &mut read.notices {
        if let Notice::Seat { host, .. } | Notice::Established { host, .. } | Notice::Start(StartSeen { host, .. }) =
            notice
        {
            *host = host.to_canonical();
        }
    }
    Ok(read)
}
