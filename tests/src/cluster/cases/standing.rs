//! A site under traffic, with a host that listens at each gateway: what the cases of failures begin with and look at.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use spand_core::config::WindowConfig;
use spand_gateway::publisher::{MonotonicClock, PacketClock};

use super::{Programs, Row, Size};
use crate::cluster::gateway::{Gateway, Known};
use crate::cluster::listener::Listener;
use crate::cluster::site::Site;
use crate::cluster::traffic::{Place, Played, Traffic, everywhere};
use crate::ending::{progress, wait};

/// How often gateways are asked.
const EVERY: Duration = Duration::from_millis(250);

/// All of it.
pub(super) struct Standing {
    pub(super) site: Site,
    pub(super) listeners: Vec<Listener>,
    /// Networks of the traffic.
    pub(super) networks: usize,
    traffic: Option<Traffic>,
}

/// How long gateways heard nothing of each other while they were watched.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    /// The longest time in which one received no cell of one of the others.
    pub(super) longest: Duration,
    /// The latest that a closed cell came after the end of its bucket.
    pub(super) closed_lag: Duration,
}

impl Standing {
    /// Three servers, gateways, traffic of which each connection is seen at the taps that `place` names; when the first buckets are over.
    /// `None` where there is no program to start as a server.
    pub(super) fn start(programs: &Programs, size: Size, lines: &str, place: Place) -> Result<Option<Self>> {
        let Some(site) = Site::start(programs, 3, Self::gateways(size), lines)? else { return Ok(None) };
        Self::at(site, size, place).map(Some)
    }

    /// How many gateways there are.
    pub(super) const fn gateways(size: Size) -> u16 {
        match size {
            Size::Full => 4,
            Size::Quick => 2,
        }
    }

    /// The same at a site that runs.
    pub(super) fn at(site: Site, size: Size, place: Place) -> Result<Self> {
        let gateways = Self::gateways(size);
        let (networks, connections) = match size {
            // So dense that no network loses its estimate by itself.
            Size::Full => (1_000, 400),
            Size::Quick => (40, 60),
        };
        let played = Played { connections, networks, loss: 0.02, place, seed: 11 };
        let traffic = Some(Traffic::start(&site.namespace, (1..=gateways).collect(), played)?);
        let listeners: Vec<_> =
            (1..=gateways).map(|number| Listener::start(&site.namespace, number)).collect::<Result<_>>()?;
        wait("the first buckets", Duration::from_secs(if size == Size::Full { 30 } else { 12 }));
        listeners.iter().for_each(Listener::begin);
        let networks = usize::try_from(networks)?;
        Ok(Self { site, listeners, networks, traffic })
    }

