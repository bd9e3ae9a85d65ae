//! The programs of two egresses: a NATS server, a gateway at each, and an agent that knows both.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use spand_tests::ending::TooBusy;
use spand_tests::lab::link::{SECOND_MANAGEMENT, SERVER_SECOND_MANAGEMENT};
use spand_tests::lab::namespace::{Cgroup, Namespace};
use spand_tests::lab::tap::Tap;
use spand_tests::lab::topology::{ClientNetwork, GATEWAY_MANAGEMENT, SERVER_DEVICE, SERVER_MANAGEMENT, Topology};
use spand_tests::lab::wire;
use spand_tests::product::{
    Agent, AgentSetup, ApplyMethod, Daemon, Gateway, GatewaySetup, Mode, Sharing, granted, stop_agent,
};

use super::shares;
use crate::load;
use crate::load::Timed;

/// Where the server listens, on every address of the server's host.
const NATS_PORT: u16 = 4222;
/// Two gateways and a server that all run have heard of each other long before.
const SHARES_WITHIN: Duration = Duration::from_secs(15);

/// Starts the NATS server on the server's host.
pub(crate) fn start_nats(program: &Path, lab: &Topology, folder: &Path) -> Result<Daemon> {
    let (config, store) = (folder.join("nats.conf"), folder.join("nats"));
    let text = format!(
        "server_name: demo\nlisten: \"0.0.0.0:{NATS_PORT}\"\njetstream {{ store_dir: \"{}\", max_memory_store: 256MB }}\n",
        store.display()
    );
    fs::write(&config, text).with_context(|| format!("cannot write {}", config.display()))?;
    let config = config.to_str().with_context(|| format!("{} is not UTF-8", config.display()))?;
    Daemon::start("nats-server", program, &["--config", config], &lab.server, folder)
}

/// Starts a gateway at each egress.
pub(crate) fn start_gateways(
    program: &Path,
    lab: &Topology,
    second: &Namespace,
    folder: &Path,
) -> Result<[Gateway; 2]> {
    let start = |number: u16, namespace: &Namespace, management: Ipv4Addr, server: Ipv4Addr| {
        let sharing = Sharing { server: format!("nats://{server}:{NATS_PORT}"), gateway: number };
        let setup = GatewaySetup { management, sharing: Some(sharing), ..GatewaySetup::default() };
        Gateway::start(namespace, program, &setup, &folder.join(format!("gateway-{number}")))
    };
    Ok([
        start(1, &lab.gateway, GATEWAY_MANAGEMENT, SERVER_MANAGEMENT)?,
        start(2, second, SECOND_MANAGEMENT, SERVER_SECOND_MANAGEMENT)?,
    ])
}

/// Waits until each hears the other: how long that took.
pub(crate) fn wait_sharing(gateways: &mut [Gateway; 2], nats: &mut Daemon) -> Result<Duration> {
    let begin = Instant::now();
    while begin.elapsed() < SHARES_WITHIN {
        nats.check()?;
        let mut all = true;
        for gateway in gateways.iter_mut() {
            gateway.check()?;
            all &= shares::members(gateway.api())? > 0;
        }
        if all {
            return Ok(begin.elapsed());
        }
        shares::pause()?;
    }
    Err(TooBusy::new("word from one gateway to the other", SHARES_WITHIN).into())
}

/// Starts the agent on the server's host and waits until it has advice in force for every network: the windows it grants.
pub(crate) fn start_agent(
    program: &Path,
    lab: &Topology,
    cgroup: Option<&Cgroup>,
    folder: &Path,
) -> Result<(Agent, Vec<(IpNet, u32)>)> {
    let setup = AgentSetup {
        method: if cgroup.is_some() { ApplyMethod::Bpf } else { ApplyMethod::Route },
        mode: Mode::Careful,
        include: Vec::new(),
        cgroup: cgroup.map(|cgroup| cgroup.folder().to_owned()),
        control_fraction: 0.0,
        number: 0,
        gateways: vec![GATEWAY_MANAGEMENT, SECOND_MANAGEMENT],
        more: String::new(),
    };
    let mut agent = Agent::start(&lab.server, program, &setup, folder)?;
    let places: Vec<_> = clients(lab)?.into_iter().map(|(_, client)| (client, None)).collect();
    let windows = granted(&agent.wait_for_advice(&places)?)?;
    let networks = lab.networks.iter().map(|network| network.plan.prefix);
    Ok((agent, networks.zip(windows).collect()))
}

