//! What an engine that follows fewer connections makes of networks, against one that follows all, on one generated trace.
//!
//! The networks' sizes follow a power law: the n-th has 1/n of the connections of the first. Every 30 s both engines are asked for every
//! network. Printed are the differences of the shares of thinned networks and of the others, and the processor time and the connections of
//! both engines.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use spand_core::config::{EngineConfig, Limits};
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::networks::view::NetworkView;
use spand_core::types::SampleRate;
use spand_core::wire::Frame;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;
use spand_tests::campaign::statistics::quantile;
use spand_tests::memory::thread_time;
use spand_tests::trace::connection::Connection;
use spand_tests::trace::packet::{Packet, Tuple};
use spand_tests::trace::{TraceConfig, frame, generate_with};

/// Compares an engine that follows fewer connections with one that follows all
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Connections at a time
    #[arg(long, default_value_t = 1_000)]
    connections: u32,
    /// Networks of their clients
    #[arg(long, default_value = "100")]
    networks: NonZeroU32,
    /// Length of the trace in seconds
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// Seed of the trace
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Both engines are alike until then.
const ALIKE_S: u64 = 20;
/// They are compared this often after that.
const COMPARED_S: u64 = 30;
/// Bits of the number of a client's network in the trace, from which its rank follows.
const NETWORK_BITS: u32 = 16;

/// Packets that one engine takes before the other takes the same, so that asking for the time costs nothing.
const BATCH: usize = 1_024;

struct Record {
    at: Timestamp,
    start: usize,
    wire_len: usize,
}

/// Packets that wait for both engines.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    records: Vec<Record>,
}

impl Batch {
    fn frames(&self) -> impl Iterator<Item = (Timestamp, Frame<'_>)> {
        let ends = self.records.iter().skip(1).map(|next| next.start).chain([self.bytes.len()]);
        self.records.iter().zip(ends).map(|(record, end)| {
            let data = self.bytes.get(record.start..end).unwrap_or_default();
            let wire_len = u32::try_from(record.wire_len).unwrap_or(u32::MAX);
            (record.at, Frame { link_type: 1, wire_len, input: 0, data })
        })
    }
}

struct Side {
    engine: Engine,
    time: Duration,
    starts: u64,
    most_connections: usize,
}

impl Side {
    fn new() -> Self {
        let internal = "10.0.0.0/8".parse().into_iter().collect();
        let mut engine =
            Engine::new(EngineConfig { limits: Limits::for_replay(), internal, ..EngineConfig::default() });
        engine.keep(SampleRate::ALL);
        Self { engine, time: Duration::ZERO, starts: 0, most_connections: 0 }
    }

    fn take(&mut self, batch: &Batch) -> Result<()> {
        let begun = thread_time()?;
        for (at, frame) in batch.frames() {
            self.engine.handle_frame(at, &frame);
            while let Some(event) = self.engine.poll_event() {
                self.starts += u64::from(matches!(event, Event::StartImminent(_)));
            }
        }
        self.time += thread_time()?.saturating_sub(begun);
        self.most_connections = self.most_connections.max(self.engine.connections());
        Ok(())
    }

    fn views(&self, now: Timestamp) -> BTreeMap<Network, NetworkView> {
        self.engine.networks().views(now).into_iter().map(|view| (view.network, view)).collect()
    }
}

/// What the comparisons found.
#[derive(Default)]
struct Found {
    /// Differences of the shares of thinned networks, where both rest on losses.
    shares: Vec<f64>,
    /// The same where one is a lower bound.
    bounds: Vec<f64>,
    /// Differences of the connections at once of thinned networks.
    parallel: Vec<f64>,
    /// Thinned networks that have an estimate on one side alone.
    one_sided: usize,
    /// Differences of the shares of the other networks.
    others: Vec<f64>,
    /// Other networks with other losses, round trips or connections.
    touched: usize,
    /// Networks that only the engine without thinning has.
    missing: usize,
}

impl Found {
    fn compare(&mut self, all: &Side, thinned: &Side, now: Timestamp) {
        let thinned = thinned.views(now);
        for (network, view) in all.views(now) {
            let Some(other) = thinned.get(&network) else {
                self.missing += 1;
                continue;
            };
            let is_thinned = other.followed < SampleRate::ALL;
            let measured = |view: &NetworkView| (view.losses, view.rtt_min, view.rtt_mean, view.connections);
            self.touched += usize::from(!is_thinned && measured(&view) != measured(other));
            match (view.estimate, &other.estimate) {
                (Some(all), Some(thinned)) => {
                    let difference = (thinned.share.bytes() / all.share.bytes() - 1.0).abs();
                    let by_losses = !all.is_lower_bound && !thinned.is_lower_bound;
                    match (is_thinned, by_losses) {
                        (true, true) => self.shares.push(difference),
                        (true, false) => self.bounds.push(difference),
                        (false, _) => self.others.push(difference),
                    }
                    if is_thinned {
                        self.parallel.push((f64::from(other.parallel) / f64::from(view.parallel.max(1)) - 1.0).abs());
                    }
                }
                (None, None) => {}
                _ => self.one_sided += usize::from(is_thinned),
            }
        }
    }
}

