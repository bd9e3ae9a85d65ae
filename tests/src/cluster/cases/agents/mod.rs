//! Hosts that change over: a gateway dies, comes back or stands still, and at last all but one die.

mod changeover;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::changeover::{Changeover, Spent, Step};
use super::{Programs, Row, Size};
use crate::cluster::gateway::{Gateway, Metrics};
use crate::cluster::hosts::{Hosts, What};
use crate::cluster::listener::Listener;
use crate::cluster::site::Site;
use crate::cluster::traffic::{Played, Traffic, by_connection};
use crate::ending::{progress, wait};
use crate::memory::resident_bytes;
use crate::starts::at_per_mille;

/// The way back: a gateway has been up for 120 to 240 s, looked at every 5 to 15 s.
const BACK_WITHIN: Duration = Duration::from_secs(300);
/// What did not happen by then is reported as missing.
const MOST: Duration = Duration::from_secs(420);
/// Counters of hosts are of the last second.
const SETTLES: Duration = Duration::from_secs(3);

/// How large it is.
#[derive(Clone, Copy, Debug)]
struct Plan {
    servers: usize,
    gateways: u16,
    hosts: usize,
    networks: u32,
    /// Connections until there are estimates, and from then on: with 1,000 hosts each change is that many messages.
    connections: [u32; 2],
    /// Of advice, `publish.lifetime_s`: what a host holds is over by then, unless it was renewed or adopted.
    lifetime: Duration,
    /// How long it takes to have estimates; longer than a lifetime, since a gateway adopts once it has heard the others for one.
    fill: Duration,
    /// Whether only a gateway dies.
    kill_only: bool,
}

impl Plan {
    const fn of(size: Size) -> Self {
        match size {
            Size::Full => Self {
                servers: 3,
                gateways: 4,
                hosts: 1_000,
                networks: 5_000,
                connections: [1_500, 500],
                lifetime: Duration::from_secs(60),
                fill: Duration::from_secs(120),
                kill_only: false,
            },
            Size::Quick => Self {
                servers: 1,
                gateways: 2,
                hosts: 40,
                networks: 50,
                connections: [400, 60],
                lifetime: Duration::from_secs(10),
                fill: Duration::from_secs(13),
                kill_only: true,
            },
        }
    }
}

/// What is running.
struct Trial {
    size: Size,
    plan: Plan,
    site: Site,
    hosts: Hosts,
    /// Hosts that prefer the first gateway.
    preferred: usize,
    rows: Vec<Row>,
}

/// Runs it.
///
/// # Errors
/// Where a gateway or a server fails, or hosts cannot subscribe.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let plan = Plan::of(size);
    // Room for all hosts at any of them, and for those that just left.
    let more = format!(
        "[publish]\nto_hosts = \"all\"\nsubscribers = {}\nlifetime_s = {}\nrenewal_s = {}\n[log]\nfilter = \"warn\"\n",
        2 * plan.hosts + 10,
        plan.lifetime.as_secs(),
        plan.lifetime.as_secs() / 3
    );
    let Some(site) = Site::start(programs, plan.servers, plan.gateways, &more)? else { return Ok(Vec::new()) };
    let numbers: Vec<u16> = (1..=plan.gateways).collect();
    let play = |connections| {
        let played = Played { connections, networks: plan.networks, loss: 0.02, place: by_connection, seed: 11 };
        Traffic::start(&site.namespace, numbers.clone(), played)
    };
    let [many, few] = plan.connections;
    let traffic = play(many)?;
    wait("agents: estimates come", plan.fill);
    traffic.stop()?;
    let traffic = play(few)?;
    let before = resident_bytes("self")?;
    let begun = Instant::now();
    let hosts = Hosts::start(&site.namespace, numbers, plan.hosts)?;
    let mut trial = Trial { size, plan, site, hosts, preferred: 0, rows: Vec::new() };
    trial.subscribed(begun, before)?;
    trial.died()?;
    if !plan.kill_only {
        trial.back()?;
        trial.stood_still()?;
        trial.slow()?;
    }
    let Trial { hosts, rows, .. } = trial;
    hosts.stop()?;
    traffic.stop()?;
    Ok(rows)
}

