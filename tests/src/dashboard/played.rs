//! Kept captures, played to an engine again and again at their own pace.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use spand_capture::{Next, PacketSource, open_file};
use spand_core::config::EngineConfig;
use spand_core::engine::Engine;
use spand_core::wire::Frame;
use spand_proto::units::{Micros, Timestamp};

use crate::cases::keep::capture_file;
use crate::lab::topology::{SERVER_V4, SERVER_V6};

/// What is left of the first round to be played live: hosts have subscribed when the next one begins.
const LEFT: Micros = Micros::from_secs(3);
/// Pause between two rounds, so that the last connections are over.
const PAUSE: Micros = Micros::from_secs(1);

struct Recorded {
    /// Since the first packet.
    at: Micros,
    link_type: u16,
    wire_len: u32,
    data: Vec<u8>,
}

/// An engine and what it is played.
pub(super) struct Played {
    pub(super) engine: Engine,
    packets: Vec<Recorded>,
    /// When the present round began, and its next packet.
    began: Timestamp,
    next: usize,
    pub(super) newest: Option<Timestamp>,
}

impl Played {
    /// Reads the captures of these cases, one after the other; all but the end of them is played at once.
    pub(super) fn new(cases: &[&str], now: Timestamp) -> Result<Self> {
        let internal = [IpNet::from(std::net::IpAddr::V4(SERVER_V4)), IpNet::from(std::net::IpAddr::V6(SERVER_V6))];
        let engine = Engine::new(EngineConfig { internal: internal.into(), ..EngineConfig::default() });
        let mut packets = Vec::new();
        for case in cases {
            read(case, &mut packets)?;
        }
        ensure!(cases.is_empty() || !packets.is_empty(), "the captures are empty");
        let length = packets.last().map_or(Micros(0), |packet| packet.at.plus(PAUSE));
        let mut played = Self { engine, packets, began: now.before(length).after(LEFT), next: 0, newest: None };
        // From here on the engine keeps account of what changes and of its samples.
        played.engine.networks_mut().changed_records(0);
        played.engine.networks_mut().take_samples();
        Ok(played)
    }

    /// Plays what is due by `now`; at the end of a round it starts again.
    pub(super) fn play(&mut self, now: Timestamp, mut after: impl FnMut(&mut Engine)) {
        while let Some(packet) = self.packets.get(self.next) {
            let at = self.began.after(packet.at);
            if at > now {
                break;
            }
            let frame = Frame { link_type: packet.link_type, wire_len: packet.wire_len, input: 0, data: &packet.data };
            self.engine.handle_frame(at, &frame);
            after(&mut self.engine);
            self.newest = Some(at);
            self.next += 1;
            if self.next == self.packets.len() {
                (self.began, self.next) = (at.after(PAUSE), 0);
            }
        }
        let due = now.before(Micros::from(Duration::from_millis(50)));
        while self.engine.poll_timeout().is_some_and(|timeout| timeout <= due) {
            self.engine.handle_timeout(due);
            after(&mut self.engine);
        }
    }
}

fn read(case: &str, packets: &mut Vec<Recorded>) -> Result<()> {
    let file = capture_file(case);
    let mut source = open_file(&file)?;
    let before = packets.last().map_or(Micros(0), |packet| packet.at.plus(PAUSE));
    let mut first = None;
    loop {
        match source.next_packet().with_context(|| format!("reading {}", file.display()))? {
            Next::Packet(packet) => {
                let first = *first.get_or_insert(packet.timestamp);
                packets.push(Recorded {
                    at: before.plus(packet.timestamp.since(first)),
                    link_type: packet.link_type.0,
                    wire_len: packet.wire_len,
                    data: packet.data.to_vec(),
                });
            }
            Next::Idle => {}
            Next::End => return Ok(()),
        }
    }
}

trait Plus {
    fn plus(self, other: Self) -> Self;
}

impl Plus for Micros {
    fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
