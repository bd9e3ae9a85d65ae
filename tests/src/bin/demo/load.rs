//! The demo's transfers: streams that fill every path all along, the same timed set among them before and after, and the
//! short transfers from which the gateway learns as well.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ipnet::IpNet;
use spand_tests::lab::namespace::Namespace;
use spand_tests::lab::topology::Topology;
use spand_tests::lab::traffic::{Client, Plan, Step};
use spand_tests::lab::truth::FlowId;
use spand_tests::product::interrupt;

/// Sizes that are timed before and after.
pub(crate) const TIMED_BYTES: [u64; 4] = [10_000, 30_000, 100_000, 1_000_000];
/// Connections per network and size in each set.
pub(crate) const REPEATS: usize = 5;
/// Longer than the demo: its end ends the streams.
const STREAMS: Duration = Duration::from_secs(120);
/// How long the gateway learns.
pub(crate) const LEARNING: Duration = Duration::from_secs(16);
/// Time between two looks at what was learnt.
const LOOK_PERIOD: Duration = Duration::from_secs(4);
/// Time between two counts of the timed transfers.
const COUNT_PERIOD: Duration = Duration::from_secs(2);
/// Size of the short transfers beside the streams.
const SHORT_BYTES: u64 = 150_000;
/// Pause between them.
const SHORT_PAUSE: Duration = Duration::from_millis(700);

/// One timed transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    /// Towards which network.
    pub(crate) network: IpNet,
    /// Size of the answer.
    pub(crate) bytes: u64,
    /// From the request to the last byte, at the client.
    pub(crate) completion: Duration,
    /// The connection, as the sender names it.
    pub(crate) flow: FlowId,
}

/// What a client's thread needs to know.
#[derive(Clone, Debug)]
struct Site {
    network: IpNet,
    clients: Vec<IpAddr>,
    server: SocketAddr,
}

impl Site {
    fn client(&self, n: usize) -> Result<IpAddr> {
        let turn = n.checked_rem(self.clients.len()).context("a network without clients")?;
        self.clients.get(turn).copied().context("a network without clients")
    }
}

fn sites(lab: &Topology) -> impl Iterator<Item = (&Namespace, Site)> {
    lab.networks.iter().map(|network| {
        let prefix = network.plan.prefix;
        let server = lab.server_address(prefix);
        (&network.namespace, Site { network: prefix, clients: network.addresses.clone(), server })
    })
}

/// The timed set: networks side by side, one transfer at a time on each path, a new connection for each. `look` hears
/// every few seconds how many are done of how many.
pub(crate) fn timed_set(lab: &Topology, look: &dyn Fn(usize, usize)) -> Result<Vec<Timed>> {
    let all = lab.networks.len() * TIMED_BYTES.len() * REPEATS;
    let done = Arc::new(AtomicUsize::new(0));
    let workers = sites(lab).map(|(namespace, site)| {
        let done = Arc::clone(&done);
        namespace.spawn("client", move || timed_site(&site, &done))
    });
    let mut looks = || {
        look(done.load(Ordering::Relaxed), all);
        Ok(())
    };
    Ok(gather(workers.collect::<Result<_>>()?, COUNT_PERIOD, &mut looks)?.concat())
}

fn timed_site(site: &Site, done: &AtomicUsize) -> Result<Vec<Timed>> {
    let mut timed = Vec::new();
    for repeat in 0..REPEATS {
        let from = site.client(repeat)?;
        for bytes in TIMED_BYTES {
            let transfer = Client::connect(from, site.server)?.ask(&Plan::transfer(Plan::AS_THE_HOST, bytes))?;
            let flow = FlowId { local: site.server, remote: transfer.local };
            timed.push(Timed { network: site.network, bytes, completion: transfer.completion, flow });
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(timed)
}

/// Fills every path: two streams on each, which nobody waits for.
pub(crate) fn start_streams(lab: &Topology) -> Result<()> {
    for (namespace, site) in sites(lab) {
        for n in 0..2 {
            let (from, server) = (site.client(n)?, site.server);
            namespace.spawn("stream", move || {
                let plan = Plan::new(Plan::AS_THE_HOST, vec![Step::Stream(STREAMS)]);
                Client::connect(from, server)?.ask(&plan).map(drop)
            })?;
        }
    }
    Ok(())
}

/// Short transfers from the third address of every network for [`LEARNING`]. `look` is called every few seconds meanwhile.
pub(crate) fn learn(lab: &Topology, look: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let workers = sites(lab).map(|(namespace, site)| {
        namespace.spawn("short", move || {
            let end = Instant::now() + LEARNING;
            let from = site.client(2)?;
            while Instant::now() < end {
                Client::connect(from, site.server)?.ask(&Plan::transfer(Plan::AS_THE_HOST, SHORT_BYTES))?;
                thread::sleep(SHORT_PAUSE);
            }
            Ok(())
        })
    });
    gather(workers.collect::<Result<_>>()?, LOOK_PERIOD, look).map(drop)
}

/// Waits for all workers, but no longer than until the user interrupts: what they still do ends with the process.
fn gather<T>(
    workers: Vec<JoinHandle<Result<T>>>,
    period: Duration,
    look: &mut dyn FnMut() -> Result<()>,
) -> Result<Vec<T>> {
    let mut looked = Instant::now();
    while workers.iter().any(|worker| !worker.is_finished()) {
        if interrupt::came() {
            bail!("interrupted");
        }
        if looked.elapsed() >= period {
            looked = Instant::now();
            look()?;
        }
        thread::sleep(Duration::from_millis(20));
    }
    workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow!("a client's thread panicked"))?).collect()
}
