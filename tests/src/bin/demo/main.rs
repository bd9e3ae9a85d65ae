//! The demonstration: real kernel TCP across emulated paths, the real gateway on a mirror port, the real agent starting
//! connections, the kernel's own windows beside what the gateway says, and advised connections beside the agent's control group.
//!
//! The demo applies the gateway's rule to the kernel's windows, before the advised transfers and after them. It fails if an estimate
//! differs by over 25 %. With routes it only prints the second comparison. Every number printed was measured in this run.

mod benefit;
mod compare;
mod load;
mod sequence;
mod two;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use clap::Parser;
use ipnet::IpNet;
use spand_tests::ending::{TooBusy, arguments, exit_code};
use spand_tests::lab::namespace::Cgroup;
use spand_tests::lab::path::{PathConfig, Queue, parse_rate};
use spand_tests::lab::tap::Tap;
use spand_tests::lab::topology::{ClientNetwork, MIRROR_DEVICE, NetworkPlan, Topology};
use spand_tests::lab::traffic::{Conduct, Server};
use spand_tests::lab::truth::{Poller, Record};
use spand_tests::lab::wire;
use spand_tests::product::{AgentSetup, ApplyMethod, Ended, GatewaySetup, Mode, Product, granted, interrupt, program};

use crate::compare::Compared;
use crate::load::Timed;

/// What the server's connections use: Linux's usual default.
pub(crate) const CONGESTION_CONTROL: &str = "cubic";
/// Clients in each network.
const CLIENTS: u8 = 3;
/// How long transfers are compared while the mirror port is recorded.
const RECORDED: Duration = Duration::from_secs(25);
/// How often the gateway learns for [`load::LEARNING`] until it has samples enough.
const LEARNING_TURNS: u32 = 5;
/// The streams outlast what is compared by this.
const AROUND: Duration = Duration::from_secs(60);
/// Time between two looks at the estimates while transfers are compared.
const BETWEEN_LOOKS: Duration = Duration::from_secs(60);
/// The agent reports every ten seconds.
const REPORT_MAX: Duration = Duration::from_secs(12);

#[derive(Debug, Parser)]
#[command(
    about = "Shows spand at work on real transfers in network namespaces (needs root, takes about three minutes)"
)]
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
    /// Seconds in which transfers are compared with and without advice
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(30..=3_600))]
    seconds: u32,
    /// Mode of the agent
    #[arg(long, value_enum, default_value = "careful")]
    mode: Mode,
    /// Part of the connections that the agent starts without advice, as its control group
    #[arg(long, default_value_t = 0.5)]
    control: f64,
    /// Two egresses with a gateway each, which share over a NATS server: one is killed, and no host may be without advice
    #[arg(long)]
    two_gateways: bool,
    /// Leave everything running at the end until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Keep the capture, logs, configurations, the kernel's windows and the plot in this folder, made where it is missing
    #[arg(long)]
    out: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit_code(run(&arguments()))
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
    if arguments.two_gateways { two::run(arguments, folder, &say) } else { one_gateway(arguments, folder, &say) }
}

