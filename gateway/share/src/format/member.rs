//! Who a member is, as bytes.

use spand_core::sharing::{GatewayId, TapId};
use spand_core::window::cells::Digest;
use spand_proto::estimate::RuleKind;
use spand_proto::units::{Micros, Timestamp};

use super::{FormatError, Kind, begun, opened};
use spand_core::encoding::numbers::{Malformed, Reader, Writer, bits, flags};

/// Longest texts, in bytes.
const NAME_BYTES: usize = 253;
const VERSION_BYTES: usize = 64;
const RULE_BYTES: usize = 32;
const ADDRESS_BYTES: usize = 253;
/// Most buckets of which it is named what left.
const MOST_DIGESTS: usize = 64;

/// Who a member is and how it is.
#[derive(Clone, Debug, Eq, PartialEq)]
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
    /// The oldest format that it reads, and the newest that it writes.
    pub formats: (u8, u8),
    /// Its clock.
    pub clock: Timestamp,
    /// What left of closed buckets, by their index: at most 64, the newest.
    pub digests: Vec<(u64, Digest)>,
    /// Where agents reach it, at most 253 bytes.
    pub address: Option<String>,
}

/// The message of a member. Of a text that is too long the beginning is written, and no control characters.
pub fn write_member(member: &Member) -> Vec<u8> {
    let Member {
        gateway,
        tap,
        instance,
        name,
        version,
        bucket,
        buckets,
        rule,
        prefixes,
        formats,
        clock,
        digests,
        address,
    } = member;
    let mut out = begun(Kind::Member);
    out.whole(gateway.0.into());
    out.whole(tap.0.into());
    out.fixed(*instance);
    write_text(name, NAME_BYTES, &mut out);
    write_text(version, VERSION_BYTES, &mut out);
    out.whole(bucket.0);
    out.whole((*buckets).into());
    write_text(rule.name(), RULE_BYTES, &mut out);
    out.fixed(*prefixes);
    out.byte(formats.0);
    out.byte(formats.1);
    out.whole(clock.0);
    let digests = digests.get(digests.len().saturating_sub(MOST_DIGESTS)..).unwrap_or_default();
    out.whole(digests.len() as u64);
    for (index, digest) in digests {
        out.whole(*index);
        out.whole(digest.cells.into());
        out.fixed(digest.hash);
    }
    out.byte(bits([address.is_some()]));
    if let Some(address) = address {
        write_text(address, ADDRESS_BYTES, &mut out);
    }
    out.bytes
}

/// Reads the message of a member.
///
/// # Errors
///
/// Why it is none.
pub fn read_member(message: &[u8]) -> Result<Member, FormatError> {
    let mut input = opened(message, Kind::Member)?;
    let (gateway, tap, instance) = (GatewayId(input.narrow()?), TapId(input.narrow()?), input.fixed()?);
    let (name, version) = (read_text(NAME_BYTES, &mut input)?, read_text(VERSION_BYTES, &mut input)?);
    let (bucket, buckets) = (Micros(input.whole()?), input.narrow()?);
    let rule = read_text(RULE_BYTES, &mut input)?;
    let rule = rule.parse().map_err(|_| FormatError::Rule(rule))?;
    let (prefixes, formats) = (input.fixed()?, (input.byte()?, input.byte()?));
    let clock = Timestamp(input.whole()?);
    let digests = input.list(10, |input| {
        let (index, cells) = (input.whole()?, input.narrow()?);
        Ok::<_, Malformed>((index, Digest { cells, hash: input.fixed()? }))
    })?;
    if digests.len() > MOST_DIGESTS {
        return Err(FormatError::Nonsense);
    }
    let [has_address] = flags(input.byte()?)?;
    let address = has_address.then(|| read_text(ADDRESS_BYTES, &mut input)).transpose()?;
    input.end()?;
    Ok(Member {
        gateway,
        tap,
        instance,
        name,
        version,
        bucket,
        buckets,
        rule,
        prefixes,
        formats,
        clock,
        digests,
        address,
    })
}

fn write_text(text: &str, most: usize, out: &mut Writer) {
    let mut kept = String::new();
    for c in text.chars().filter(|c| !c.is_control()) {
        if kept.len() + c.len_utf8() > most {
            break;
        }
        kept.push(c);
    }
    out.whole(kept.len() as u64);
    out.bytes.extend_from_slice(kept.as_bytes());
}

/// Texts of others are logged and shown.
fn read_text(most: usize, input: &mut Reader<'_>) -> Result<String, FormatError> {
    let count = usize::try_from(input.whole()?).ok().filter(|count| *count <= most).ok_or(FormatError::Text)?;
    let text = std::str::from_utf8(input.bytes(count)?).map_err(|_| FormatError::Text)?;
    if text.chars().any(char::is_control) {
        return Err(FormatError::Text);
    }
    Ok(text.to_owned())
}