impl Trial {
    /// All of them subscribe at once.
    fn subscribed(&mut self, begun: Instant, before: u64) -> Result<()> {
        let count = self.hosts.count();
        let spent = Spent::begin(&self.site.gateways)?;
        let whole = self.until(begun, "all snapshots", |trial| {
            let all = trial.hosts.since(begun);
            let whole = all.iter().filter(|noted| noted.what == What::Whole).map(|noted| noted.host);
            whole.collect::<std::collections::BTreeSet<_>>().len() == count
        });
        ensure!(whole, "not all hosts have a snapshot after {MOST:?}: {}", self.gateway(1)?.log());
        let took = begun.elapsed();
        let cores = spent.cores(&self.site.gateways)?;
        std::thread::sleep(SETTLES);
        let total = self.hosts.total();
        let estimates = self.gateway(1)?.metrics()?.get("spand_publisher_estimates");
        ensure!(
            estimates > 0.6 * f64::from(self.plan.networks),
            "only {estimates} estimates: the traffic was too short"
        );
        let numbers: Vec<u16> = self.site.gateways.iter().map(Gateway::number).collect();
        let (loads, ratio) = loads(&self.hosts, &numbers);
        let each = (resident_bytes("self")?.saturating_sub(before)) as f64 / total.held.max(1) as f64;
        self.rows.extend([
            Row::stated(
                format!("{count} hosts subscribe at {} gateways: loads", numbers.len()),
                format!("{loads}, most {ratio:.2} of the mean"),
            ),
            Row::stated(
                "all subscribe at once: snapshots whole",
                format!(
                    "after {:.1} s, {} networks held, {} on the host with fewest, {each:.0} bytes each with all else; {cores}",
                    took.as_secs_f64(),
                    total.held,
                    total.fewest
                ),
            ),
        ]);
        Ok(())
    }

    /// The first gateway is killed. A host of an older agent, which names no cluster, subscribes meanwhile.
    fn died(&mut self) -> Result<()> {
        let step = self.begin("killed", &[1])?;
        self.preferred = step.hosts.len();
        self.gateway(1)?.kill()?;
        let old = Listener::start(&self.site.namespace, 2)?;
        let changeover = self.end(step, self.plan.lifetime)?;
        let (snapshots, networks, adopted) = old.look(|log| (log.snapshots, log.estimates.len(), log.adopted));
        self.rows.extend(changeover.rows(self.size));
        let figure = format!("{snapshots} snapshot, {networks} networks, adopted {adopted} times");
        self.rows.push(Row::judged(
            "killed: an older agent, which names no cluster, subscribes meanwhile",
            "a whole snapshot, not adopted",
            figure,
            snapshots > 0 && networks > 0 && adopted == 0,
        ));
        Ok(())
    }

    /// It starts again, and its hosts return.
    fn back(&mut self) -> Result<()> {
        let before = self.hosts.total().lapsed;
        self.gateway(1)?.start_again()?;
        let begun = Instant::now();
        let spent = Spent::begin(&self.site.gateways)?;
        let preferred = self.preferred;
        let is_back = |trial: &Self| trial.hosts.at(1).len() >= preferred;
        self.until(begun, "hosts return", is_back);
        std::thread::sleep(SETTLES);
        let log = self.hosts.since(begun);
        let mut delays: Vec<Duration> = log
            .iter()
            .filter(|noted| noted.what == What::Subscribed && noted.gateway == 1)
            .map(|noted| noted.at.duration_since(begun))
            .collect();
        delays.sort_unstable();
        let failed = log.iter().filter(|noted| noted.what == What::Failed).count();
        let lapsed = self.hosts.total().lapsed - before;
        let at = |per_mille| at_per_mille(&delays, per_mille).as_secs_f64();
        let is_all = delays.len() >= preferred;
        let figure = format!(
            "{} of {preferred}, first {:.0} s, 50 % {:.0} s, 99 % {:.0} s; {}",
            delays.len(),
            at(0),
            at(500),
            at(990),
            spent.cores(&self.site.gateways)?
        );
        let in_time = is_all && at_per_mille(&delays, 990) <= BACK_WITHIN;
        self.rows.extend([
            Row::timed(self.size, "back: its hosts return, 99 %", "<= 300 s", figure, in_time),
            Row::judged("back: streams that ended before another began", "none", failed.to_string(), failed == 0),
            Row::judged("back: advice that lapsed", "none", lapsed.to_string(), lapsed == 0),
        ]);
        Ok(())
    }