/// The rank of each number of a network: its logarithm is even, so the n-th network has a part in 1/n.
fn ranks(networks: NonZeroU32) -> Vec<u32> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the number of networks")]
    let rank = |number: u32| {
        let even = f64::from(number) / f64::from(1u32 << NETWORK_BITS);
        ((even * f64::from(networks.get()).ln()).exp() as u32).saturating_sub(1)
    };
    (0..1 << NETWORK_BITS).map(rank).collect()
}

fn ranked(tuple: &Tuple, ranks: &[u32]) -> Tuple {
    let ((address, port), places) = (tuple.client, ranks.len());
    let (number, host) = (usize::try_from(address.to_bits() >> 8).unwrap_or(0) % places, address.to_bits() & 0xff);
    let rank = ranks.get(number).copied().unwrap_or(0);
    Tuple { client: (Ipv4Addr::from_bits(0x5000_0000 | rank << 8 | host), port), ..*tuple }
}

/// The median and the ninth decile of differences, in words.
fn percent(differences: &[f64]) -> String {
    let of = |part| quantile(differences.iter().copied(), part).map(|difference| 100.0 * difference);
    match (of(0.5), of(0.9)) {
        (Some(median), Some(most)) => format!("median {median:.1} %, p90 {most:.1} % of {}", differences.len()),
        _ => "none".to_owned(),
    }
}

/// The probability of loss of a connection: its network's path carries a window of 15 to 115 segments, which rises and falls by a sixth
/// within a minute.
fn loss(connection: &Connection, at_ns: u64, ranks: &[u32]) -> f64 {
    let rank = f64::from(ranked(connection.tuple(), ranks).client.0.to_bits() >> 8 & 0xffff);
    let (seconds, phase) = (at_ns as f64 / 1e9, rank * 2.4);
    let window = (15.0 + (rank * 37.0) % 100.0) * (1.0 + (seconds / 60.0 * std::f64::consts::TAU + phase).sin() / 6.0);
    if connection.in_flight() > window { 0.15 } else { 0.0005 }
}

fn compare(arguments: &Arguments, kept: SampleRate) -> Result<()> {
    let &Arguments { connections, networks, seconds, seed } = arguments;
    let config =
        TraceConfig { packets: u64::MAX, connections, loss: 0.0, networks: 1 << NETWORK_BITS, snap_len: 96, seed };
    let (mut all, mut thinned, mut found) = (Side::new(), Side::new(), Found::default());
    let ranks = ranks(networks);
    let (mut buffer, mut ip_id, mut next_s) = (Vec::new(), 0u16, ALIKE_S + COMPARED_S);
    let (mut packets, mut batch, mut taken) = (0u64, Batch::default(), Ok(()));
    let take = |at_ns, tuple: &Tuple, packet: &Packet| {
        let at = Timestamp(frame::EPOCH_SECONDS * 1_000_000_000 + at_ns);
        (ip_id, packets) = (ip_id.wrapping_add(1), packets + 1);
        let wire_len = frame::encode(&mut buffer, ip_id, at_ns, &ranked(tuple, &ranks), packet);
        buffer.truncate(config.snap_len);
        batch.records.push(Record { at, start: batch.bytes.len(), wire_len });
        batch.bytes.extend_from_slice(&buffer);
        if batch.records.len() < BATCH {
            return true;
        }
        taken = all.take(&batch).and_then(|()| thinned.take(&batch));
        batch = Batch::default();
        if at_ns >= ALIKE_S * 1_000_000_000 && thinned.engine.kept() != kept {
            thinned.engine.keep(kept);
            (all.time, thinned.time) = (Duration::ZERO, Duration::ZERO);
        }
        if at_ns >= next_s * 1_000_000_000 {
            next_s += COMPARED_S;
            found.compare(&all, &thinned, at);
            if std::io::stderr().is_terminal() {
                eprint!("\r{} of {seconds} s ", at_ns / 1_000_000_000);
            }
        }
        taken.is_ok() && at_ns < seconds * 1_000_000_000
    };
    generate_with(&config, |connection, at_ns| loss(connection, at_ns, &ranks), take);
    taken?;
    let differing = found.others.iter().filter(|difference| **difference > 0.0).count();
    println!("\n{} of 256 starts, {packets} packets:", kept.parts());
    println!(
        "  shares of thinned networks, by losses: {}; {} are on one side alone",
        percent(&found.shares),
        found.one_sided
    );
    println!("  the same where one is a lower bound: {}", percent(&found.bounds));
    println!("  their connections at once: {}", percent(&found.parallel));
    println!("  shares of the other networks: {}; {differing} differ", percent(&found.others));
    println!("  other networks with other losses, round trips or connections: {}", found.touched);
    println!("  networks that are missing: {}", found.missing);
    println!("  starts announced: {} of {}", thinned.starts, all.starts);
    println!(
        "  of what following all takes: time {:.2}, most connections {:.2}",
        thinned.time.as_secs_f64() / all.time.as_secs_f64(),
        thinned.most_connections as f64 / all.most_connections as f64
    );
    Ok(())
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    for parts in [128, 64, 16] {
        compare(arguments, SampleRate::of_256(parts))?;
    }
    Ok(())
}
