//! The demonstration: real kernel TCP across emulated paths, the real gateway on a mirror port, the real agent starting
//! connections, and the kernel's own windows beside what the gateway says.
//!
//! Fails where an estimate is over 25 % from what the same rule makes of the kernel's windows. Every number printed was measured in this run.

mod advice;
mod compare;
mod load;
mod outcome;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use ipnet::IpNet;
use spand_tests::lab::cgroup::Cgroup;
use spand_tests::lab::path::{PathConfig, Queue, parse_rate};
use spand_tests::lab::tap::Tap;
use spand_tests::lab::topology::{ClientNetwork, MIRROR_DEVICE, NetworkPlan, Topology};
use spand_tests::lab::traffic::{Conduct, Server};
use spand_tests::lab::truth::{Poller, Record};
use spand_tests::lab::wire;
use spand_tests::product::{AgentSetup, ApplyMethod, GatewaySetup, Mode, Product, interrupt, program};

use crate::compare::Compared;
use crate::load::Timed;
use crate::outcome::Set;

/// What the server's connections use: Linux's usual default.
pub(crate) const CONGESTION_CONTROL: &str = "cubic";
/// Clients in each network.
const CLIENTS: u8 = 3;

#[derive(Debug, Parser)]
#[command(about = "Shows spand at work on real transfers in network namespaces (needs root, takes about a minute)")]
struct Arguments {
    /// The gateway's program; default: beside this one
    #[arg(long, env = "SPAND_GATEWAY")]
    gateway: Option<PathBuf>,
    /// The agent's program; default: beside this one
    #[arg(long, env = "SPAND_AGENT")]
    agent: Option<PathBuf>,
    /// How the agent applies starts: its own congestion control, or routes with an initial window; default: the first, and
    /// the second where this machine cannot
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(["bpf", "route"]))]
    way: Option<String>,
    /// Leave everything running at the end until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Keep captures, logs, configurations and the kernel's windows in this folder, made where it is missing
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nFAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prefix, bottleneck, delay each way in milliseconds, queue in packets.
const NETWORKS: [(&str, &str, u64, u32); 3] = [
    ("198.51.100.0/24", "20mbit", 40, 100),
    ("203.0.113.0/24", "10mbit", 25, 40),
    ("2001:db8:1::/48", "40mbit", 30, 150),
];

fn run(arguments: &Arguments) -> Result<()> {
    interrupt::install()?;
    let begin = Instant::now();
    let say = |what: &str| println!("[{:>4.1} s] {what}", begin.elapsed().as_secs_f64());
    let scratch = tempfile::Builder::new().prefix("spand-demo-").tempdir().context("cannot make a scratch folder")?;
    let folder = arguments.out.as_deref().unwrap_or(scratch.path());
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = &std::fs::canonicalize(folder)?;

    let lab = Topology::build(&plans()?)?;
    let networks: Vec<IpNet> = lab.networks.iter().map(|network| network.plan.prefix).collect();
    say("a server, a gateway on its mirror port, and three client networks stand:");
    for (prefix, rate, delay_ms, queue) in NETWORKS {
        println!("         {prefix:<18} {rate:>7}, {} ms round trip, queue of {queue} packets", delay_ms * 2);
    }
    let record = Record::default();
    let poller = Arc::new(Poller::start(record.clone())?);
    // Chosen for the host, not by the server: what an application chose, the agent leaves alone.
    lab.server.default_congestion_control(CONGESTION_CONTROL)?;
    let cgroup = match (arguments.way.as_deref(), Cgroup::make("spand-demo")) {
        (Some("route"), _) => None,
        (None, Err(error)) => {
            say(&format!("{error:#}; the agent will set routes instead"));
            None
        }
        (_, made) => Some(made?),
    };
    let serve = || {
        let conduct = Conduct { poller: Some(Arc::clone(&poller)), ..Conduct::default() };
        Server::start_with(&lab.server, lab.port, &conduct)
    };
    let _server = match &cgroup {
        Some(cgroup) => cgroup.enter(serve)?,
        None => serve()?,
    };
    let gateway = program(arguments.gateway.as_deref(), "spand-gateway")?;
    let mut product = Product::start_gateway(&lab, &gateway, &GatewaySetup::default(), folder)?;
    say(&format!("spand-gateway runs and listens on {MIRROR_DEVICE}"));

    load::start_streams(&lab)?;
    say("two streams fill every path from now on; all else goes on among them");

    let how = format!("timed, plain TCP ({CONGESTION_CONTROL})");
    let before = timed_set(&lab, &folder.join("before.pcap"), &how, &say)?;
    recorded(&lab, &folder.join("learning.pcap"), || {
        load::learn(&lab, &mut || {
            product.check()?;
            say(&format!("so far: {}", compare::so_far(&product.api().json("/v1/networks")?)?));
            Ok(())
        })
    })?;
    say(&format!("{} s of short transfers: the gateway has watched", load::LEARNING.as_secs()));
    let learnt = compared(&product, &networks, &record)?;
    println!(
        "\nShare of the path in segments: the gateway's estimate beside the same rule on the kernel's own windows, worst first\n"
    );
    compare::print(&learnt);

    println!("\nAdvice by transfer size\n");
    advice::print(product.api(), &lab)?;
    println!();
    let agent = program(arguments.agent.as_deref(), "spand-agent")?;
    let (method, granted) = match start_agent(&agent, &mut product, &lab, cgroup.as_ref()) {
        Err(error) if cgroup.is_some() && arguments.way.is_none() => {
            say(&format!("no programs in this kernel ({error:#}); the agent sets routes instead"));
            (ApplyMethod::Route, start_agent(&agent, &mut product, &lab, None)?)
        }
        granted => (if cgroup.is_some() { ApplyMethod::Bpf } else { ApplyMethod::Route }, granted?),
    };
    say(&format!("spand-agent runs (careful, apply = {}, nothing held out)", method.name()));
    let after = timed_set(&lab, &folder.join("after.pcap"), "timed, started on advice", &say)?;

    println!("\nInitial window really used, counted on the wire (1 MB transfers: segments before the first ACK)\n");
    outcome::print_first_flights(&networks, &before, &after, &granted);
    println!("\nCompletion time, median of {} connections, worst change first\n", load::REPEATS);
    outcome::print_times(&networks, &before, &after);
    if method == ApplyMethod::Route {
        println!("\n  (a route sets no slow-start threshold and no pacing: growth goes on as in plain TCP)");
    }
    let advised = compared(&product, &networks, &record)?;
    println!("\nThe shares again, now that advised connections are among those that were watched\n");
    compare::print(&advised);
    if arguments.keep {
        println!("\nAsk the gateway yourself\n");
        product.print_addresses();
    } else {
        println!("\nTo ask the gateway and the agent yourself: make demo ARGS=--keep\n");
    }
    product.check()?;
    if arguments.out.is_some() {
        record.write_csv(&folder.join("truth.csv"))?;
    }

    if arguments.keep {
        say("everything stays up; Ctrl-C ends it");
        while !interrupt::came() {
            product.check()?;
            thread::sleep(Duration::from_millis(100));
        }
    }
    for line in product.stop(&lab) {
        say(&line);
    }
    compare::verdict("after the load", &learnt)?;
    compare::verdict("after the advised transfers", &advised)?;
    say("passed: every estimate is within 25 % of the same rule's on the kernel's own windows");
    Ok(())
}

