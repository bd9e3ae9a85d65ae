//! A cell in a message.

use serde::{Deserialize, Serialize};
use spand_cells::{Cell, GatewayId, Pseudonyms, TapId, WireNetwork};
use spand_core::types::{ConnectionId, SampleRate};
use spand_core::window::bucket::{Bucket, Contribution, RemoteRtt, Source};
use spand_core::window::record::{CONTRIBUTIONS_PER_BUCKET, REMOTES_PER_BUCKET};
use spand_proto::network::Network;
use spand_proto::units::{Micros, Timestamp};

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

/// Hash and connection.
type WireSource = ([u8; 8], [u8; 8]);

/// A cell without what its batch has. Of an address it has the hash in its pseudonym, and moments are nanoseconds after the bucket's start.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct WireCell {
    #[serde(with = "WireNetwork")]
    network: Network,
    bucket: Bucket,
    /// None of a closed bucket, which is as of its end.
    as_of: Option<u64>,
    newest_sample: Option<u64>,
    raised: Option<u64>,
    /// Each without bucket and source of its own.
    contributions: Vec<(Option<WireSource>, Contribution)>,
    /// Hash, count and sum.
    rtts: Vec<([u8; 8], u64, Micros)>,
    /// Parts of 256, less one: a share is never none, and all of it would need a ninth bit.
    followed: u8,
    parallel: u32,
    parallel_at_samples: u32,
}

impl WireCell {
    pub(super) fn new(head: CellHead, network: Network, cell: &Cell) -> Result<Self, Unwritable> {
        if (cell.gateway, cell.tap) != (head.gateway, head.tap) {
            return Err(Unwritable::OfAnother);
        }
        let index = cell.bucket.index;
        let span = Span::of(index, head.bucket).ok_or(Unwritable::Times)?;
        if cell.contributions.iter().any(|part| part.bucket != index)
            || cell.rtts.iter().any(|part| part.bucket != index)
        {
            return Err(Unwritable::OtherBucket);
        }
        let offset = |at: Option<Timestamp>| at.map(|at| span.offset(at).ok_or(Unwritable::Times)).transpose();
        // A real address has nothing that may be written.
        let hash = |remote| Pseudonyms::hash_of(remote).map(u64::to_le_bytes).ok_or(Unwritable::Address);
        let contribution = |part: &Contribution| {
            let source = part.source.map(|of| Ok((hash(of.remote)?, of.connection.0.to_le_bytes()))).transpose()?;
            Ok((source, Contribution { bucket: 0, source: None, ..part.clone() }))
        };
        Ok(Self {
            network,
            bucket: cell.bucket.clone(),
            as_of: offset(Some(cell.as_of).filter(|as_of| as_of.0 != span.end))?,
            newest_sample: offset(cell.newest_sample)?,
            raised: offset(cell.raised)?,
            contributions: cell.contributions.iter().map(contribution).collect::<Result<_, _>>()?,
            rtts: cell
                .rtts
                .iter()
                .map(|part| Ok((hash(part.remote)?, part.count, part.sum)))
                .collect::<Result<_, _>>()?,
            followed: cell.followed.parts().saturating_sub(1).to_le_bytes()[0],
            parallel: cell.parallel,
            parallel_at_samples: cell.parallel_at_samples,
        })
    }

    /// The cell and its network; `None` where no gateway writes such a cell.
    pub(super) fn read(self, head: CellHead) -> Option<(Network, Cell)> {
        // Cells wait by their number; no gateway writes larger ones.
        if self.contributions.len() > MOST_CONTRIBUTIONS || self.rtts.len() > REMOTES_PER_BUCKET {
            return None;
        }
        let index = self.bucket.index;
        let span = Span::of(index, head.bucket)?;
        let moment = |offset: Option<u64>| offset.map_or(Some(None), |offset| span.at(offset).map(Some));
        let remote = |hash| Pseudonyms::of_hash(u64::from_le_bytes(hash));
        let contribution = |(source, part): (Option<WireSource>, Contribution)| {
            let source = source.map(|(hash, connection)| Source {
                remote: remote(hash),
                connection: ConnectionId(u64::from_le_bytes(connection)),
            });
            Contribution { bucket: index, source, ..part }
        };
        let cell = Cell {
            gateway: head.gateway,
            tap: head.tap,
            as_of: moment(self.as_of)?.unwrap_or(Timestamp(span.end)),
            bucket: self.bucket,
            contributions: self.contributions.into_iter().map(contribution).collect(),
            rtts: self
                .rtts
                .into_iter()
                .map(|(hash, count, sum)| RemoteRtt { bucket: index, remote: remote(hash), count, sum })
                .collect(),
            followed: SampleRate::of_256(u16::from(self.followed) + 1),
            parallel: self.parallel,
            parallel_at_samples: self.parallel_at_samples,
            newest_sample: moment(self.newest_sample)?,
            raised: moment(self.raised)?,
        };
        Some((self.network, cell))
    }
}
