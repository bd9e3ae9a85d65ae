//! The demo's transfers: streams that fill every path all along, short ones from which the gateway learns as well, and the
//! compared ones.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ipnet::IpNet;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_tests::benefit::scenario::mixed;
use spand_tests::lab::namespace::Namespace;
use spand_tests::lab::topology::Topology;
use spand_tests::lab::traffic::{Client, Plan, Step};
use spand_tests::lab::truth::FlowId;
use spand_tests::product::interrupt;

/// Pauses between two compared transfers of a client, so that they meet the streams at any moment.
const PAUSE_MS: std::ops::Range<u64> = 20..200;
/// How long the gateway learns.
pub(crate) const LEARNING: Duration = Duration::from_secs(16);
/// Time between two looks at what was learnt.
const LOOK_PERIOD: Duration = Duration::from_secs(4);
/// Time between two counts of the compared transfers.
const COUNT_PERIOD: Duration = Duration::from_secs(10);
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

/// Transfers of random sizes at random moments, a new connection for each, from every client of every network for `span`.
/// One seed draws one order. `look` is called every few seconds with how many are done.
pub(crate) fn compared(
    lab: &Topology,
    span: Duration,
    seed: u64,
    look: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Vec<Timed>> {
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for (namespace, site) in sites(lab) {
        for n in 0..site.clients.len() {
            let (site, done) = (site.clone(), Arc::clone(&done));
            let rng = StdRng::seed_from_u64(seed + workers.len() as u64);
            workers.push(namespace.spawn("client", move || compared_client(&site, n, span, rng, &done))?);
        }
    }
    Ok(gather(workers, COUNT_PERIOD, &mut || look(done.load(Ordering::Relaxed)))?.concat())
}

fn compared_client(site: &Site, n: usize, span: Duration, mut rng: StdRng, done: &AtomicUsize) -> Result<Vec<Timed>> {
    let (from, end) = (site.client(n)?, Instant::now() + span);
    let mut timed = Vec::new();
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(rng.random_range(PAUSE_MS)));
        let bytes = mixed(rng.random_range(0..10)).context("ten transfers have sizes")?;
        let transfer = Client::connect(from, site.server)?.ask(&Plan::transfer(Plan::AS_THE_HOST, bytes))?;
        let flow = FlowId { local: site.server, remote: transfer.local };
        timed.push(Timed { network: site.network, bytes, completion: transfer.completion, flow });
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(timed)
}

/// Fills every path for `span`: a stream to each client, which nobody waits for. So no client has short transfers alone, whose few samples
/// would decide its network's estimate.
pub(crate) fn start_streams(lab: &Topology, span: Duration) -> Result<()> {
    for (namespace, site) in sites(lab) {
        for n in 0..site.clients.len() {
            let (from, server) = (site.client(n)?, site.server);
            namespace.spawn("stream", move || {
                let plan = Plan::new(Plan::AS_THE_HOST, vec![Step::Stream(span)]);
                Client::connect(from, server)?.ask(&plan).map(drop)
            })?;
        }
    }
    Ok(())
}

/// Short transfers from these addresses of every network for `span`. `look` is called every few seconds meanwhile.
pub(crate) fn learn(
    lab: &Topology,
    clients: &[usize],
    span: Duration,
    look: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut workers = Vec::new();
    for (namespace, site) in sites(lab) {
        for client in clients {
            let (from, server) = (site.client(*client)?, site.server);
            workers.push(namespace.spawn("short", move || {
                let end = Instant::now() + span;
                while Instant::now() < end {
                    Client::connect(from, server)?.ask(&Plan::transfer(Plan::AS_THE_HOST, SHORT_BYTES))?;
                    thread::sleep(SHORT_PAUSE);
                }
                Ok(())
            })?);
        }
    }
    gather(workers, LOOK_PERIOD, look).map(drop)
}

/// One transfer to each network at once, to the client whose `turn` it is, each with the moment at which its first data left the server.
pub(crate) fn one_each(lab: &Topology, turn: usize, bytes: u64) -> Result<Vec<(Timed, Instant)>> {
    let workers = sites(lab).map(|(namespace, site)| {
        namespace.spawn("client", move || {
            let mut client = Client::connect(site.client(turn)?, site.server)?;
            let connected = Instant::now();
            let transfer = client.ask(&Plan::transfer(Plan::AS_THE_HOST, bytes))?;
            let flow = FlowId { local: site.server, remote: transfer.local };
            let timed = Timed { network: site.network, bytes, completion: transfer.completion, flow };
            // The request takes half a round trip to the server.
            Ok((timed, connected + transfer.handshake / 2))
        })
    });
    gather(workers.collect::<Result<_>>()?, LOOK_PERIOD, &mut || Ok(()))
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