fn one_gateway(arguments: &Arguments, folder: &Path, say: &dyn Fn(&str)) -> Result<()> {
    let lab = Topology::build(&plans(CLIENTS)?)?;
    let networks: Vec<IpNet> = lab.networks.iter().map(|network| network.plan.prefix).collect();
    say("a server, a gateway on its mirror port, and three client networks stand:");
    print_networks();
    let record = Record::default();
    let poller = Arc::new(Poller::start(record.clone())?);
    // Chosen for the host, not by the server: what an application chose, the agent leaves alone.
    lab.server.default_congestion_control(CONGESTION_CONTROL)?;
    let cgroup = cgroup(arguments, say)?;
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

    let compared_for = Duration::from_secs(arguments.seconds.into());
    load::start_streams(&lab, load::LEARNING * LEARNING_TURNS + compared_for + AROUND)?;
    say("a stream to every client fills every path from now on; all else goes on among them");
    let learnt = learn(&lab, &mut product, &networks, &record, say)?;
    println!(
        "\nShare of the path in segments: the gateway's estimate beside the same rule on the kernel's own windows, worst first\n"
    );
    compare::print(&learnt);

    println!("\nAdvice by transfer size\n");
    benefit::print(product.api(), &lab)?;
    println!();
    let agent = program(arguments.agent.as_deref(), "spand-agent")?;
    let starts = (arguments.mode, arguments.control);
    let (method, granted) = match start_agent(&agent, &mut product, &lab, starts, cgroup.as_ref()) {
        Err(error) if is_without_programs(&error, arguments, cgroup.as_ref()) => {
            say(&format!("no programs in this kernel ({error:#}); the agent sets routes instead"));
            (ApplyMethod::Route, start_agent(&agent, &mut product, &lab, starts, None)?)
        }
        granted => (if cgroup.is_some() { ApplyMethod::Bpf } else { ApplyMethod::Route }, granted?),
    };
    let control = if method == ApplyMethod::Bpf {
        format!("{:.0} % of the connections are its control group", arguments.control * 100.0)
    } else {
        "no control group".to_owned()
    };
    say(&format!("spand-agent runs ({}, apply = {}, {control})", arguments.mode.name(), method.name()));

    let picture = picture(folder, arguments.out.is_some())?;
    let folders = (folder, picture.as_path());
    let further = compared_for.saturating_sub(RECORDED);
    compare_connections(&lab, &mut product, (method, &granted), folders, say, &mut |lab, product, before| {
        let mut done = 0;
        let mut left = further;
        while !left.is_zero() {
            let span = left.min(BETWEEN_LOOKS);
            left -= span;
            done += compared_set(lab, product, span, method, before + done, say)?.len();
            if !left.is_zero() {
                say(&format!(
                    "estimate against the kernel: {}",
                    compare::in_words(&compared(product, &networks, &record)?)
                ));
            }
        }
        Ok(done)
    })?;
    let after = compared(&product, &networks, &record)?;
    println!(
        "\nShare of the path in segments after the advised transfers, beside the same rule on the kernel's own windows\n"
    );
    compare::print(&after);
    if method == ApplyMethod::Route {
        println!(
            "\n  with routes this table does not decide whether the demo passes: connections start in slow start, and the"
        );
        println!("  gateway alone takes samples from lost first flights");
    }
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

    end(product, &lab, arguments.keep, say)?;
    compare::verdict(&learnt).context("before advice")?;
    let judged = if method == ApplyMethod::Bpf {
        compare::verdict(&after).context("after the advised transfers")?;
        "before and after advice"
    } else {
        "before advice"
    };
    say(&format!("passed: {judged} every estimate is within 25 % of the same rule's on the kernel's own windows"));
    Ok(())
}

/// Ends the product, where everything is to stay up once the user interrupts.
fn end(mut product: Product, lab: &Topology, keep: bool, say: &dyn Fn(&str)) -> Result<()> {
    if keep {
        say("everything stays up; Ctrl-C ends it");
        while !interrupt::came() {
            product.check()?;
            thread::sleep(Duration::from_millis(100));
        }
    }
    for line in product.stop(lab) {
        say(&line);
    }
    Ok(())
}

/// Short transfers until the gateway has samples enough of every network: the comparison with the kernel.
fn learn(
    lab: &Topology,
    product: &mut Product,
    networks: &[IpNet],
    record: &Record,
    say: &dyn Fn(&str),
) -> Result<Vec<Compared>> {
    for turn in 1..=LEARNING_TURNS {
        load::learn(lab, &[2], load::LEARNING, &mut || {
            product.check()?;
            say(&format!("so far: {}", compare::so_far(&product.api().json("/v1/networks")?)?));
            Ok(())
        })?;
        say(&format!("{} s of short transfers: the gateway has watched", (load::LEARNING * turn).as_secs()));
        let learnt = compared(product, networks, record)?;
        if learnt.iter().all(Compared::has_enough) {
            return Ok(learnt);
        }
    }
    let what = format!("{} samples of every network", compare::SAMPLES_MIN);
    Err(TooBusy::new(what, load::LEARNING * LEARNING_TURNS).into())
}

