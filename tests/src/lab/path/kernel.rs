//! Paths made of the kernel's own parts: a veth pair, netem for delay and loss, tbf for the bottleneck. Guests have them (`kernels run`).

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use spand_proto::units::BytesPerSecond;

use super::config::{PathConfig, Queue};
use super::impairments::Impairments;
use super::seed;
use crate::lab::namespace::Namespace;

/// tbf's bucket. With two packets tbf keeps its rate although a timer fires late.
const BUCKET_BYTES: u64 = 2 * MTU_BYTES;
/// Largest IP packet of an Ethernet, and the header that the kernel counts with it.
const MTU_BYTES: u64 = 1_500;
const HEADER_BYTES: u64 = 14;
/// Packets that netem delays at a time.
const DELAYED_MOST: u32 = 100_000;
/// A rate at which netem takes no time, and keeps the order of packets with different delays.
const ORDERED: &str = "rate 100gbit";

/// What carries the packets between edge and clients.
#[derive(
    Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, serde::Deserialize, serde::Serialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// The emulator in user space.
    #[default]
    Emulator,
    /// The kernel's netem, tbf and `fq_codel`, which not every kernel has.
    Kernel,
}

/// What a direction has done. All counts only rise.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Packets delivered.
    pub delivered: u64,
    /// Packets dropped at the bottleneck, by its queue or its policer.
    pub queue_drops: u64,
    /// Packets lost otherwise.
    pub other_drops: u64,
}

/// One path.
#[derive(Clone, Debug)]
pub struct KernelPath {
    edge: Namespace,
    /// The edge's device.
    device: String,
    clients: Namespace,
    queue: u32,
}

impl KernelPath {
    /// Makes a path of `config` between the edge's `device` and the clients' `wan0`, which are joined.
    ///
    /// # Errors
    /// Where the kernel's parts cannot make such a path, or the kernel lacks them.
    pub fn make(edge: &Namespace, device: &str, clients: &Namespace, config: &PathConfig) -> Result<Self> {
        let down = config.down.impairments;
        let Impairments { loss, jitter, bunched, policer, .. } = down;
        let is_possible = down == Impairments { loss, jitter, bunched, policer, ..Impairments::default() }
            && config.up.impairments == Impairments { jitter, bunched, ..Impairments::default() };
        ensure!(
            is_possible && config.down.hops().chain(config.up.hops()).count() == 2,
            "the kernel's parts make paths with one bottleneck, loss, jitter, bunches and a policer: use the emulator for this one"
        );
        let hop = config.down.hop;
        let is_plain = hop.mark_above.is_none() && hop.cross.is_none() && hop.delay_change.is_none();
        ensure!(
            is_plain && hop.changes == [None; _],
            "the kernel's parts make no cross traffic, marks and planned changes"
        );
        let netem = |delay: std::time::Duration, loss: f64| {
            // Uniform around the middle, in place of above the delay.
            let half = jitter / 2;
            let mut words = vec![format!("netem limit {DELAYED_MOST} delay {}us", (delay + half).as_micros())];
            words.extend((!jitter.is_zero()).then(|| format!("{}us {ORDERED}", half.as_micros())));
            words.extend((!bunched.is_zero()).then(|| format!("slot {0}us {0}us", bunched.as_micros())));
            words.extend((loss > 0.0).then(|| format!("loss {}%", loss * 100.0)));
            words.join(" ")
        };
        clients.tc(&[&format!("qdisc add dev wan0 root handle 1: {}", netem(config.up.hop.delay, 0.0))])?;
        let mut lines = vec![format!("qdisc add dev {device} root handle 1: {}", netem(hop.delay, loss))];
        let path = |queue| Self { edge: edge.clone(), device: device.to_owned(), clients: clients.clone(), queue };
        let (rate, burst_bytes, inner, queue) = match (policer, hop.rate, hop.queue) {
            // Nearly no queue: a packet without tokens waits if no other does, and is dropped otherwise.
            (Some(policer), None, _) => (policer.rate, policer.burst_bytes, "pfifo limit 1".to_owned(), 1),
            (None, Some(rate), Queue::Packets(limit)) => (rate, BUCKET_BYTES, format!("pfifo limit {limit}"), limit),
            (None, Some(rate), Queue::FqCodel) => (rate, BUCKET_BYTES, "fq_codel".to_owned(), 1_000),
            _ => bail!("the kernel's parts make a bottleneck with a queue of packets, or a policer"),
        };
        let path = path(queue);
        lines.push(format!("qdisc add {}", path.bottleneck(rate, burst_bytes)));
        lines.push(format!("qdisc add dev {device} parent 10:1 handle 100: {inner}"));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        edge.tc(&lines).context("the kernel needs netem, tbf and fq_codel for paths of its own parts")?;
        if loss > 0.0 && jitter.is_zero() {
            edge.enter(|| seed::set(device, hop.delay, DELAYED_MOST, loss, config.seed))?;
        }
        Ok(path)
    }

