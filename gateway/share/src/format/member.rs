//! Who a member is.

use serde::{Deserialize, Serialize};
use spand_cells::{Digest, GatewayId, TapId};
use spand_proto::estimate::RuleKind;
use spand_proto::units::{Micros, Timestamp};

use super::{FormatError, Kind, opened, written};

/// Longest texts, in bytes.
const NAME_BYTES: usize = 253;
const VERSION_BYTES: usize = 64;
const ADDRESS_BYTES: usize = 253;
/// Most buckets of which it is named what left.
const MOST_DIGESTS: usize = 64;

/// Who a member is and how it is.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Member {
    /// Its number.
    pub gateway: GatewayId,
    /// Whose packets it sees.
    pub tap: TapId,
    /// Drawn at its start: two gateways with one number differ in it.
    pub instance: u64,
    /// Its name, at most 253 bytes.
    pub name: String,
    /// Its release, at most 64 bytes.
    pub version: String,
    /// How long its buckets are.
    pub bucket: Micros,
    /// How many of them make its window.
    pub buckets: u32,
    /// What it estimates by.
    pub rule: RuleKind,
    /// Hash of its prefix list.
    pub prefixes: u64,
    /// Its clock.
    pub clock: Timestamp,
    /// What left of closed buckets, by their index: at most 64, the newest.
    pub digests: Vec<(u64, Digest)>,
    /// Where agents reach it, at most 253 bytes.
    pub address: Option<String>,
}

/// The message of a member. Of a text that is too long the beginning is written, and no control characters.
pub fn write_member(member: &Member) -> Vec<u8> {
    let digests = member.digests.get(member.digests.len().saturating_sub(MOST_DIGESTS)..).unwrap_or_default();
    let cut = Member {
        name: printable(&member.name, NAME_BYTES),
        version: printable(&member.version, VERSION_BYTES),
        digests: digests.to_vec(),
        address: member.address.as_deref().map(|address| printable(address, ADDRESS_BYTES)),
        ..member.clone()
    };
    written(Kind::Member, &cut)
}

/// Reads the message of a member.
///
/// # Errors
///
/// Why it is none.
pub fn read_member(message: &[u8]) -> Result<Member, FormatError> {
    let member: Member = opened(message, Kind::Member)?;
    let Member { name, version, address, .. } = &member;
    let address = address.as_deref().unwrap_or_default();
    for (text, most) in [(name.as_str(), NAME_BYTES), (version, VERSION_BYTES), (address, ADDRESS_BYTES)] {
        // Texts of others are logged and shown.
        if text.len() > most || text.chars().any(char::is_control) {
            return Err(FormatError::Text);
        }
    }
    if member.digests.len() > MOST_DIGESTS { Err(FormatError::Nonsense) } else { Ok(member) }
}

/// The beginning of a text, without control characters.
fn printable(text: &str, most: usize) -> String {
    let mut bytes = 0;
    let fits = |c: &char| {
        bytes += c.len_utf8();
        bytes <= most
    };
    text.chars().filter(|c| !c.is_control()).take_while(fits).collect()
}
