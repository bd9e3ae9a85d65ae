//! Two sites joined by leaf links over a slow path that loses packets; the path is cut for a while.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::standing::{agree, end_of_bucket};
use super::{Programs, Row, Size};
use crate::cluster::Servers;
use crate::cluster::gateway::Gateway;
use crate::cluster::listener::Listener;
use crate::cluster::site::{Site, keep_copy};
use crate::cluster::traffic::{Played, Traffic, by_connection};
use crate::ending::wait;
use crate::lab::link::tun;
use crate::lab::namespace::Namespace;
use crate::lab::path::{Emulator, Hop, Impairments, LinkConfig, PathConfig, PathEnds, Queue};

const NAMES: [&str; 2] = ["a", "b"];
/// Addresses of both ends of the path.
const ENDS: [&str; 2] = ["10.96.0.1", "10.96.0.2"];
const DEVICE: &str = "wan0";
/// The path: of each direction.
const DELAY: Duration = Duration::from_millis(100);
const LOSS: f64 = 0.01;
/// All are to know the same so long after the path is whole again.
const EQUAL_WITHIN: Duration = Duration::from_secs(30);
/// Gateways look for copies of other sites' streams so often.
const LOOKS: Duration = Duration::from_secs(31);

/// Runs it.
///
/// # Errors
/// Where a gateway or a server fails.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let (count, each, networks, connections, cut) = match size {
        Size::Full => (3, 2, 1_000, 200, 60),
        Size::Quick => (1, 1, 40, 30, 20),
    };
    let namespaces = [Namespace::create("sitea")?, Namespace::create("siteb")?];
    let _path = join(&namespaces)?;
    let mut sites = Vec::new();
    for (place, namespace) in namespaces.iter().enumerate() {
        let servers = namespace.enter(|| {
            let Some(mut servers) = Servers::with_texts(count, |number, folder, ports| {
                let cluster = (count > 1).then(|| {
                    let routes: Vec<String> =
                        ports.routes.iter().map(|port| format!("nats://127.0.0.1:{port}")).collect();
                    let listen = ports.routes.get(number).copied().unwrap_or_default();
                    format!(
                        "cluster {{ name: {}, listen: \"127.0.0.1:{listen}\", routes: [{}] }}\n",
                        NAMES[place],
                        routes.join(", ")
                    )
                });
                let name = format!("{}{number}", NAMES[place]);
                let port = ports.clients.get(number).copied().unwrap_or_default();
                format!(
                    "server_name: {name}\nlisten: \"127.0.0.1:{port}\"\n{}{}ping_interval: \"2s\"\nping_max: 2\n\
                     jetstream {{ store_dir: \"{}\", max_memory_store: 512MB, domain: {} }}\n",
                    cluster.unwrap_or_default(),
                    leaves(place, number, count),
                    folder.join(&name).display(),
                    NAMES[place]
                )
            })?
            else {
                return Ok(None);
            };
            for number in 0..count {
                servers.start_one(number)?;
            }
            Ok(Some(servers))
        })?;
        let Some(servers) = servers else { return Ok(Vec::new()) };
        sites.push(Site::of(NAMES[place], namespace.clone(), servers));
    }
    for (site, first) in sites.iter_mut().zip([1, 1 + each]) {
        let lines = |_| (String::new(), "[log]\nfilter = \"warn\"\n".to_owned());
        site.add(programs, first..=first + each - 1, lines)?;
    }
    for site in &sites {
        site.hear(2 * each - 1)?;
    }
    for (site, other) in sites.iter().zip([NAMES[1], NAMES[0]]) {
        let url = site.servers.urls().first().cloned().context("a server")?;
        site.namespace.enter(|| keep_copy(&url, other, count))?;
    }
    let traffic = sites
        .iter()
        .zip([11, 12])
        .map(|(site, seed)| {
            let taps = site.gateways.iter().map(Gateway::number).collect();
            Traffic::start(
                &site.namespace,
                taps,
                Played { connections, networks, loss: 0.02, place: by_connection, seed },
            )
        })
        .collect::<Result<Vec<_>>>()?;
    let listeners = sites
        .iter()
        .flat_map(|site| site.gateways.iter().map(|gateway| Listener::start(&site.namespace, gateway.number())))
        .collect::<Result<Vec<_>>>()?;
    wait("sites: copies are found, buckets fill", LOOKS);
    listeners.iter().for_each(Listener::begin);
    let gateways = || sites.iter().flat_map(|site| &site.gateways).collect::<Vec<_>>();
    let before = members(&gateways())?;

    namespaces[0].ip(&[&format!("link set {DEVICE} down")])?;
    wait("sites: cut", Duration::from_secs(cut));
    let meanwhile = members(&gateways())?;
    traffic.into_iter().try_for_each(|traffic| traffic.stop().map(drop))?;
    end_of_bucket();
    let ended: usize = listeners.iter().map(|one| one.look(|log| log.ended + log.withdrawn.len())).sum();
    namespaces[0].ip(&[&format!("link set {DEVICE} up")])?;
    let healed = Instant::now();
    let equal = agree(&gateways(), Duration::from_secs(120))?;
    let took = healed.elapsed();
    let what = format!("two sites cut for {cut} s, 200 ms and 1 % loss: all gateways know the same");
    let figure = match &equal {
        Ok((_, networks)) => {
            format!("{networks} networks equal to the last bit {:.1} s after healing", took.as_secs_f64())
        }
        Err(differ) => format!("after 120 s {differ}"),
    };
    let in_time = equal.is_ok() && took <= EQUAL_WITHIN;
    Ok(vec![
        Row::stated("members that each gateway hears: before, and when cut", format!("{before}; {meanwhile}")),
        Row::judged("cut: withdrawals to hosts and streams that ended", "0", ended.to_string(), ended == 0),
        Row::judged(what.clone(), "equal", figure.clone(), equal.is_ok()),
        Row::timed(size, what, "<= 30 s", figure, in_time),
    ])
}

/// The path between both.
fn join(namespaces: &[Namespace; 2]) -> Result<Emulator> {
    let [a, b] = namespaces;
    let (server, clients) = (a.enter(|| tun(DEVICE))?, b.enter(|| tun(DEVICE))?);
    for (namespace, address) in namespaces.iter().zip(ENDS) {
        namespace.ip(&[&format!("address add {address}/24 dev {DEVICE}"), &format!("link set {DEVICE} up")])?;
    }
    let hop = Hop::new(None, Queue::Packets(1), DELAY);
    let link = LinkConfig { impairments: Impairments { loss: LOSS, ..Impairments::default() }, ..LinkConfig::new(hop) };
    Emulator::start(vec![PathEnds { server, clients, config: PathConfig { down: link, up: link, seed: 1 } }])
}

/// The first site's servers take leaf links, the second's make them.
fn leaves(place: usize, number: usize, count: usize) -> String {
    let port = |number| 7_420 + number;
    if place == 0 {
        return format!("leafnodes {{ listen: \"{}:{}\", no_advertise: true }}\n", ENDS[0], port(number));
    }
    let urls: Vec<String> = (0..count).map(|number| format!("\"nats://{}:{}\"", ENDS[0], port(number))).collect();
    format!("leafnodes {{ remotes: [ {{ urls: [{}] }} ] }}\n", urls.join(", "))
}

fn members(gateways: &[&Gateway]) -> Result<String> {
    let each = gateways.iter().map(|gateway| Ok(gateway.metrics()?.sum("spand_share_members").to_string()));
    Ok(each.collect::<Result<Vec<_>>>()?.join(", "))
}