    /// The bottleneck as `tc` takes it, which counts headers of the link.
    fn bottleneck(&self, rate: BytesPerSecond, burst_bytes: u64) -> String {
        let on_the_wire = |bytes: u64| bytes * (MTU_BYTES + HEADER_BYTES) / MTU_BYTES;
        format!(
            "dev {} parent 1:1 handle 10: tbf rate {}bps burst {} limit {}",
            self.device,
            on_the_wire(rate.0),
            on_the_wire(burst_bytes),
            self.queue,
        )
    }

    /// Changes the bottleneck's rate.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn set_rate(&self, rate: BytesPerSecond) -> Result<()> {
        self.edge.tc(&[&format!("qdisc change {}", self.bottleneck(rate, BUCKET_BYTES))])
    }

    /// What was carried to the clients, and back.
    ///
    /// # Errors
    /// Where `tc` fails or its output has no netem.
    pub fn counts(&self) -> Result<[Counts; 2]> {
        Ok([counts(&self.edge, &self.device)?, counts(&self.clients, "wan0")?])
    }
}

/// The counts of a device's qdiscs.
fn counts(namespace: &Namespace, device: &str) -> Result<Counts> {
    let output = namespace.command("tc").args(["-s", "-j", "qdisc", "show", "dev", device]).output();
    read(&output.context("cannot run `tc`")?.stdout).with_context(|| format!("`tc` shows no path at {device}"))
}

/// What `tc -s -j qdisc` prints. netem's drops are its own and those of what is in it.
fn read(printed: &[u8]) -> Result<Counts> {
    let qdiscs: Value = serde_json::from_slice(printed)?;
    let of = |kind: &str, key: &str| {
        let qdisc = qdiscs.as_array()?.iter().find(|qdisc| qdisc.get("kind").is_some_and(|found| found == kind))?;
        qdisc.get(key)?.as_u64()
    };
    let queue_drops = of("tbf", "drops").unwrap_or(0);
    let all = of("netem", "drops").context("there is no netem")?;
    let delivered = of("netem", "packets").unwrap_or(0);
    Ok(Counts { delivered, queue_drops, other_drops: all.saturating_sub(queue_drops) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bottlenecks_drops_are_no_random_losses() {
        let inner = r#"{"kind":"pfifo","handle":"100:","parent":"10:1","packets":90,"drops":7}"#;
        let tbf = r#"{"kind":"tbf","handle":"10:","parent":"1:1","packets":90,"drops":7}"#;
        let netem = r#"{"kind":"netem","handle":"1:","root":true,"packets":90,"drops":10}"#;
        let counts = read(format!("[{netem},{inner},{tbf}]").as_bytes()).unwrap();
        assert_eq!(counts, Counts { delivered: 90, queue_drops: 7, other_drops: 3 });
        let counts = read(format!("[{netem}]").as_bytes()).unwrap();
        assert_eq!(counts, Counts { delivered: 90, queue_drops: 0, other_drops: 10 });
        assert!(read(b"[]").is_err() && read(b"").is_err());
    }
}
