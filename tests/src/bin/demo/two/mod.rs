//! Two egresses with a gateway each (`--two-gateways`): both know what either saw, and one of them is killed.

mod judge;
mod shares;
mod stage;
mod watch;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use spand_tests::cluster::required_program;
use spand_tests::lab::topology::Topology;
use spand_tests::lab::traffic::{Conduct, Server};
use spand_tests::product::{Agent, Gateway, interrupt, print_addresses, program};

use self::judge::{Changeover, Outcome};
use self::stage::{BYTES, Begun};
use self::watch::Watch;
use crate::{Arguments, CONGESTION_CONTROL, cgroup, is_without_programs, load, plans, print_networks};

/// Clients in each network, half of them at each egress.
const CLIENTS: u8 = 4;
/// How long paths are full, and gateways watch.
const LEARNING: Duration = Duration::from_secs(20);
/// Longer than a bucket of ten seconds takes to be over and its cell to come.
const EQUAL_WITHIN: Duration = Duration::from_secs(20);
/// An agent is subscribed elsewhere long before.
const CHANGES_WITHIN: Duration = Duration::from_secs(20);
/// Starts that are smaller than before by then stay so.
const LARGE_WITHIN: Duration = Duration::from_secs(60);
/// A gateway that knows nothing by then has not learnt from the others.
const KNOWS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn run(arguments: &Arguments, folder: &Path, say: &dyn Fn(&str)) -> Result<()> {
    // First of all: without one there is nothing to show.
    let nats_program = required_program()?;
    let (gateway, agent) =
        (program(arguments.gateway.as_deref(), "spand-gateway")?, program(arguments.agent.as_deref(), "spand-agent")?);
    let lab = Topology::build(&plans(CLIENTS)?)?;
    let second = lab.add_egress()?;
    let networks: Vec<IpNet> = lab.networks.iter().map(|network| network.plan.prefix).collect();
    say("a server with two egresses, and three client networks:");
    print_networks();
    println!("         clients with an even address take egress 1, the others egress 2; each egress has a mirror port");
    lab.server.default_congestion_control(CONGESTION_CONTROL)?;
    let cgroup = cgroup(arguments, say)?;
    let serve = || Server::start_with(&lab.server, lab.port, &Conduct::default());
    let _server = match &cgroup {
        Some(cgroup) => cgroup.enter(serve)?,
        None => serve()?,
    };
    let mut nats = stage::start_nats(&nats_program, &lab, folder)?;
    let mut gateways = stage::start_gateways(&gateway, &lab, &second, folder)?;
    say("one nats-server and two gateways run, a gateway on each mirror port");
    let took = stage::wait_sharing(&mut gateways, &mut nats)?;
    say(&format!("each gateway hears the other ({:.1} s after both were ready)", took.as_secs_f64()));

    load::start_streams(&lab, LEARNING)?;
    say(&format!("for {} s a stream to every client and short transfers fill every path", LEARNING.as_secs()));
    load::learn(&lab, &[2, 3], LEARNING, &mut || gateways.iter_mut().try_for_each(Gateway::check))?;
    say("the paths are quiet again: waiting for the end of the last bucket of ten seconds");
    let shares = shares::wait_equal(&mut gateways, &networks, EQUAL_WITHIN)?;
    for (number, gateway) in (1..).zip(&gateways) {
        say(&format!("gateway {number}: {}", shares::part(gateway.api())?));
    }
    println!("\nWhat each gateway saw by itself, and the share of the path that it makes of what both saw\n");
    shares::print(&shares);
    println!();

    let plain = stage::recorded(&lab, folder, "plain", || stage::in_turn(&lab, usize::from(CLIENTS)))?;
    let started = stage::start_agent(&agent, &lab, cgroup.as_ref(), folder);
    let (mut agent, granted) = match started {
        Err(error) if is_without_programs(&error, arguments, cgroup.as_ref()) => {
            say(&format!("no programs in this kernel ({error:#}); the agent sets routes instead"));
            stage::start_agent(&agent, &lab, None, folder)?
        }
        started => started?,
    };
    let watch = Watch::start(agent.socket(), &stage::clients(&lab)?)?;
    let url = agent.status()?.gateway.url;
    let used = stage::place_of(&url)?;
    say(&format!("spand-agent runs; of both gateways it chose gateway {} ({url})", used + 1));
    let advised = stage::recorded(&lab, folder, "advised", || stage::in_turn(&lab, usize::from(CLIENTS)))?;
    println!("\n{CLIENTS} transfers of {} KB to each network, without and with advice\n", BYTES / 1_000);
    stage::print(&granted, [&plain, &advised]);
    println!("\n  no start is larger than the receiver's window, at first 64 KB\n");

    let (killed, changeover) = change_over(&lab, &watch, &url, used, &mut gateways, folder, say)?;
    agent.check()?;
    let known_again = come_back(&mut gateways, used, &networks, folder, say)?;
    let large_again = wait_large(&lab, folder, &advised, killed, say)?;
    print_status(&agent, &watch, say)?;
    // What comes later is the user's: Ctrl-C ends the agent, too.
    let seen = watch.stop()?;
    if arguments.keep {
        keep(&agent, &mut gateways, say)?;
    }
    nats.check()?;
    stage::stop(agent, gateways, nats, &lab, say);
    conclude(&Outcome { shares, seen, changeover, known_again, large_again }, say)
}

