//! What cells differ in: the factors, their levels, and what a choice of levels means in numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use spand_proto::units::BytesPerSecond;

/// A factor: its name and the names of its levels. A weight says how often a level is drawn where nothing forces it.
#[derive(Debug)]
pub struct Factor {
    /// In results and tables.
    pub name: &'static str,
    /// Name and weight of each level.
    pub levels: &'static [(&'static str, u32)],
}

const fn factor(name: &'static str, levels: &'static [(&'static str, u32)]) -> Factor {
    Factor { name, levels }
}

/// Number of factors.
pub const FACTORS: usize = 24;

/// All factors. The first six are the heart of the design; the others are mostly at their first level, so that a cell has a
/// few difficulties and not all of them, but every pair of levels meets at least once.
pub const ALL: [Factor; FACTORS] = [
    factor("cc", &[("reno", 1), ("cubic", 1), ("bbr", 1)]),
    factor("rate", &[("1.6mbit", 1), ("10mbit", 1), ("50mbit", 1), ("100mbit", 1)]),
    factor("rtt", &[("20ms", 1), ("5ms", 1), ("100ms", 1), ("200ms", 1), ("400ms", 1)]),
    factor("buffer", &[("10pkt", 1), ("0.5bdp", 1), ("1bdp", 1), ("2bdp", 1), ("8bdp", 1)]),
    factor("work", &[("bulk", 2), ("30kb", 1), ("200kb", 1), ("reqresp", 1), ("steady", 1), ("receiver", 1)]),
    factor("flows", &[("1", 1), ("4", 1), ("16", 1)]),
    factor("acks", &[("delayed", 2), ("quick", 1)]),
    factor("sack", &[("sack", 4), ("nosack", 1)]),
    factor("timestamps", &[("ts", 4), ("nots", 1)]),
    factor("offloads", &[("off", 2), ("on", 1)]),
    factor("tap", &[("0ms", 4), ("1ms", 1), ("5ms", 1)]),
    factor("writes", &[("free", 6), ("mss", 1), ("nagle", 1)]),
    factor("family", &[("v4", 2), ("v6", 1)]),
    factor("loss", &[("none", 8), ("0.1%", 1), ("1%", 1), ("bursts", 1)]),
    factor("reordering", &[("none", 8), ("slight", 1), ("heavy", 1)]),
    factor("disturbance", &[("none", 9), ("outage", 1), ("stall", 1), ("tails", 1)]),
    factor("marks", &[("none", 5), ("ce", 1)]),
    factor("jitter", &[("none", 6), ("2ms", 1)]),
    factor("copies", &[("none", 8), ("0.5%", 1)]),
    factor("sharing", &[("none", 6), ("pareto", 1), ("two-hops", 1)]),
    factor("pacing", &[("none", 8), ("paced", 1)]),
    factor("idle", &[("restart", 8), ("kept", 1)]),
    factor("start", &[("seen", 8), ("midstream", 1)]),
    factor("change", &[("none", 9), ("rtt", 1), ("mtu", 1)]),
];

/// One choice of levels, by their numbers in [`ALL`].
pub type Levels = [u8; FACTORS];

/// A cell of the design.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cell {
    /// Its place in the plan, from 0.
    pub number: u32,
    /// Seed of everything random in it.
    pub seed: u64,
    /// Name of the level of each factor.
    pub levels: BTreeMap<String, String>,
}

impl Cell {
    /// A cell of these levels.
    pub fn new(number: u32, seed: u64, levels: &Levels) -> Self {
        let named = ALL.iter().zip(levels).map(|(factor, level)| {
            let (name, _) = factor.levels.get(usize::from(*level)).unwrap_or(&("?", 0));
            (factor.name.to_owned(), (*name).to_owned())
        });
        Self { number, seed, levels: named.collect() }
    }

    /// The level of a factor. What was kept before there was the factor is at its first level.
    pub fn level(&self, factor: &str) -> &str {
        let first = || ALL.iter().find(|known| known.name == factor)?.levels.first().map(|(name, _)| *name);
        self.levels.get(factor).map(String::as_str).or_else(first).unwrap_or("?")
    }

    /// Whether a factor is at this level.
    pub fn is(&self, factor: &str, level: &str) -> bool {
        self.level(factor) == level
    }

    /// Its first six levels, then what is unusual about it: enough to recognise it in a table.
    pub fn title(&self) -> String {
        let usual = |factor: &&Factor| factor.levels.first().is_none_or(|(first, _)| self.is(factor.name, first));
        let core = ALL.iter().take(6).map(|factor| self.level(factor.name).to_owned());
        let rest = ALL.iter().skip(6).filter(|factor| !usual(factor));
        let rest = rest.map(|factor| match self.level(factor.name) {
            level @ ("on" | "mss" | "none" | "0.1%" | "1%" | "0.5%" | "2ms" | "1ms" | "5ms" | "slight" | "heavy"
            | "kept" | "rtt" | "mtu") => {
                format!("{} {level}", factor.name)
            }
            level => level.to_owned(),
        });
        core.chain(rest).collect::<Vec<_>>().join(" ")
    }

    /// What makes it difficult: the factors after the seventh that are not at their first level. How often a receiver
    /// acknowledges (the seventh) is none.
    pub fn difficulties(&self) -> Vec<String> {
        let usual = |factor: &&Factor| factor.levels.first().is_none_or(|(first, _)| self.is(factor.name, first));
        let unusual = ALL.iter().skip(7).filter(|factor| !usual(factor));
        unusual.map(|factor| format!("{} {}", factor.name, self.level(factor.name))).collect()
    }

    /// Bytes of its transfers, where its work lists them.
    pub fn transfers(&self) -> Option<Vec<u64>> {
        transfers(self.level("work"))
    }

    /// What its levels mean.
    pub fn numbers(&self) -> Numbers {
        Numbers::of(|factor| self.level(factor))
    }
}

/// Bytes of the transfers that a level of `work` lists, as in `5000kb,100kb`: each has a connection of its own, one after the other.
pub fn transfers(work: &str) -> Option<Vec<u64>> {
    let listed = Some(work).filter(|work| work.contains(','))?.split(',');
    listed.map(|size| size.strip_suffix("kb")?.parse::<u64>().ok()?.checked_mul(1_000)).collect()
}

/// What levels mean in numbers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Bottleneck in IP bytes.
    pub rate: BytesPerSecond,
    /// Round trip of the empty path, as the run begins.
    pub rtt: Duration,
    /// The longest that it has: another one where the path changes.
    pub rtt_most: Duration,
    /// Packets before the bottleneck.
    pub queue: u32,
    /// Flows side by side.
    pub flows: u8,
    /// Seconds of the run; `None` where the levels do not go together.
    pub seconds: Option<f64>,
    /// When the path changes, where it does, from its first packet.
    pub change_after: Duration,
}