    /// Withdrawals that hosts got since [`Listener::begin`], and streams that ended.
    pub(super) fn lost(&self) -> (usize, usize) {
        self.listeners
            .iter()
            .map(|listener| listener.look(|log| (log.withdrawn.len(), log.ended)))
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Watches all gateways for so long.
    pub(super) fn watch(&self, what: &str, length: Duration) -> Result<Silence> {
        let (begun, mut silence) = (Instant::now(), Silence::default());
        // Cells that each gateway received of each other one, and when that last became more.
        let mut last: BTreeMap<(u16, u64), (f64, Instant)> = BTreeMap::new();
        while begun.elapsed() < length {
            progress(&format!("{what}: {} s to go", length.saturating_sub(begun.elapsed()).as_secs()));
            for gateway in &self.site.gateways {
                let view = gateway.json("/v1/share")?;
                for member in view["members"].as_array().context("no members in the answer")? {
                    let received = member["cells_received"].as_f64().unwrap_or_default();
                    let pair = (gateway.number(), member["gateway"].as_u64().unwrap_or_default());
                    let (cells, at) = last.entry(pair).or_insert((received, begun));
                    if received > *cells {
                        *at = Instant::now();
                    }
                    // One that was forgotten counts from nothing.
                    *cells = received;
                }
                let longest = last.values().map(|(_, at)| at.elapsed()).max().unwrap_or_default();
                silence.longest = silence.longest.max(longest);
                let lag = view["lag"]["closed_s"].as_f64().unwrap_or_default();
                silence.closed_lag = silence.closed_lag.max(Duration::from_secs_f64(lag.max(0.0)));
            }
            std::thread::sleep(EVERY);
        }
        Ok(silence)
    }

    /// Ends the traffic and waits until the buckets with it are over.
    pub(super) fn end_traffic(&mut self) -> Result<()> {
        if let Some(traffic) = self.traffic.take() {
            traffic.stop()?;
        }
        end_of_bucket();
        Ok(())
    }

    /// Has every tap see the same connections for a bucket, once the traffic has ended: a gateway shows a network as of its last change, and so
    /// all of them show it as of a time after that bucket.
    pub(super) fn look_at_all(&self) -> Result<()> {
        let gateways = self.site.gateways.iter().map(Gateway::number).collect();
        let networks = u32::try_from(self.networks)?;
        let played = Played { connections: networks, networks, loss: 0.02, place: everywhere, seed: 12 };
        let traffic = Traffic::start(&self.site.namespace, gateways, played)?;
        wait("a bucket that all taps see", until_next_bucket().saturating_sub(Duration::from_secs(1)));
        traffic.stop()?;
        end_of_bucket();
        Ok(())
    }

    /// Waits until all gateways know the same to the last bit, for so long at most; how long that took and how many networks they know.
    /// Where they do not come to that, how many networks differ, and how one does.
    pub(super) fn agree(&self, within: Duration) -> Result<Result<(Duration, usize), String>> {
        agree(&self.site.gateways.iter().collect::<Vec<_>>(), within)
    }
}

/// The same of these gateways.
pub(super) fn agree(gateways: &[&Gateway], within: Duration) -> Result<Result<(Duration, usize), String>> {
    let begun = Instant::now();
    loop {
        between_buckets();
        let known: Vec<BTreeMap<String, Known>> = gateways.iter().map(|one| one.known()).collect::<Result<_>>()?;
        let differ = differing(&known);
        let estimates = known.iter().flat_map(BTreeMap::values).filter(|known| known.share.is_some()).count();
        ensure!(estimates > 0, "no gateway has an estimate");
        let Some(one) = differ.first() else {
            return Ok(Ok((begun.elapsed(), known.first().map_or(0, BTreeMap::len))));
        };
        if begun.elapsed() > within {
            let of_one = |known: &BTreeMap<String, Known>| {
                known.get(*one).map_or_else(|| "nothing".to_owned(), Known::to_string)
            };
            let each: Vec<String> = known.iter().map(of_one).collect();
            return Ok(Err(format!("{} networks differ, one ({one}): {}", differ.len(), each.join("; "))));
        }
        progress(&format!("{} networks differ", differ.len()));
        std::thread::sleep(EVERY);
    }
}

/// The last gateway starts again, with the store of what it saw itself, and reads all from the servers.
pub(super) fn restarted(gateways: &mut [Gateway], size: Size) -> Result<Row> {
    let [first, .., again] = gateways else { bail!("there is one gateway alone") };
    again.stop()?;
    let begun = Instant::now();
    again.start_again()?;
    let known = agree(&[first, again], Duration::from_secs(60))?;
    let took = begun.elapsed();
    Ok(in_time(size, ("gateway restarted: all merged estimates", 10), &known, (took, "its start")))
}

/// A row for gateways that come to know the same N seconds after something, which `took` this long.
pub(super) fn in_time(
    size: Size,
    (what, most_s): (&str, u64),
    known: &Result<(Duration, usize), String>,
    (took, since): (Duration, &str),
) -> Row {
    let target = format!("<= {most_s} s");
    match known {
        Ok((_, networks)) => {
            let figure = format!("{networks} networks equal to the last bit {:.1} s after {since}", took.as_secs_f64());
            Row::timed(size, what, target, figure, took <= Duration::from_secs(most_s))
        }
        Err(differ) => Row::judged(what, target, format!("after 60 s {differ}"), false),
    }
}

/// Networks of which not all know the same.
fn differing(known: &[BTreeMap<String, Known>]) -> Vec<&String> {
    let mut networks: Vec<&String> = known.iter().flat_map(BTreeMap::keys).collect();
    networks.sort_unstable();
    networks.dedup();
    // What is known of a network without samples is each gateway's own.
    let of = |known: &'_ BTreeMap<String, Known>, network: &str| {
        known.get(network).filter(|known| known.samples > 0 || known.share.is_some()).cloned()
    };
    let first = |network: &str| known.first().and_then(|known| of(known, network));
    networks.into_iter().filter(|network| known.iter().any(|known| of(known, network) != first(network))).collect()
}

/// Waits until the bucket of the traffic that was played is over.
pub(super) fn end_of_bucket() {
    wait("the last bucket", until_next_bucket());
}

/// Waits for a time to ask several gateways: a bucket that leaves the window between two questions makes them differ.
pub(super) fn between_buckets() {
    if until_next_bucket() < Duration::from_secs(2) {
        std::thread::sleep(until_next_bucket() + Duration::from_millis(500));
    }
}

/// Until the bucket of the traffic that is played now is over, and its cells have had their time.
fn until_next_bucket() -> Duration {
    let bucket = Duration::from(WindowConfig::default().bucket);
    let into =
        Duration::from_nanos(MonotonicClock::from_wall_clock().now().0 % u64::try_from(bucket.as_nanos()).unwrap_or(1));
    bucket.saturating_sub(into)
}

/// "met in N of M".
pub(super) fn seconds(all: &[Duration]) -> String {
    let each: Vec<String> = all.iter().map(|one| format!("{:.1}", one.as_secs_f64())).collect();
    each.join(", ")
}
