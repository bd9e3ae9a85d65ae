//! A site under traffic, with a host that listens at each gateway: what the cases of failures begin with and look at.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use spand_core::config::WindowConfig;
use spand_gateway::publisher::{MonotonicClock, PacketClock};

use super::{Programs, Size};
use crate::cluster::gateway::{Gateway, Known};
use crate::cluster::listener::Listener;
use crate::cluster::site::Site;
use crate::cluster::traffic::{Place, Played, Traffic};
use crate::progress::{progress, wait};

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
    /// The longest time in which one took no cell of another.
    pub(super) longest: Duration,
    /// The latest that a closed cell came after the end of its bucket.
    pub(super) closed_lag: Duration,
}

impl Standing {
    /// Three servers, gateways, traffic of which each connection is seen at the taps that `place` names; when the first buckets are over.
    /// `None` where there is no program to start as a server.
    pub(super) fn start(programs: &Programs, size: Size, lines: &str, place: Place) -> Result<Option<Self>> {
        let (gateways, networks, connections) = match size {
            Size::Full => (4, 5_000, 300),
            Size::Quick => (2, 200, 40),
        };
        let Some(site) = Site::start(programs, 3, gateways, lines)? else { return Ok(None) };
        let played = Played { connections, networks, loss: 0.01, place };
        let traffic = Some(Traffic::start(&site.namespace, (1..=gateways).collect(), played)?);
        let listeners: Vec<_> =
            (1..=gateways).map(|number| Listener::start(&site.namespace, number)).collect::<Result<_>>()?;
        wait("the first buckets", Duration::from_secs(if size == Size::Full { 30 } else { 12 }));
        listeners.iter().for_each(Listener::begin);
        let networks = usize::try_from(networks)?;
        Ok(Some(Self { site, listeners, networks, traffic }))
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
        let mut last: Vec<(f64, Instant)> = vec![(-1.0, Instant::now()); self.site.gateways.len()];
        while begun.elapsed() < length {
            progress(&format!("{what}: {} s to go", length.saturating_sub(begun.elapsed()).as_secs()));
            for (gateway, (cells, at)) in self.site.gateways.iter().zip(&mut last) {
                let view = gateway.json("/v1/share")?;
                let taken = view["cells_taken"].as_f64().unwrap_or_default();
                if taken > *cells {
                    (*cells, *at) = (taken, Instant::now());
                }
                silence.longest = silence.longest.max(at.elapsed());
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
        wait("the last bucket", until_next_bucket());
        Ok(())
    }

    /// Waits until all gateways know the same to the last bit, for so long at most; how long that took and how many networks they know.
    /// Where they do not come to that, how many networks differ.
    pub(super) fn agree(&self, within: Duration) -> Result<Result<(Duration, usize), usize>> {
        agree(&self.site.gateways.iter().collect::<Vec<_>>(), within)
    }
}

/// The same of these gateways.
pub(super) fn agree(gateways: &[&Gateway], within: Duration) -> Result<Result<(Duration, usize), usize>> {
    let begun = Instant::now();
    loop {
        // A bucket that leaves the window between two questions makes them differ.
        if until_next_bucket() < Duration::from_secs(2) {
            std::thread::sleep(until_next_bucket() + Duration::from_millis(500));
        }
        let known: Vec<BTreeMap<String, Known>> = gateways.iter().map(|one| one.known()).collect::<Result<_>>()?;
        let differ = differing(&known);
        ensure!(known.iter().any(|known| !known.is_empty()), "no gateway knows a network");
        if differ == 0 {
            return Ok(Ok((begun.elapsed(), known.first().map_or(0, BTreeMap::len))));
        }
        if begun.elapsed() > within {
            return Ok(Err(differ));
        }
        progress(&format!("{differ} networks differ"));
        std::thread::sleep(EVERY);
    }
}

/// Networks of which not all know the same.
fn differing(known: &[BTreeMap<String, Known>]) -> usize {
    let mut networks: Vec<&String> = known.iter().flat_map(BTreeMap::keys).collect();
    networks.sort_unstable();
    networks.dedup();
    let first = |network: &str| known.first().and_then(|known| known.get(network));
    networks
        .into_iter()
        .filter(|network| known.iter().any(|known| known.get(network.as_str()) != first(network)))
        .count()
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
