//! A cell as bytes.

use std::net::IpAddr;

use spand_core::sharing::{GatewayId, Pseudonyms, TapId};
use spand_core::types::{ConnectionId, SampleRate};
use spand_core::window::bucket::{Contribution, RemoteRtt, Source};
use spand_core::window::cells::Cell;
use spand_core::window::record::{CONTRIBUTIONS_PER_BUCKET, REMOTES_PER_BUCKET};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

use super::network::{read_network, write_network};
use spand_core::encoding::numbers::{Malformed, Reader, Writer, bits, flags, optional, read_optional};
use spand_core::encoding::parts::{self, Layout};

/// Fewest bytes of a cell, of a contribution and of the round trips to an address.
pub(super) const LEAST: usize = 9 + parts::LEAST_BUCKET;
const LEAST_CONTRIBUTION: usize = 1 + parts::LEAST_CONTRIBUTION;
const LEAST_ROUND_TRIPS: usize = 10;

/// Most contributions of a cell: of the connections that are kept apart, and of a common rest.
pub(crate) const MOST_CONTRIBUTIONS: usize = CONTRIBUTIONS_PER_BUCKET + 1;

/// What the cells of a batch have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellHead {
    pub(super) gateway: GatewayId,
    pub(super) tap: TapId,
    pub(super) bucket: Micros,
}

/// Why a cell is not written.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Unwritable {
    #[error("it has an address that is not a pseudonym")]
    Address,
    #[error("it is of another gateway")]
    OfAnother,
    #[error("a part of it is of another bucket")]
    OtherBucket,
    #[error("its times lie outside of its bucket")]
    Times,
    #[error("it is larger than a message")]
    TooLarge,
}

/// When a bucket is, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
}

impl Span {
    /// `None` where there is no such bucket: it has no length, or time does not reach that far.
    fn of(index: u64, bucket: Micros) -> Option<Self> {
        let nanos = bucket.0.checked_mul(1_000).filter(|nanos| *nanos > 0)?;
        let start = index.checked_mul(nanos)?;
        Some(Self { start, end: start.checked_add(nanos)? })
    }

    /// How long after its start a moment of it is.
    fn offset(self, at: Timestamp) -> Option<u64> {
        (self.start..self.end).contains(&at.0).then(|| at.0 - self.start)
    }

    /// The moment so long after its start, if it is in it.
    fn at(self, offset: u64) -> Option<Timestamp> {
        (offset < self.end - self.start).then(|| Timestamp(self.start + offset))
    }
}

/// Writes a cell. Where it cannot be, part of it may be written.
pub(super) fn write(head: CellHead, network: Network, cell: &Cell, out: &mut Writer) -> Result<(), Unwritable> {
    let Cell {
        gateway,
        tap,
        as_of,
        bucket,
        contributions,
        rtts,
        followed,
        parallel,
        parallel_at_samples,
        newest_sample,
        raised,
    } = cell;
    if (*gateway, *tap) != (head.gateway, head.tap) {
        return Err(Unwritable::OfAnother);
    }
    let span = Span::of(bucket.index, head.bucket).ok_or(Unwritable::Times)?;
    let open = Some(*as_of).filter(|as_of| as_of.0 != span.end);
    let offset = |at: Option<Timestamp>| at.map(|at| span.offset(at).ok_or(Unwritable::Times)).transpose();
    write_network(network, out);
    out.whole(bucket.index);
    optional(out, &[offset(open)?, offset(*newest_sample)?, offset(*raised)?], Writer::whole);
    parts::write_bucket(bucket, out);
    out.whole(contributions.len() as u64);
    for contribution in contributions {
        of_bucket(contribution.bucket, bucket.index)?;
        write_source(contribution.source, out)?;
        parts::write_contribution(contribution, out);
    }
    out.whole(rtts.len() as u64);
    for RemoteRtt { bucket: of, remote, count, sum } in rtts {
        of_bucket(*of, bucket.index)?;
        out.fixed(hash(*remote)?);
        out.whole(*count);
        out.whole(sum.0);
    }
    // A share is never none, and all of it would need a ninth bit.
    out.byte(followed.parts().saturating_sub(1).to_le_bytes()[0]);
    out.whole((*parallel).into());
    out.whole((*parallel_at_samples).into());
    Ok(())
}

/// Reads a cell and its network.
pub(super) fn read(head: CellHead, layout: Layout, input: &mut Reader<'_>) -> Result<(Network, Cell), Malformed> {
    let network = read_network(input)?;
    let index = input.whole()?;
    let span = Span::of(index, head.bucket).ok_or(Malformed::Nonsense)?;
    let [open, newest_sample, raised] =
        read_optional(input, |input| span.at(input.whole()?).ok_or(Malformed::Nonsense))?;
    let bucket = parts::read_bucket(index, input)?;
    let contributions = input.list(LEAST_CONTRIBUTION, |input| read_contribution(index, layout, input))?;
    let rtts = input.list(LEAST_ROUND_TRIPS, |input| read_round_trips(index, input))?;
    // Cells wait by their number; no gateway writes larger ones.
    if contributions.len() > MOST_CONTRIBUTIONS || rtts.len() > REMOTES_PER_BUCKET {
        return Err(Malformed::Nonsense);
    }
    let followed = SampleRate::of_256(u16::from(input.byte()?) + 1);
    let (parallel, parallel_at_samples) = (input.narrow()?, input.narrow()?);
    let cell = Cell {
        gateway: head.gateway,
        tap: head.tap,
        as_of: open.unwrap_or(Timestamp(span.end)),
        bucket,
        contributions,
        rtts,
        followed,
        parallel,
        parallel_at_samples,
        newest_sample,
        raised,
    };
    Ok((network, cell))
}

fn of_bucket(index: u64, of: u64) -> Result<(), Unwritable> {
    if index == of { Ok(()) } else { Err(Unwritable::OtherBucket) }
}

/// What stands for an address: a real one has nothing that may be written.
fn hash(remote: IpAddr) -> Result<u64, Unwritable> {
    Pseudonyms::hash_of(remote).ok_or(Unwritable::Address)
}

fn write_source(source: Option<Source>, out: &mut Writer) -> Result<(), Unwritable> {
    out.byte(bits([source.is_some()]));
    if let Some(Source { remote, connection }) = source {
        out.fixed(hash(remote)?);
        out.fixed(connection.0);
    }
    Ok(())
}

fn read_contribution(index: u64, layout: Layout, input: &mut Reader<'_>) -> Result<Contribution, Malformed> {
    let [has_source] = flags(input.byte()?)?;
    let source = if has_source {
        let remote = Pseudonyms::of_hash(input.fixed()?);
        Some(Source { remote, connection: ConnectionId(input.fixed()?) })
    } else {
        None
    };
    parts::read_contribution(index, source, input, layout)
}

fn read_round_trips(index: u64, input: &mut Reader<'_>) -> Result<RemoteRtt, Malformed> {
    let remote = Pseudonyms::of_hash(input.fixed()?);
    Ok(RemoteRtt { bucket: index, remote, count: input.whole()?, sum: Micros(input.whole()?) })
}
