//! Several engines side by side, each with the networks that are its own.
//!
//! A network belongs to one engine, by a hash under the secret seed, and so does every sender whose remote end lies in it.
//! So no estimate is split between two engines, and no engine waits for another. A connection with
//! one end inside belongs to one engine. With both ends inside, or no prefixes configured, each of its two
//! senders is followed by the engine of the other's network; one of the two engines, its home, counts it.
//!
//! What an engine learns of hosts (their congestion control) it learns from its own connections alone. The sizes of
//! services' transfers belong to the first engine; the others send them ([`crate::event::Event::TransferEnded`]).

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::num::NonZeroU32;

use spand_proto::network::Network;

use crate::config::{EngineConfig, Shard};
use crate::flow::prefixes::Prefixes;
use crate::hash::SeededState;
use crate::wire::{self, Frame};

/// Says which engine a frame is for, before anything has looked into it.
#[derive(Clone, Debug)]
pub struct Partition {
    prefixes: Prefixes,
    count: NonZeroU32,
    seed: u64,
}

/// Which engines take a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Takers {
    /// This one.
    One(u32),
    /// Both; the first is its home, which counts it.
    Two(u32, u32),
    /// Every engine that owns a part of it: the frame has to be parsed first. The first engine counts it.
    All,
}

/// What an engine does with a frame or a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Claim {
    /// Takes and counts it.
    Home,
    /// Takes it; another counts it.
    Guest,
    /// It is another's.
    Nothing,
    /// That is known when it has been decoded.
    Unknown,
}

impl Partition {
    /// Divides among `count` engines of this configuration.
    pub fn new(config: &EngineConfig, count: NonZeroU32) -> Self {
        Self { prefixes: Prefixes::new(&config.internal, &config.prefixes), count, seed: config.hash_seed }
    }

    /// The engine that a network belongs to.
    pub fn owner(&self, network: Network) -> u32 {
        let upper = SeededState(self.seed).hash_one(network) >> 32;
        // The upper half of a product in place of a remainder: as even, without a division.
        u32::try_from((upper * u64::from(self.count.get())) >> 32).unwrap_or(0)
    }

    /// Whether any address may belong to `network`.
    pub fn makes(&self, network: Network) -> bool {
        self.prefixes.makes(network)
    }

    /// The engines that take a frame.
    pub fn takers(&self, frame: &Frame<'_>) -> Takers {
        match wire::addresses(frame) {
            Some((source, destination)) => self.takers_of(source, destination),
            None => Takers::All,
        }
    }

    /// The engine that the network of `address` belongs to.
    pub fn owner_of(&self, address: IpAddr) -> u32 {
        self.owner(self.prefixes.network_of(address))
    }

    fn takers_of(&self, source: IpAddr, destination: IpAddr) -> Takers {
        let inside = |address| self.prefixes.is_internal(address);
        match (inside(source), inside(destination)) {
            (true, false) => Takers::One(self.owner_of(destination)),
            (false, true) => Takers::One(self.owner_of(source)),
            // Of no engine's network: any engine may count it, not necessarily the same for both directions.
            (false, false) if !self.prefixes.is_bare() => Takers::One(self.owner_of(destination)),
            _ => {
                let (home, other) = (self.owner_of(source.min(destination)), self.owner_of(source.max(destination)));
                if home == other { Takers::One(home) } else { Takers::Two(home, other) }
            }
        }
    }
}

/// An engine's own part of the traffic.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// `None` for the only engine: everything is its own.
    division: Option<(u32, Partition)>,
}

impl Part {
    pub(crate) fn of(config: &EngineConfig) -> Self {
        let Shard { index, count } = config.shard;
        Self { division: (count.get() > 1).then(|| (index, Partition::new(config, count))) }
    }

    /// Whether this is the engine that keeps what must not be divided.
    pub(crate) fn is_first(&self) -> bool {
        self.division.as_ref().is_none_or(|(index, _)| *index == 0)
    }

    /// Whether the network is its own, which is only asked for where there are several engines.
    #[inline]
    pub(crate) fn owns(&self, network: impl FnOnce() -> Network) -> bool {
        self.division.as_ref().is_none_or(|(index, partition)| partition.owner(network()) == *index)
    }

    /// What to do with a frame.
    #[inline]
    pub(crate) fn claim_frame(&self, frame: &Frame<'_>) -> Claim {
        self.division.as_ref().map_or(Claim::Home, |(index, partition)| claim(*index, partition.takers(frame)))
    }

    /// What to do with a segment between these addresses.
    pub(crate) fn claim_segment(&self, source: IpAddr, destination: IpAddr) -> Claim {
        let division = self.division.as_ref();
        division.map_or(Claim::Home, |(index, partition)| claim(*index, partition.takers_of(source, destination)))
    }
}

fn claim(index: u32, takers: Takers) -> Claim {
    match takers {
        Takers::One(home) | Takers::Two(home, _) if home == index => Claim::Home,
        Takers::Two(_, other) if other == index => Claim::Guest,
        Takers::One(_) | Takers::Two(..) => Claim::Nothing,
        Takers::All => Claim::Unknown,
    }
}