/// Starts the agent and waits until it has something for every network: the windows it grants. With a cgroup it starts that
/// one's connections by programs in the kernel, else it sets routes.
fn start_agent(
    agent: &Path,
    product: &mut Product,
    lab: &Topology,
    cgroup: Option<&Cgroup>,
) -> Result<BTreeMap<IpNet, u32>> {
    let method = if cgroup.is_some() { ApplyMethod::Bpf } else { ApplyMethod::Route };
    let cgroup = cgroup.map(|cgroup| cgroup.folder().to_owned());
    let setup = AgentSetup { method, mode: Mode::Careful, include: Vec::new(), cgroup, more: String::new() };
    product.start_agent(lab, agent, &setup)?;
    let client = |network: &ClientNetwork| network.addresses.first().map(|client| (*client, None));
    let places: Vec<_> = lab.networks.iter().map(client).collect::<Option<_>>().context("a network without clients")?;
    let explained = product.wait_for_advice(&places);
    // An agent that could not begin has said why.
    product.check()?;
    let explained = explained?;
    if let Some(one) = explained.iter().find(|one| !one.on_advice) {
        bail!("the agent applies nothing to {}: {}", one.destination, one.outcome);
    }
    let prefixes = lab.networks.iter().map(|network| network.plan.prefix);
    Ok(prefixes.zip(explained.iter().map(|one| one.cwnd_segments)).collect())
}

/// Estimates and truth at this moment, once the last connections have ended and the gateway has told.
fn compared(product: &Product, networks: &[IpNet], record: &Record) -> Result<Vec<Compared>> {
    thread::sleep(Duration::from_secs(1));
    if record.dropped() > 0 {
        bail!("the record of the kernel's windows was full: {} rows are missing", record.dropped());
    }
    compare::compare(networks, &product.api().json("/v1/networks")?, &record.rows())
}

fn plans() -> Result<Vec<NetworkPlan>> {
    let plan = |(prefix, rate, delay_ms, queue): (&str, &str, u64, u32)| {
        let path = PathConfig::bottleneck(parse_rate(rate)?, Duration::from_millis(delay_ms), Queue::Packets(queue));
        Ok(NetworkPlan { prefix: prefix.parse()?, clients: CLIENTS, path })
    };
    NETWORKS.into_iter().map(plan).collect()
}

/// The timed set with its packets; `say` hears how far it is.
fn timed_set(lab: &Topology, file: &Path, how: &str, say: &dyn Fn(&str)) -> Result<Set> {
    let count = |done: usize, all: usize| say(&format!("{done} of {all} transfers {how}"));
    let timed: Vec<Timed> = recorded(lab, file, || load::timed_set(lab, &count))?;
    say(&format!("{} transfers {how}", timed.len()));
    Ok(Set { timed, senders: wire::senders(&wire::read(file)?, lab.port) })
}

/// Does `work` while the mirror port is recorded into `file`.
fn recorded<T>(lab: &Topology, file: &Path, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let tap = Tap::start(&lab.gateway, MIRROR_DEVICE, file)?;
    let done = work()?;
    let counts = tap.finish()?;
    if counts.dropped > 0 {
        bail!("the recording {} has holes: the kernel dropped {} packets", file.display(), counts.dropped);
    }
    Ok(done)
}
