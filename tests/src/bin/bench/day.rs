//! A day of traffic: does the engine's memory stay what it was after the first hour?
//!
//! A generated trace goes straight into an engine with the limits of a gateway, which is driven as the gateway's thread drives it:
//! time passes between packets, changes and samples are taken every half second of the trace's time. Connections come and go,
//! wait for their end in the table, and networks age. The output is, per hour of the trace, the memory that the process holds.

use std::io::{self, Write};
use std::time::Instant;

use clap::Args;
use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_core::wire::Frame;
use spand_proto::units::{Micros, Timestamp};
use spand_tests::memory::resident_bytes;
use spand_tests::trace::{TraceConfig, write_trace};

/// Time between two looks at changes, as in the gateway.
const HOUSEKEEPING: Micros = Micros::from_millis(500);
const HOUR_NANOS: u64 = 3_600 * 1_000_000_000;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Hours of traffic.
    #[arg(long, default_value_t = 24)]
    hours: u64,
    /// Connections that send at a time.
    #[arg(long, default_value_t = 40)]
    connections: u32,
}

/// Takes a pcap file as it is written: header, then a record's header and its frame at a time.
struct Day {
    engine: Engine,
    hours: u64,
    begun: Option<Timestamp>,
    housekeeping: Timestamp,
    record: Option<(Timestamp, u32)>,
    packets: u64,
    header_seen: bool,
    /// What the process held at the end of each hour.
    held: Vec<u64>,
}

impl Day {
    fn packet(&mut self, at: Timestamp, wire_len: u32, data: &[u8]) -> io::Result<()> {
        let begun = *self.begun.get_or_insert(at);
        self.pass_time(at);
        self.engine.handle_frame(at, &Frame { link_type: 1, wire_len, input: 0, data });
        self.drain();
        self.packets += 1;
        if at.since(self.housekeeping) >= HOUSEKEEPING {
            self.housekeeping = at;
            while !self.engine.networks_mut().changed_records(4_000).is_empty() {}
            drop(self.engine.networks_mut().take_samples());
        }
        let hour = (at.0 - begun.0) / HOUR_NANOS;
        if hour > self.held.len() as u64 {
            self.tell_hour()?;
        }
        if hour >= self.hours { Err(io::Error::other("the day is over")) } else { Ok(()) }
    }

    fn tell_hour(&mut self) -> io::Result<()> {
        let held = resident_bytes("self").map_err(io::Error::other)?;
        self.held.push(held);
        println!(
            "hour {:>2}: {:>12} packets, {:>7} connections in the table, {:>6.1} MB held",
            self.held.len(),
            self.packets,
            self.engine.connections(),
            held as f64 / 1e6
        );
        Ok(())
    }

    fn pass_time(&mut self, now: Timestamp) {
        let mut latest = None;
        while let Some(due) = self.engine.poll_timeout().filter(|&due| due <= now && Some(due) > latest) {
            self.engine.handle_timeout(due);
            self.drain();
            latest = Some(due);
        }
    }

    fn drain(&mut self) {
        while self.engine.poll_event().is_some() {}
    }
}

impl Write for Day {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.header_seen {
            self.header_seen = true;
        } else if let Some((at, wire_len)) = self.record.take() {
            self.packet(at, wire_len, bytes)?;
        } else if let &[s0, s1, s2, s3, n0, n1, n2, n3, _, _, _, _, w0, w1, w2, w3] = bytes {
            let word = |bytes| u64::from(u32::from_le_bytes(bytes));
            let at = word([s0, s1, s2, s3]) * 1_000_000_000 + word([n0, n1, n2, n3]);
            self.record = Some((Timestamp(at), u32::from_le_bytes([w0, w1, w2, w3])));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let config = EngineConfig { internal: vec!["10.0.0.0/8".parse()?], ..EngineConfig::default() };
    let mut day = Day {
        engine: Engine::new(config),
        hours: arguments.hours,
        begun: None,
        housekeeping: Timestamp(0),
        record: None,
        packets: 0,
        header_seen: false,
        held: Vec::new(),
    };
    let trace = TraceConfig {
        packets: u64::MAX,
        connections: arguments.connections,
        loss: 0.01,
        networks: 5_000,
        snap_len: 96,
        seed: 1,
    };
    let begun = Instant::now();
    if let Err(error) = write_trace(&mut day, &trace)
        && day.held.len() as u64 != arguments.hours
    {
        return Err(error.into());
    }
    let first = day.held.first().copied().unwrap_or_default() as f64;
    let (least, most) = (day.held.iter().min(), day.held.iter().max());
    let percent = |held: Option<&u64>| held.map_or(0.0, |held| (*held as f64 / first - 1.0) * 100.0);
    println!(
        "against the end of the first hour: {:+.2} to {:+.2} %, {:.0} s",
        percent(least),
        percent(most),
        begun.elapsed().as_secs_f64()
    );
    println!("{:?}", day.engine.counters());
    Ok(())
}