/// Largest IP packet here.
pub const PACKET_BYTES: f64 = 1_500.0;
/// A round trip that changes grows to this many times what it was: 40 to 100 ms.
pub const RTT_GROWS: f64 = 2.5;
/// A run lasts at least and at most this long.
const SECONDS_LEAST: f64 = 8.0;
const SECONDS_MOST: f64 = 60.0;

impl Numbers {
    fn of<'a>(level: impl Fn(&'static str) -> &'a str) -> Self {
        let rate_mbit = level("rate").trim_end_matches("mbit").parse::<f64>().unwrap_or(1.6);
        let rtt_ms = level("rtt").trim_end_matches("ms").parse::<f64>().unwrap_or(20.0);
        let flows = level("flows").parse::<u8>().unwrap_or(1);
        let rate = rate_mbit * 125_000.0;
        let bdp = rate * rtt_ms / 1e3 / PACKET_BYTES;
        let buffer = level("buffer");
        let queue = match buffer.strip_suffix("pkt") {
            Some(packets) => packets.parse().unwrap_or(10.0),
            None => (bdp * buffer.trim_end_matches("bdp").parse().unwrap_or(1.0)).ceil().max(2.0),
        };
        let grows = if level("change") == "rtt" { RTT_GROWS } else { 1.0 };
        let lasting = |grown: f64| {
            let capacity = bdp * grown + queue;
            let full_rtt = rtt_ms / 1e3 * grown + queue * PACKET_BYTES / rate;
            seconds(&level, capacity / f64::from(flows), capacity, full_rtt)
        };
        // No factor of the design: the small cases say how long they are.
        let configured: Option<f64> = level("seconds").parse().ok();
        // Each of two round trips gets its part of the run.
        let parts = lasting(1.0).zip(if grows > 1.0 { lasting(grows) } else { Some(0.0) });
        let seconds = configured.or_else(|| parts.map(|(before, after)| (before + after).min(SECONDS_MOST)));
        let before = parts.filter(|(_, after)| *after > 0.0).map_or(0.5, |(before, after)| before / (before + after));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "levels are small")]
        Self {
            rate: BytesPerSecond(rate as u64),
            rtt: Duration::from_secs_f64(rtt_ms / 1e3),
            rtt_most: Duration::from_secs_f64(rtt_ms / 1e3 * grows),
            queue: queue as u32,
            flows,
            seconds,
            change_after: Duration::from_secs_f64(seconds.unwrap_or_default() * before),
        }
    }

    /// The same for numbered levels.
    pub fn of_levels(levels: &Levels) -> Self {
        Self::of(|name| {
            let found = ALL.iter().zip(levels).find(|(factor, _)| factor.name == name);
            found.and_then(|(factor, level)| factor.levels.get(usize::from(*level))).map_or("?", |(name, _)| name)
        })
    }

    /// Packets that fit the path and its queue.
    pub fn capacity(&self) -> f64 {
        self.rate.0 as f64 * self.rtt.as_secs_f64() / PACKET_BYTES + f64::from(self.queue)
    }

    /// The longest round trip with the queue full.
    pub fn full_rtt(&self) -> Duration {
        self.rtt_most + Duration::from_secs_f64(f64::from(self.queue) * PACKET_BYTES / self.rate.0 as f64)
    }
}