/// Kills the gateway in use while transfers begin: how long until the agent is subscribed at the other one, and the first flights of the
/// transfers that began until then.
fn change_over(
    lab: &Topology,
    watch: &Watch,
    url: &str,
    used: usize,
    gateways: &mut [Gateway; 2],
    folder: &Path,
    say: &dyn Fn(&str),
) -> Result<(Instant, Changeover)> {
    let mut killed = Instant::now();
    let mut begins = Vec::new();
    let all = stage::recorded(lab, folder, "changeover", || {
        gateways.get_mut(used).context("no such gateway")?.kill()?;
        killed = Instant::now();
        say(&format!("gateway {} is killed (SIGKILL); transfers begin at once, and go on", used + 1));
        let (mut timed, mut turn) = (Vec::new(), 0);
        while watch.seen().changed_from(url).is_none() && killed.elapsed() < CHANGES_WITHIN {
            for (one, begin) in load::one_each(lab, turn, BYTES)? {
                timed.push(one);
                begins.push(begin);
            }
            turn += 1;
        }
        Ok(timed)
    })?;
    let looks = watch.seen().changed_from(url);
    // It changed over between two looks: what began before the first of them began without a gateway for certain.
    let (until, changed) = looks.map_or((Instant::now(), None), |[before, at]| (before, Some(at)));
    let mut meanwhile = stage::flights(&all);
    let mut begins = begins.into_iter();
    // What left later may have begun by what the other gateway sent.
    meanwhile.retain(|_| begins.next().is_some_and(|begin| begin < until));
    match changed {
        Some(at) => say(&format!(
            "the agent is subscribed at gateway {}, {:.2} s after the kill",
            2 - used,
            at.saturating_duration_since(killed).as_secs_f64()
        )),
        None => say("the agent did NOT subscribe at the other gateway"),
    }
    if meanwhile.is_empty() {
        say("no transfer began in between: that was shorter than a handshake");
    } else {
        let words = stage::words(&meanwhile);
        say(&format!("transfers that began in between: {}, with {words} segments", meanwhile.len()));
    }
    let after = stage::recorded(lab, folder, "after", || stage::in_turn(lab, usize::from(CLIENTS)))?;
    let after = stage::flights(&after);
    say(&format!("transfers that began right after it: {}, with {} segments", after.len(), stage::words(&after)));
    Ok((killed, Changeover { took: changed.map(|at| at.saturating_duration_since(killed)), meanwhile, after }))
}