    /// The second gateway is paused with its connections open, and runs again later.
    fn stood_still(&mut self) -> Result<()> {
        let step = self.begin("paused", &[2])?;
        self.gateway(2)?.pause()?;
        let changeover = self.end(step, SETTLES)?;
        let lapsed = self.hosts.total().lapsed;
        self.gateway(2)?.resume()?;
        wait("agents: the paused one runs again", Duration::from_secs(20));
        let later = self.hosts.total().lapsed - lapsed;
        self.rows.extend(changeover.rows(self.size));
        self.rows.push(Row::judged("resumed: advice that lapsed", "none", later.to_string(), later == 0));
        Ok(())
    }

    /// All but the first die, so that it has a snapshot for each of their hosts at once.
    fn slow(&mut self) -> Result<()> {
        let lost: Vec<u16> = (2..=self.plan.gateways).collect();
        let step = self.begin("all but one killed", &lost)?;
        for number in &lost {
            self.gateway(*number)?.kill()?;
        }
        let changeover = self.end(step, SETTLES)?;
        let last = changeover.whole();
        self.rows.extend(changeover.rows(self.size));
        self.rows.push(Row::timed(
            self.size,
            "all but one killed: the last snapshot takes longer than a lifetime",
            format!("> {} s", self.plan.lifetime.as_secs()),
            format!("{:.1} s", last.as_secs_f64()),
            last > self.plan.lifetime,
        ));
        Ok(())
    }

    /// Before these gateways go away.
    fn begin(&self, name: &'static str, lost: &[u16]) -> Result<Step> {
        let survivors: Vec<u16> =
            self.site.gateways.iter().map(Gateway::number).filter(|number| !lost.contains(number)).collect();
        let metrics = self.metrics_of(&survivors)?;
        let hosts = lost.iter().flat_map(|number| self.hosts.at(*number)).collect();
        let spent = Spent::begin(&self.site.gateways)?;
        Ok(Step { name, hosts, survivors, metrics, total: self.hosts.total(), spent, begun: Instant::now() })
    }

    /// Waits until all of their hosts have a whole snapshot of another gateway, and for `rest`.
    fn end(&self, step: Step, rest: Duration) -> Result<Changeover> {
        let begun = step.begun;
        self.until(begun, step.name, |trial| step.is_over(&trial.hosts));
        let cores = step.spent.cores_over(begun.elapsed(), &self.site.gateways)?;
        wait(&format!("agents: {}: what is held lives on", step.name), rest);
        let metrics = self.metrics_of(&step.survivors)?;
        let (loads, ratio) = loads(&self.hosts, &step.survivors);
        let log = self.hosts.since(begun);
        Ok(Changeover { log, metrics, total: self.hosts.total(), loads, ratio, cores, step })
    }

    fn metrics_of(&self, numbers: &[u16]) -> Result<Vec<Metrics>> {
        let asked = self.site.gateways.iter().filter(|gateway| numbers.contains(&gateway.number()));
        asked.map(Gateway::metrics).collect()
    }

    fn gateway(&mut self, number: u16) -> Result<&mut Gateway> {
        let found = self.site.gateways.iter_mut().find(|gateway| gateway.number() == number);
        found.with_context(|| format!("there is no gateway {number}"))
    }

    /// Waits until something is so, at most [`MOST`]; whether it is.
    fn until(&self, begun: Instant, what: &str, is_so: impl Fn(&Self) -> bool) -> bool {
        while begun.elapsed() < MOST {
            if is_so(self) {
                return true;
            }
            progress(&format!("agents: {what}: {} s", begun.elapsed().as_secs()));
            std::thread::sleep(Duration::from_millis(100));
        }
        false
    }
}

/// Hosts at each of these gateways, and the most over the mean.
fn loads(hosts: &Hosts, gateways: &[u16]) -> (String, f64) {
    let each: Vec<usize> = gateways.iter().map(|number| hosts.at(*number).len()).collect();
    let mean = each.iter().sum::<usize>() as f64 / each.len().max(1) as f64;
    let most = each.iter().copied().max().unwrap_or_default() as f64;
    let text: Vec<String> = each.iter().map(usize::to_string).collect();
    (text.join(" + "), most / mean.max(1.0))
}
