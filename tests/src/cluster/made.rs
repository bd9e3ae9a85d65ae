//! Made-up gateways: what they would send, as fast as it is wanted, without packets.

use std::net::Ipv4Addr;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use spand_cells::{Cell, GatewayId, Pseudonyms, TapId, fingerprint};
use spand_core::config::WindowConfig;
use spand_core::types::{ConnectionId, RttSum, SampleRate};
use spand_core::window::bucket::{Bucket, Contribution, FullSum, QueueSum, RemoteRtt, Source};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};
use spand_share::format::{BatchWriter, Member, write_member};

/// Most connections in a cell; cells have one, two or three.
const CONNECTIONS: u64 = 3;
const SEGMENT: u64 = 1_448;

/// Gateways that see networks in turn, each every network once in a bucket or less often.
#[derive(Debug)]
pub struct MadeCells {
    gateways: Vec<u16>,
    networks: u32,
    bucket: Micros,
    random: SmallRng,
    next: u64,
}

impl MadeCells {
    /// These gateways, which all see the first `networks` of [`network`].
    pub fn new(gateways: Vec<u16>, networks: u32) -> Self {
        let bucket = WindowConfig::default().bucket;
        Self { gateways, networks, bucket, random: SmallRng::seed_from_u64(7), next: 0 }
    }

    /// Messages with the next `cells` cells, all of the bucket before the one of `now`.
    pub fn messages(&mut self, cells: u64, now: Timestamp) -> Vec<(GatewayId, Vec<u8>)> {
        let (mut messages, mut open) = (Vec::new(), None::<(GatewayId, BatchWriter)>);
        let finished = |(gateway, writer): (GatewayId, BatchWriter)| (gateway, writer.finish());
        for _ in 0..cells {
            let (gateway, number) = self.turn();
            let (network, cell) = (network(number), self.cell(gateway, number, now));
            if open.as_mut().is_some_and(|(of, writer)| *of == gateway && writer.add(network, &cell)) {
                continue;
            }
            let mut writer = BatchWriter::new(gateway, TapId::of_gateway(gateway), self.bucket);
            writer.add(network, &cell);
            messages.extend(open.replace((gateway, writer)).map(finished));
        }
        messages.extend(open.map(finished));
        messages
    }

    /// Who says who it is now.
    pub fn members(&self, now: Timestamp) -> Vec<(GatewayId, Vec<u8>)> {
        let member = |&gateway: &u16| {
            let gateway = GatewayId(gateway);
            let WindowConfig { bucket, buckets, .. } = WindowConfig::default();
            let member = Member {
                gateway,
                tap: TapId::of_gateway(gateway),
                instance: gateway.0.into(),
                name: format!("made-{}", gateway.0),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                bucket,
                buckets: buckets.get(),
                rule: RuleKind::default(),
                prefixes: fingerprint(&[]),
                clock: now,
                digests: Vec::new(),
                address: None,
            };
            (gateway, write_member(&member))
        };
        self.gateways.iter().map(member).collect()
    }

    /// Whose turn it is, and with which network.
    fn turn(&mut self) -> (GatewayId, u32) {
        let networks = u64::from(self.networks.max(1));
        let (round, place) = (self.next / networks, self.next % networks);
        self.next += 1;
        let turn = usize::try_from(round).unwrap_or_default() % self.gateways.len().max(1);
        (GatewayId(self.gateways.get(turn).copied().unwrap_or_default()), u32::try_from(place).unwrap_or_default())
    }

    /// One, two or three connections of half to twice 30 segments, by network, with a tenth of noise: most estimates stand still, some move.
    fn cell(&mut self, gateway: GatewayId, number: u32, now: Timestamp) -> Cell {
        let nanos = self.bucket.0 * 1_000;
        let index = (now.0 / nanos).saturating_sub(1);
        let end = Timestamp((index + 1) * nanos);
        let share = 30.0 * SEGMENT as f64 * (0.5 + 1.5 * f64::from(number % 97) / 97.0);
        let connections = 1 + u64::from(number) % CONNECTIONS;
        let rtt = RttSum { count: 20 * connections, sum: Micros(600_000 * connections), min: Some(Micros(25_000)) };
        let hashes: Vec<u64> = (0..connections).map(|_| self.random.random::<u64>()).collect();
        let contribution = |&hash: &u64| {
            let bytes = share * self.random.random_range(0.9..1.1);
            Contribution {
                bucket: index,
                source: Some(Source { remote: Pseudonyms::of_hash(hash), connection: ConnectionId(hash >> 3) }),
                samples: 2,
                loss_samples: 1,
                sum_bytes: 2.0 * bytes,
                loss_bytes: bytes,
                full: FullSum { samples: 1, bytes, by_rate: false },
                squares: 2.0 * bytes * bytes,
                carried: Window::from_bytes(bytes),
                mss: Bytes(SEGMENT),
                queued: QueueSum::default(),
                lower_bounds: 0,
                largest_bound: None,
            }
        };
        let mut contributions: Vec<_> = hashes.iter().map(contribution).collect();
        contributions.sort_by_key(|part| part.source);
        let round_trips = |&hash: &u64| RemoteRtt {
            bucket: index,
            remote: Pseudonyms::of_hash(hash),
            count: 20,
            sum: Micros(600_000),
        };
        let mut rtts: Vec<_> = hashes.iter().map(round_trips).collect();
        rtts.sort_by_key(|part| part.remote);
        Cell {
            gateway,
            tap: TapId::of_gateway(gateway),
            as_of: end,
            bucket: Bucket { index, rtt, losses: 1, window_limited: 3, ..Bucket::default() },
            contributions,
            rtts,
            followed: SampleRate::ALL,
            parallel: 2,
            parallel_at_samples: 1,
            newest_sample: Some(Timestamp(end.0 - nanos / 4)),
            raised: None,
        }
    }
}

/// The network of a number: /24s from 80.0.0.0 on, as played traffic and [`crate::starts::remote`] have them.
pub fn network(number: u32) -> Network {
    Network::of(Ipv4Addr::from_bits((80 << 24) + (number << 8)).into())
}

#[cfg(test)]
mod tests {
    use spand_cells::{Shares, Sharing};
    use spand_core::config::EngineConfig;
    use spand_core::engine::Engine;
    use spand_share::format::read_batch;

    use super::*;

    #[test]
    fn an_engine_takes_every_cell_and_has_an_estimate_of_every_network() {
        let now = Timestamp(1_700_000_003_000_000_000);
        let sharing = Sharing {
            gateway: GatewayId(1),
            tap: TapId::of_gateway(GatewayId(1)),
            pseudonyms: Pseudonyms::new([1; 16]),
        };
        let mut engine = Engine::new(EngineConfig::default()).sharing(Some(sharing));
        let mut made = MadeCells::new(vec![2, 3], 600);
        let messages = made.messages(1_200, now);
        assert!(messages.len() > 2 && messages.len() < 20, "{}", messages.len());
        for (gateway, message) in messages {
            for (network, cell) in read_batch(&message).unwrap().cells {
                assert_eq!(cell.gateway, gateway);
                engine.take_cell(network, cell, now).unwrap();
            }
        }
        engine.handle_timeout(now);
        assert_eq!(engine.networks().views(now).len(), 600);
        assert!(engine.networks().estimate(network(599), now).is_some());
        assert_eq!(engine.sharing_counts().unwrap().taken, 1_200);
    }
}