/// Starts the killed gateway again, on an empty disk: how long until it had every network from the other one.
fn come_back(
    gateways: &mut [Gateway; 2],
    used: usize,
    networks: &[IpNet],
    folder: &Path,
    say: &dyn Fn(&str),
) -> Result<Option<Duration>> {
    let gateway = gateways.get_mut(used).context("no such gateway")?;
    stage::remove_store(folder, used)?;
    let begin = Instant::now();
    gateway.start_again()?;
    let ready = begin.elapsed();
    // Its shares can be read a little before the counter of what they rest on.
    let (mut known, mut cells) = (None, 0);
    while (known.is_none() || cells == 0) && begin.elapsed() < KNOWS_WITHIN {
        gateway.check()?;
        if shares::estimates(gateway.api(), networks)?.iter().all(Option::is_some) {
            known.get_or_insert_with(|| begin.elapsed());
        }
        cells = shares::cells_taken(gateway.api())?;
        shares::pause()?;
    }
    let knows = known.map_or("does NOT know every network".to_owned(), |known| {
        format!("knows all {} networks after {:.1} s", networks.len(), known.as_secs_f64())
    });
    say(&format!(
        "gateway {} started again on an empty disk: ready after {:.1} s, {knows}, from {cells} cells of gateway {} that the nats-server kept",
        used + 1,
        ready.as_secs_f64(),
        2 - used
    ));
    // Without a cell of the other one there is nothing that it could know from it.
    Ok(known.filter(|_| cells > 0))
}

/// Waits until transfers begin with about as much as before the kill: how long after it that was. A gateway lends a host that comes from
/// another one little at first.
fn wait_large(
    lab: &Topology,
    folder: &Path,
    before: &Begun,
    killed: Instant,
    say: &dyn Fn(&str),
) -> Result<Option<Duration>> {
    loop {
        let begun = stage::recorded(lab, folder, "later", || stage::in_turn(lab, usize::from(CLIENTS)))?;
        let (took, flights) = (killed.elapsed(), stage::flights(&begun));
        let (seconds, words) = (took.as_secs_f64(), stage::words(&flights));
        if judge::are_as_large(&stage::flights(before), &flights) {
            say(&format!("{seconds:.0} s after the kill transfers begin with as much as before it: {words} segments"));
            return Ok(Some(took));
        }
        say(&format!("{seconds:.0} s after the kill transfers begin with {words} segments"));
        if took > LARGE_WITHIN {
            return Ok(None);
        }
        for _ in 0..30 {
            shares::pause()?;
        }
    }
}

/// Prints what the agent's own counters say.
fn print_status(agent: &Agent, watch: &Watch, say: &dyn Fn(&str)) -> Result<()> {
    let (status, seen) = (agent.status()?, watch.seen());
    say(&format!(
        "the agent: {} change of gateway, advice for {} networks in force, {} expired, {} withdrawn, {} dropped",
        status.gateway.gateway_changes,
        status.in_force.len(),
        status.advice.expired,
        status.advice.withdrawn,
        status.advice.dropped_by_snapshot
    ));
    say(&format!(
        "it was asked {} times, at most {:.2} s apart: {} times a network was without advice, {} times the start to one was no larger than its own",
        seen.looks,
        seen.longest_gap.as_secs_f64(),
        seen.without_advice,
        seen.no_larger
    ));
    println!("         it goes back to gateways that it prefers once they have answered for two to four minutes");
    Ok(())
}

fn keep(agent: &Agent, gateways: &mut [Gateway; 2], say: &dyn Fn(&str)) -> Result<()> {
    println!("\nAsk the gateways and the agent yourself\n");
    gateways.iter().for_each(print_addresses);
    agent.print_commands();
    say("everything stays up; Ctrl-C ends it");
    while !interrupt::came() {
        gateways.iter_mut().try_for_each(Gateway::check)?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Says what was so, and fails where something was not.
fn conclude(outcome: &Outcome, say: &dyn Fn(&str)) -> Result<()> {
    let short = outcome.shortcomings();
    if outcome.lapses().is_empty() {
        say("hosts were never without advice");
    }
    if let Some(smaller) = outcome.smaller() {
        say(&smaller);
    }
    if !short.is_empty() {
        bail!("{}", short.join("; "));
    }
    say("passed: either gateway alone knows what both saw, and one of them can die");
    Ok(())
}
