//! Burst TCP on this kernel (Gonçalves, 5.2): mice by the thesis's first window and by that of Linux.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_proto::growth::Growth;

use crate::accuracy::result::Health;
use crate::advised::{Advice, Stage};
use crate::benefit::path;
use crate::benefit::scenario::Arm as Sender;
use crate::benefit::stage::{configure, prefix};
use crate::benefit::timeline::{self, Timeline, Timelines};
use crate::campaign::statistics::quantile;
use crate::campaign::together;
use crate::lab::host::{Host, Mirrored};
use crate::lab::tap::Tap;
use crate::lab::topology::{NetworkPlan, SERVER_DEVICE};
use crate::lab::traffic::{Client, Conduct, Plan, Server};
use crate::lab::truth::FlowId;
use crate::papers::ns::Figures;
use crate::papers::row::{Programs, Setting};

/// Payload of a segment, and the sizes of mice in segments: Pareto of this scale and shape, up to the thesis's largest mouse.
const MSS: u64 = 1_024;
const SCALE: f64 = 4.0;
const SHAPE: f64 = 1.2;
const LARGEST: f64 = 32.0;
/// Transfers of the thesis's runs begin within this time.
const THESIS_S: f64 = 900.0;
/// How long transfers begin here.
const LASTING: Duration = Duration::from_secs(240);
/// The edge, as the server sees it.
const EDGE_V4: &str = "192.0.2.1";
/// Addresses of each network that ask in turn.
const CLIENTS: u8 = 20;
/// Far above any mouse: slow start ends with a loss.
const THRESHOLD: u32 = 1_000;

/// Who sends.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Burst TCP with this f on Reno, from a window in segments.
    Burst(u32, u32),
    /// A host of its own.
    Host(Sender),
}

const KINDS: [Kind; 7] = [
    Kind::Burst(4, 1),
    Kind::Burst(8, 1),
    Kind::Burst(4, 10),
    Kind::Burst(8, 10),
    Kind::Host(Sender::RenoFrom(1)),
    Kind::Host(Sender::RenoFrom(10)),
    Kind::Host(Sender::Cubic),
];

impl Kind {
    fn name(self) -> String {
        match self {
            Self::Burst(f, first) => format!("burst{f}-from{first}"),
            Self::Host(sender) => sender.name(),
        }
    }
}

const TIME: &str = "ms";
const MEDIAN: &str = "median_ms";
const AGAIN: &str = "repeats";
const FIRST_FLIGHT: &str = "first_flight";

fn figure(kind: Kind, what: &str) -> String {
    format!("{}_{what}", kind.name())
}

/// A mouse: when it begins, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mouse {
    begins: Duration,
    bytes: u64,
}

/// As many a second as `flows` of the thesis, in order.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers above zero")]
fn mice(flows: u32, seed: u64) -> Vec<Mouse> {
    let mut dice = StdRng::seed_from_u64(seed ^ 0x0b_75);
    let count = (f64::from(flows) * LASTING.as_secs_f64() / THESIS_S).round() as usize;
    let mut mice: Vec<Mouse> = (0..count)
        .map(|_| {
            let begins = LASTING.mul_f64(dice.random::<f64>());
            // The distribution's upper end is left out: elephants are no subject of this row.
            let most = 1.0 - (SCALE / LARGEST).powf(SHAPE);
            let packets = SCALE / (1.0 - most * dice.random::<f64>()).powf(1.0 / SHAPE);
            Mouse { begins, bytes: packets.ceil().min(LARGEST) as u64 * MSS }
        })
        .collect();
    mice.sort_by_key(|mouse| mouse.begins);
    mice
}

pub(super) fn run(setting: &Setting, seed: u64, _programs: &Programs) -> Result<Figures> {
    let mice = mice(setting.option("flows")?, seed);
    let path = path::Way { queue_packets: 7, mss: MSS, ..path::Way::reference(1_500, 45) };
    let mut networks = Vec::new();
    for (n, kind) in KINDS.into_iter().enumerate() {
        let plan = NetworkPlan { prefix: prefix(n)?, clients: CLIENTS, path: path.config(seed * 1_000 + n as u64) };
        networks.push((plan, advice(kind, &path)?));
    }
    let stage = Stage::build("reno", &networks)?;
    for (network, kind) in stage.lab.networks.iter().zip(KINDS) {
        network.namespace.ip(&[&format!("link set wan0 mtu {}", path.mtu())])?;
        // The first two segments leave together, by the window of before the start.
        if let Kind::Burst(_, first) = kind {
            let prefix = network.plan.prefix;
            stage.lab.server.ip(&[&format!("route add {prefix} via {EDGE_V4} initcwnd {first}")])?;
        }
    }
    let (senders, _servers) = senders(&stage)?;
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    let mut hosts: Vec<&Host> = senders.iter().collect();
    hosts.dedup_by_key(|host| host.address);
    let file = |host: &Host| folder.path().join(format!("{}.pcap", host.address));
    let tap = |host: &&Host| Tap::start_at_host(&host.namespace, SERVER_DEVICE, &file(host));
    let taps: Vec<Tap> = hosts.iter().map(tap).collect::<Result<_>>()?;
    let asked = transfers(&stage, &senders, &mice)?;
    thread::sleep(Duration::from_secs(2));
    let mut timelines = Timelines::new();
    for (host, tap) in hosts.iter().zip(taps) {
        ensure!(tap.finish()?.dropped == 0, "a recording has holes");
        timelines.extend(timeline::read(&file(host), host.address, stage.lab.port)?);
    }
    Health::check_paths(&stage.lab.emulator)?;
    // A connection whose SYN-ACK was lost is left alone by the agent, and says nothing of a start: of no kind.
    let seen: Asked = asked.into_iter().filter(|(.., flow)| !is_repeated(&timelines, flow)).collect();
    let advised = seen.iter().filter(|(kind, ..)| matches!(kind, Kind::Burst(..))).count() as u64;
    ensure!(stage.started() >= advised, "{} of {advised} connections started on advice", stage.started());
    figures(&seen, &timelines)
}