/// How long such a cell must run. `None`: its sawtooth is longer than the longest run, nothing in it would be limited by what
/// its name says, a recovery without SACK would take all of the run, or a level would change nothing.
fn seconds<'a>(level: &impl Fn(&'static str) -> &'a str, share: f64, capacity: f64, full_rtt: f64) -> Option<f64> {
    // BBR paces always, so that a pacer changes nothing.
    if level("cc") == "bbr" && level("pacing") == "paced" {
        return None;
    }
    let long = matches!(level("work"), "bulk" | "receiver");
    if level("sack") == "nosack" && long && capacity > 250.0 {
        return None;
    }
    if level("sack") == "nosack" && capacity > 1_000.0 && level("work") != "30kb" {
        return None;
    }
    match level("work") {
        // Room for several times the window that the receiver allows.
        "receiver" if share < 24.0 => None,
        "receiver" => Some((40.0 * full_rtt).clamp(SECONDS_LEAST, 30.0)),
        "bulk" => {
            // BBR needs no loss but its probes: some rounds of eight, and a PROBE_RTT at ten seconds.
            let tooth = if level("cc") == "bbr" { 3.0 } else { tooth(level, share, full_rtt) };
            let begin = 15.0 * full_rtt;
            let seconds = begin + 5.0 * tooth;
            (begin + 3.0 * tooth <= SECONDS_MOST).then(|| seconds.clamp(SECONDS_LEAST, SECONDS_MOST))
        }
        _ => Some((24.0 * full_rtt).clamp(12.0, 30.0)),
    }
}

/// Seconds from one loss to the next: Reno's half window at a segment per round trip, CUBIC's plateau (RFC 9438 equation 2)
/// or its friendly region, whichever comes first; random losses cut either short.
fn tooth<'a>(level: &impl Fn(&'static str) -> &'a str, share: f64, full_rtt: f64) -> f64 {
    let by_chance = match level("loss") {
        "0.1%" | "bursts" => (1.5_f64 / 0.001).sqrt(),
        "1%" => (1.5_f64 / 0.01).sqrt(),
        _ => f64::INFINITY,
    };
    let peak = share.min(by_chance * 1.3).max(4.0);
    let reno = peak / 2.0 * full_rtt;
    if level("cc") == "reno" {
        return reno;
    }
    let plateau = (peak * 0.3 / 0.4).cbrt();
    let friendly = peak * 0.3 / 0.53 * full_rtt;
    (plateau * 1.2).min(friendly)
}