/// Prints the paths.
fn print_networks() {
    for (prefix, rate, delay_ms, queue) in NETWORKS {
        println!("         {prefix:<18} {rate:>7}, {} ms round trip, queue of {queue} packets", delay_ms * 2);
    }
}

/// The cgroup whose connections the agent starts by programs in the kernel; `None` where it is to set routes, or has to.
fn cgroup(arguments: &Arguments, say: &dyn Fn(&str)) -> Result<Option<Cgroup>> {
    match (arguments.way.as_deref(), Cgroup::make("spand-demo")) {
        (Some("route"), _) => Ok(None),
        (None, Err(error)) => {
            say(&format!("{error:#}; the agent will set routes instead"));
            Ok(None)
        }
        (_, made) => made.map(Some),
    }
}

/// Whether the agent is to set routes since it could not load its programs. Such an agent ends; one that is slow does not.
fn is_without_programs(error: &Error, arguments: &Arguments, cgroup: Option<&Cgroup>) -> bool {
    error.is::<Ended>() && cgroup.is_some() && arguments.way.is_none()
}

/// Compares connections with and without advice: what they began with on the wire, the packets of two, and completion times.
/// `folder` takes the recording, `file` the plot. `further` makes the transfers after those that are recorded, as many as it returns.
fn compare_connections(
    lab: &Topology,
    product: &mut Product,
    (method, granted): (ApplyMethod, &BTreeMap<IpNet, u32>),
    (folder, file): (&Path, &Path),
    say: &dyn Fn(&str),
    further: &mut dyn FnMut(&Topology, &mut Product, usize) -> Result<usize>,
) -> Result<()> {
    let networks: Vec<IpNet> = lab.networks.iter().map(|network| network.plan.prefix).collect();
    let recording = folder.join("compared.pcap");
    let (first, segments) = recorded(lab, &recording, || compared_set(lab, product, RECORDED, method, 0, say))
        .and_then(|first| Ok((first, wire::read(&recording)?)))?;
    let senders = wire::senders(&segments, lab.port);
    let begin = Instant::now();
    // Without a control group more of them would show nothing more.
    let second = if method == ApplyMethod::Bpf { further(lab, product, first.len())? } else { 0 };
    let seconds = (RECORDED + begin.elapsed()).as_secs();

    println!(
        "\nInitial window really used, counted on the wire (connections of 100 KB and more: segments before the first ACK)\n"
    );
    sequence::print_first_flights(&networks, &first, &senders, granted);
    if method == ApplyMethod::Bpf {
        println!(
            "\n  no start is larger than the receiver's window, at first 64 KB; segments beyond the tenth are paced, and those"
        );
        println!("  due later than the first ACK are not in the first flight");
    }
    if let Some(pair) = sequence::pair(&first, &senders) {
        std::fs::write(file, pair.plot(&segments, &path_words(pair.network))?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        println!("\nOne transfer of 100 KB with and without advice, as the mirror port saw it: {}\n", file.display());
        println!("  {}", pair.words());
    }
    drop(segments);
    if method == ApplyMethod::Bpf {
        let all = first.len() + second;
        let classes = reported(product, all, say)?;
        println!(
            "\nCompletion time by size, of {all} connections in {seconds} s: control or advised at random, as /v1/benefit counts them\n"
        );
        print!("{}\n{}", benefit::table(&classes), benefit::further(&classes));
        println!("  10 KB are fewer segments than Linux's own initial window: there a start on advice changes nothing");
    } else {
        println!(
            "\nNot compared: routes are for whole networks, so no connection is a control (apply = \"bpf\" has a control group)."
        );
    }
    Ok(())
}

/// Starts the agent and waits until it has something for every network: the windows it grants. With a cgroup it starts that
/// one's connections by programs in the kernel, else it sets routes.
fn start_agent(
    agent: &Path,
    product: &mut Product,
    lab: &Topology,
    (mode, control_fraction): (Mode, f64),
    cgroup: Option<&Cgroup>,
) -> Result<BTreeMap<IpNet, u32>> {
    let method = if cgroup.is_some() { ApplyMethod::Bpf } else { ApplyMethod::Route };
    let cgroup = cgroup.map(|cgroup| cgroup.folder().to_owned());
    let setup = AgentSetup {
        method,
        mode,
        include: Vec::new(),
        cgroup,
        control_fraction,
        number: 0,
        gateways: Vec::new(),
        more: String::new(),
    };
    product.start_agent(lab, agent, &setup)?;
    let client = |network: &ClientNetwork| network.addresses.first().map(|client| (*client, None));
    let places: Vec<_> = lab.networks.iter().map(client).collect::<Option<_>>().context("a network without clients")?;
    let windows = granted(&product.wait_for_advice(&places)?)?;
    let prefixes = lab.networks.iter().map(|network| network.plan.prefix);
    Ok(prefixes.zip(windows).collect())
}

/// Estimates and truth at this moment, once the last connections have ended and the gateway has sent its estimates.
fn compared(product: &Product, networks: &[IpNet], record: &Record) -> Result<Vec<Compared>> {
    thread::sleep(Duration::from_secs(1));
    if record.dropped() > 0 {
        bail!("the record of the kernel's windows was full: {} rows are missing", record.dropped());
    }
    compare::compare(networks, &product.api().json("/v1/networks")?, &record.rows())
}

fn plans(clients: u8) -> Result<Vec<NetworkPlan>> {
    let plan = |(prefix, rate, delay_ms, queue): (&str, &str, u64, u32)| {
        let path = PathConfig::bottleneck(parse_rate(rate)?, Duration::from_millis(delay_ms), Queue::Packets(queue));
        Ok(NetworkPlan { prefix: prefix.parse()?, clients, path })
    };
    NETWORKS.into_iter().map(plan).collect()
}

/// Compared transfers for `span`; `before` of them are done already. `say` hears how far it is.
fn compared_set(
    lab: &Topology,
    product: &mut Product,
    span: Duration,
    method: ApplyMethod,
    before: usize,
    say: &dyn Fn(&str),
) -> Result<Vec<Timed>> {
    load::compared(lab, span, before as u64, &mut |done| {
        product.check()?;
        let done = before + done;
        if method == ApplyMethod::Bpf {
            let classes = benefit::read(&product.api().json("/v1/benefit")?)?;
            let reported = benefit::transfers(&classes);
            say(&format!(
                "{done} transfers, {reported} reported; advised against control: {}",
                benefit::so_far(&classes)
            ));
        } else {
            say(&format!("{done} transfers"));
        }
        Ok(())
    })
}

/// What the gateway counts once the agent has reported `all` connections, or has had the time to.
fn reported(product: &mut Product, all: usize, say: &dyn Fn(&str)) -> Result<Vec<benefit::Class>> {
    let begin = Instant::now();
    say("waiting for the agent's last report");
    loop {
        product.check()?;
        let classes = benefit::read(&product.api().json("/v1/benefit")?)?;
        if benefit::transfers(&classes) >= all as u64 || begin.elapsed() > REPORT_MAX {
            return Ok(classes);
        }
        if interrupt::came() {
            bail!("interrupted");
        }
        thread::sleep(Duration::from_millis(250));
    }
}

/// Where the plot is written: in the folder that the user named, else beside what was built.
fn picture(folder: &Path, is_named: bool) -> Result<PathBuf> {
    let folder = if is_named {
        folder.to_owned()
    } else {
        let program = std::env::current_exe().context("cannot find this program")?;
        let target = program.parent().and_then(Path::parent).context("this program lies in no build folder")?;
        target.join("demo")
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder.join("sequence.svg"))
}

/// A network's path in words.
fn path_words(network: IpNet) -> String {
    let of = NETWORKS.iter().find(|(prefix, ..)| prefix.parse() == Ok(network));
    of.map_or_else(String::new, |(_, rate, delay_ms, _)| {
        format!("{} Mbit/s, {} ms, beside three streams", rate.trim_end_matches("mbit"), delay_ms * 2)
    })
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