fn is_repeated(timelines: &Timelines, flow: &FlowId) -> bool {
    timeline_of(timelines, flow).is_some_and(Timeline::repeated_its_syn)
}

fn timeline_of<'a>(timelines: &'a Timelines, flow: &FlowId) -> Option<&'a Timeline> {
    timelines.get(flow)?.first()
}

fn advice(kind: Kind, path: &path::Way) -> Result<Option<Advice>> {
    let Kind::Burst(f, first) = kind else { return Ok(None) };
    let growth = Growth::Burst { f: NonZeroU32::new(f).context("f is above 0")? };
    Ok(Some(Advice::start(first, THRESHOLD, MSS, path.rtt()).growing(growth)))
}

/// The host of each kind, and what keeps their servers up: all on advice share the lab's.
fn senders(stage: &Stage) -> Result<(Vec<Host>, Vec<Server>)> {
    let (mut hosts, mut servers) = (Vec::new(), Vec::new());
    let mut number = 0;
    for kind in KINDS {
        let Kind::Host(sender) = kind else {
            hosts.push(stage.lab.server_host());
            continue;
        };
        let host = stage.lab.add_host(number, &sender.name(), Mirrored::No)?;
        number += 1;
        configure(&host.namespace, sender)?;
        servers.push(Server::start_with(&host.namespace, stage.lab.port, &Conduct::default())?);
        hosts.push(host);
    }
    Ok((hosts, servers))
}

/// The connection of each mouse of each kind.
type Asked = Vec<(Kind, Mouse, FlowId)>;

/// Every kind sends the same mice at the same times.
fn transfers(stage: &Stage, senders: &[Host], mice: &[Mouse]) -> Result<Asked> {
    let begin = Instant::now() + Duration::from_secs(1);
    let kinds = KINDS.into_iter().zip(senders).zip(&stage.lab.networks).map(|((kind, sender), network)| {
        let target = SocketAddr::new(sender.address, stage.lab.port);
        move || {
            // A thread for each mouse from its time on: all of them at once would be thousands.
            let due = mice.iter().zip(network.addresses.iter().cycle()).map(|(mouse, from)| {
                let work = move || {
                    let mut client = network.namespace.enter(|| Client::connect(*from, target))?;
                    let got = client.ask(&Plan::transfer(Plan::AS_THE_HOST, mouse.bytes))?;
                    Ok((kind, *mouse, FlowId { local: target, remote: got.local }))
                };
                thread::sleep((begin + mouse.begins).saturating_duration_since(Instant::now()));
                work
            });
            together::all(due)
        }
    });
    together::all(kinds).map(|asked| asked.concat())
}

fn figures(asked: &Asked, timelines: &Timelines) -> Result<Figures> {
    let mut figures = Figures::new();
    for kind in KINDS {
        let name = kind.name();
        let of_it = asked.iter().filter(|(other, ..)| other.name() == name);
        let seen = of_it.map(|(_, mouse, flow)| {
            let timeline = timeline_of(timelines, flow).and_then(|timeline| timeline.transfer(0, mouse.bytes));
            timeline.with_context(|| format!("a transfer of {name} was not seen whole"))
        });
        let seen: Vec<timeline::Seen> = seen.collect::<Result<_>>()?;
        let mean = |of: fn(&timeline::Seen) -> f64| seen.iter().map(of).sum::<f64>() / seen.len().max(1) as f64;
        let median = quantile(seen.iter().map(|one| one.completion_ms), 0.5).context("no transfer")?;
        figures.insert(figure(kind, TIME), mean(|one| one.completion_ms));
        figures.insert(figure(kind, MEDIAN), median);
        figures.insert(figure(kind, AGAIN), mean(|one| f64::from(one.again)));
        let first = quantile(seen.iter().map(|one| f64::from(one.first_flight)), 0.5).context("no transfer")?;
        figures.insert(figure(kind, FIRST_FLIGHT), first);
        figures.insert(figure(kind, "transfers"), seen.len() as f64);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mice_are_as_many_and_as_long_as_the_thesis_has_them() {
        let mice = mice(1_250, 1);
        assert_eq!(mice.len(), 333);
        assert!(mice.is_sorted_by_key(|mouse| mouse.begins) && mice.iter().all(|mouse| mouse.begins < LASTING));
        let packets: Vec<u64> = mice.iter().map(|mouse| mouse.bytes / MSS).collect();
        assert!(packets.iter().all(|packets| (4..=32).contains(packets)), "{packets:?}");
        // The median of the distribution is 6.7 packets; sizes are rounded up.
        let above = packets.iter().filter(|packets| **packets > 7).count();
        assert!((120..210).contains(&above), "{above} of 333 are above 7 packets");
        assert_eq!(mice, super::mice(1_250, 1));
        assert_ne!(mice, super::mice(1_250, 2));
    }
}