/// The first client of each network.
pub(crate) fn clients(lab: &Topology) -> Result<Vec<(IpNet, IpAddr)>> {
    let first = |network: &ClientNetwork| Some((network.plan.prefix, *network.addresses.first()?));
    lab.networks.iter().map(first).collect::<Option<_>>().context("a network without clients")
}

/// The gateway with this URL: its place.
pub(crate) fn place_of(url: &str) -> Result<usize> {
    let addresses = [GATEWAY_MANAGEMENT, SECOND_MANAGEMENT];
    let place = addresses.iter().position(|address| url.contains(&format!("//{address}:")));
    place.with_context(|| format!("the agent uses {url}, which is neither gateway"))
}

/// Removes what a killed gateway saved, as if another machine took its place.
pub(crate) fn remove_store(folder: &Path, place: usize) -> Result<()> {
    let store: PathBuf = folder.join(format!("gateway-{}", place + 1)).join("store");
    fs::remove_dir_all(&store).with_context(|| format!("cannot remove {}", store.display()))
}

/// Stops everything, and says how that went.
pub(crate) fn stop(agent: Agent, gateways: [Gateway; 2], nats: Daemon, lab: &Topology, say: &dyn Fn(&str)) {
    let agent = stop_agent(agent, &lab.server);
    for line in agent.into_iter().chain(gateways.map(Gateway::stop)).chain([nats.stop()]) {
        say(&line);
    }
}

// Transfers, and with how many segments each of them began.

/// Size of the transfers, the same as in the plot of the other demo.
pub(crate) const BYTES: u64 = crate::sequence::BYTES;

/// Transfers, and the segments of the first flight of each.
pub(crate) type Begun = Vec<(Timed, u64)>;

/// `rounds` transfers to each network, one after the other.
pub(crate) fn in_turn(lab: &Topology, rounds: usize) -> Result<Vec<Timed>> {
    let mut timed = Vec::new();
    for turn in 0..rounds {
        timed.extend(load::one_each(lab, turn, BYTES)?.into_iter().map(|(one, _)| one));
    }
    Ok(timed)
}

/// Does transfers while the server's interface is recorded, and counts on the wire with how many segments each began.
pub(crate) fn recorded(
    lab: &Topology,
    folder: &Path,
    name: &str,
    work: impl FnOnce() -> Result<Vec<Timed>>,
) -> Result<Begun> {
    let file = folder.join(format!("{name}.pcap"));
    let tap = Tap::start_at_host(&lab.server, SERVER_DEVICE, &file)?;
    let timed = work()?;
    let counts = tap.finish()?;
    if counts.dropped > 0 {
        bail!("the recording {} has holes: the kernel dropped {} packets", file.display(), counts.dropped);
    }
    let senders = wire::senders(&wire::read(&file)?, lab.port);
    let flight = |one: Timed| {
        let sender = senders.get(&one.flow).with_context(|| format!("{} is not in the recording", one.flow.remote))?;
        Ok((one, sender.first_flight))
    };
    timed.into_iter().map(flight).collect()
}

/// Prints for each network first flights and times of transfers without and with advice.
pub(crate) fn print(granted: &[(IpNet, u32)], arms: [&Begun; 2]) {
    println!(
        "  {:<18} {:>8}   {:<24} {:<24} median completion",
        "network", "granted", "first flights without", "with advice"
    );
    for (network, window) in granted {
        let [plain, advised] = arms.map(|arm| {
            let here: Vec<&(Timed, u64)> = arm.iter().filter(|(one, _)| one.network == *network).collect();
            let flights: Vec<String> = here.iter().map(|(_, flight)| flight.to_string()).collect();
            let mut times: Vec<Duration> = here.iter().map(|(one, _)| one.completion).collect();
            times.sort_unstable();
            (flights.join(" "), times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64() * 1e3)
        });
        println!(
            "  {:<18} {window:>8}   {:<24} {:<24} {:.0} ms, {:.0} ms",
            network.to_string(),
            plain.0,
            advised.0,
            plain.1,
            advised.1
        );
    }
}

/// Networks and first flights alone.
pub(crate) fn flights(begun: &Begun) -> Vec<(IpNet, u64)> {
    begun.iter().map(|(timed, flight)| (timed.network, *flight)).collect()
}

/// First flights in words, the smallest first.
pub(crate) fn words(flights: &[(IpNet, u64)]) -> String {
    let mut flights: Vec<u64> = flights.iter().map(|(_, flight)| *flight).collect();
    flights.sort_unstable();
    flights.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
