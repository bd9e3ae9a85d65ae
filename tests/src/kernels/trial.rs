//! The trial, inside a guest: everything is tried that can be, and each finding goes out as soon as it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
use spand_agent::config::Variant;
use strum::IntoStaticStr;

use super::stage::{HOSTS, Host, Stage, client_address};
use super::{FINDINGS, Finding, Outcome, Times};
use crate::product::{Agent, AgentSetup, ApplyMethod, Gateway, GatewaySetup, Mode, program};

const SHORT_BYTES: u64 = 100_000;
const LONG_BYTES: u64 = 1_000_000;
/// Every way of starting connections but the default.
const VARIANTS: [Variant; 3] = [Variant::Stay, Variant::HandOver, Variant::Sockops];
/// What a kernel still takes down once a process has ended.
const TAKEN_DOWN: Duration = Duration::from_secs(5);

/// How much is tried.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, ValueEnum)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Extent {
    /// All of it.
    Full,
    /// One variant, one gateway, one kind of host.
    Short,
    /// The same transfer ten times, without the product.
    Repeat,
}

struct Trial {
    stage: Stage,
    extent: Extent,
    folder: tempfile::TempDir,
    findings: File,
    before: BTreeSet<String>,
}

/// Runs it and writes findings.
pub(super) fn run(extent: Extent) -> Result<()> {
    let mut findings = File::create(FINDINGS).with_context(|| format!("cannot write {FINDINGS}"))?;
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    say(&mut findings, &Finding::Kernel { release })?;
    let before = in_kernel()?;
    let folder = tempfile::tempdir()?;
    // The agent's user has its own folder inside.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let mut trial = Trial { stage: Stage::build()?, extent, folder, findings, before };
    if extent == Extent::Repeat {
        // The machine has just started: what it still does, and programs that are not in memory yet, would be part of the first times.
        thread::sleep(Duration::from_secs(10));
        trial.times(0, 4, 3, LONG_BYTES)?;
        let times_us = trial.times(0, 4, 10, LONG_BYTES)?;
        return trial.say(&Finding::Repeated { times_us });
    }
    if extent == Extent::Full {
        trial.gateways()?;
        trial.refusals()?;
    }
    let setup = GatewaySetup { management: Ipv4Addr::LOCALHOST, ..GatewaySetup::default() };
    let program = program(None, "spand-gateway")?;
    let _gateway = Gateway::start(&trial.stage.server, &program, &setup, &trial.folder.path().join("gateway"))?;
    let variant = if extent == Extent::Full { trial.variants()? } else { Some(Variant::default()) };
    variant.map_or(Ok(()), |variant| trial.transfers(variant.name()))
}

fn say(to: &mut File, finding: &Finding) -> Result<()> {
    writeln!(to, "{}", serde_json::to_string(finding)?).context("a finding cannot be written")
}

impl Trial {
    fn say(&mut self, finding: &Finding) -> Result<()> {
        say(&mut self.findings, finding)
    }

    /// The sentence of an agent from which something was taken.
    fn refusals(&mut self) -> Result<()> {
        let config = self.folder.path().join("refused.toml");
        fs::write(&config, "apply = \"bpf\"\nstate_dir = \"refused\"\n\n[bpf]\nfallback = \"exit\"\n")?;
        for (without, how, wanted) in REFUSALS {
            let script = format!("{how} --config {} run 2>&1", config.display());
            // One that runs all the same is ended.
            let mut command = Command::new("timeout");
            command.args(["20", "unshare", "--mount", "--propagation", "private", "sh", "-c", &script]);
            let printed = String::from_utf8(command.output()?.stdout)?;
            let sentence = printed.lines().find(|line| line.contains(wanted));
            let last = || printed.lines().last().unwrap_or_default().to_owned();
            let sentence = sentence.map_or_else(|| Outcome::Bad(last()), |line| Outcome::Good(line.to_owned()));
            self.say(&Finding::Refusal { without: without.to_owned(), sentence })?;
        }
        Ok(())
    }

    /// A gateway by each backend, and what it reads with.
    fn gateways(&mut self) -> Result<()> {
        for backend in ["auto", "af_packet", "libpcap"] {
            let setup = GatewaySetup { management: Ipv4Addr::LOCALHOST, backend, ..GatewaySetup::default() };
            let folder = self.folder.path().join(backend);
            let program = program(None, "spand-gateway")?;
            let (reads, sandbox) = match Gateway::start(&self.stage.server, &program, &setup, &folder) {
                Ok(gateway) => {
                    self.stage.transfer(client_address(0, 4), SHORT_BYTES)?;
                    // It takes in what it captured once a second.
                    thread::sleep(Duration::from_secs(2));
                    let metrics = gateway.api().get("/metrics")?.1;
                    let log = gateway.log();
                    gateway.stop();
                    let line = |word: &str| log.lines().find(|line| line.contains(word)).unwrap_or_default();
                    let with = line("capturing").split("backend=").nth(1).unwrap_or_default().to_owned();
                    let packets = metrics.lines().find(|line| line.starts_with("spand_capture_packets_total{"));
                    let reads = match packets.and_then(|line| line.rsplit(' ').next()) {
                        Some("0") | None => Outcome::Bad(format!("{with} saw no packet")),
                        Some(_) => Outcome::Good(with),
                    };
                    (reads, line("sandbox").split_once("sandbox").map_or("", |(_, words)| words).to_owned())
                }
                Err(error) => (Outcome::Bad(last_line(&error)), String::new()),
            };
            let backend = backend.to_owned();
            self.say(&Finding::Gateway { backend, reads, sandbox })?;
        }
        Ok(())
    }

    /// The agent by each variant, the default before the others; the first that works.
    fn variants(&mut self) -> Result<Option<Variant>> {
        let default = Variant::default();
        let mut first = None;
        for variant in [default].into_iter().chain(VARIANTS.into_iter().filter(|one| *one != default)) {
            if let Some(agent) = self.agent(variant.name(), variant.name())? {
                first = first.or(Some(variant));
                agent.stop();
            }
            self.left(&format!("the end of {variant}"))?;
        }
        Ok(first)
    }

    /// Starts the agent and waits for it; none where the kernel or the agent refuses.
    fn agent(&mut self, variant: &str, named: &str) -> Result<Option<Agent>> {
        let setup = AgentSetup {
            method: ApplyMethod::Bpf,
            mode: Mode::Careful,
            include: Vec::new(),
            cgroup: None,
            control_fraction: 0.0,
            number: 0,
            gateways: vec![Ipv4Addr::LOCALHOST],
            // As the packaged unit runs it: this user, with the capabilities that the agent keeps for its apply method.
            more: format!(
                "[bpf]\nvariant = \"{variant}\"\ncontrol_fraction = 0.0\n\n[process]\nuser = \"spand-agent\"\n"
            ),
        };
        let begin = Instant::now();
        let program = program(None, "spand-agent")?;
        let mut agent = Agent::start(&self.stage.server, &program, &setup, self.folder.path())?;
        let (up, lacks) = match agent.wait_for_subscription() {
            Ok(()) => {
                let (seconds, status) = (begin.elapsed().as_secs_f64(), agent.status()?);
                let in_force = status.variant.as_deref().unwrap_or(status.method.name());
                let lacks = status.lacking.into_iter().map(|lack| lack.sentence()).collect();
                let verified: u64 = ProgInfoIter::default().map(|program| u64::from(program.verified_insns)).sum();
                let up = if holds_sys_admin(status.pid)? {
                    Outcome::Bad("the agent still has CAP_SYS_ADMIN".to_owned())
                } else {
                    Outcome::Good(format!("{seconds:.1} ({in_force}, {} k)", verified.div_ceil(1_000)))
                };
                (up, lacks)
            }
            Err(error) => (Outcome::Bad(last_line(&error)), Vec::new()),
        };
        let is_up = matches!(up, Outcome::Good(_));
        self.say(&Finding::Agent { variant: named.to_owned(), up, lacks })?;
        Ok(is_up.then_some(agent))
    }

    /// Transfers before and with the agent, a crash of it, and its return.
    fn transfers(&mut self, variant: &str) -> Result<()> {
        let (hosts, families): (&[Host], &[u8]) =
            if self.extent == Extent::Full { (&HOSTS, &[4, 6]) } else { (&HOSTS[..1], &[4]) };
        let (long, short) = if self.extent == Extent::Full { (10, 6) } else { (4, 0) };
        let cells: Vec<(usize, Host, u8)> =
            (0..).zip(hosts).flat_map(|(n, host)| families.iter().map(move |family| (n, *host, *family))).collect();
        let mut plain = BTreeMap::new();
        for &(index, host, family) in &cells {
            self.stage.configure(host)?;
            plain.insert((index, family), self.both(index, family, long, short)?);
        }
        let Some(mut agent) = self.agent(variant, &format!("{variant}, for transfers"))? else { return Ok(()) };
        for &(index, host, family) in &cells {
            self.stage.configure(host)?;
            let client = client_address(index, family);
            let decided = agent.wait_for_advice(&[(client, None)])?;
            let before = agent.method_events()?;
            let first_flight = self.stage.first_flight(client, LONG_BYTES)?;
            let advised = self.both(index, family, long, short)?;
            let moved = agent.method_events()?.into_iter().filter_map(|(name, count)| {
                let moved = count - before.get(&name).copied().unwrap_or_default();
                (moved > 0).then_some((name, moved))
            });
            let moved: BTreeMap<String, u64> = moved.collect();
            let mut events: Vec<String> = moved.iter().map(|(name, count)| format!("{name} {count}")).collect();
            events.extend(decided.iter().filter(|one| !one.on_advice).map(|one| one.decision.clone()));
            let count = |name| moved.get(name).copied().unwrap_or_default();
            let finding = Finding::Transfers {
                host: host.name.to_owned(),
                family,
                plain: plain.remove(&(index, family)).unwrap_or_default(),
                advised,
                started: count("started"),
                seeded: count("bbr_seeded"),
                events: events.join(", "),
                first_flight,
            };
            self.say(&finding)?;
        }
        agent.kill()?;
        self.left("SIGKILL")?;
        self.undo()?;
        self.left("SIGKILL and undo")?;
        if self.extent == Extent::Full
            && let Some(mut agent) = self.agent(variant, &format!("{variant}, after SIGKILL"))?
        {
            let client = client_address(0, 4);
            self.stage.configure(HOSTS[0])?;
            agent.wait_for_advice(&[(client, None)])?;
            self.stage.transfer(client, LONG_BYTES)?;
            let status = agent.status()?;
            let started = status.method_events.get("started").copied().unwrap_or_default();
            // Without programs in the kernel none.
            if started != u64::from(status.variant.is_some()) {
                let why = format!("{started} of 1 connections started");
                self.say(&Finding::Broken { step: "a start after SIGKILL".to_owned(), why })?;
            }
            agent.stop();
            self.undo()?;
            self.left("the stop after it and undo")?;
        }
        Ok(())
    }

    fn both(&self, index: usize, family: u8, long: usize, short: usize) -> Result<Times> {
        let long_us = self.times(index, family, long, LONG_BYTES)?;
        Ok(Times { long_us, short_us: self.times(index, family, short, SHORT_BYTES)? })
    }

    fn times(&self, index: usize, family: u8, count: usize, bytes: u64) -> Result<Vec<u64>> {
        (0..count).map(|_| self.stage.transfer(client_address(index, family), bytes)).collect()
    }

    fn undo(&mut self) -> Result<()> {
        let mut undo = self.stage.server.command(program(None, "spand-agent")?);
        let output = undo.args(["undo", "--run", "--config"]).arg(self.folder.path().join("agent.toml")).output()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            self.say(&Finding::Broken { step: "spand-agent undo".to_owned(), why })?;
        }
        Ok(())
    }

    /// What is in the kernel that was not there before the product was.
    fn left(&mut self, after: &str) -> Result<()> {
        let begin = Instant::now();
        let left = loop {
            let now = in_kernel()?;
            let left: Vec<String> = now.symmetric_difference(&self.before).cloned().collect();
            if left.is_empty() || begin.elapsed() > TAKEN_DOWN {
                break left;
            }
            thread::sleep(Duration::from_millis(50));
        };
        self.say(&Finding::Left { after: after.to_owned(), left })
    }
}

/// Whether a process may do what only the loading of programs takes (capabilities(7)).
fn holds_sys_admin(process: u32) -> Result<bool> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let set = status.lines().find_map(|line| line.strip_prefix("CapPrm:")).context("no capabilities in /proc")?;
    Ok(u64::from_str_radix(set.trim(), 16)? >> 21 & 1 == 1)
}

/// What takes something from an agent before it runs, and what its sentence must name.
const REFUSALS: [(&str, &str, &str); 5] = [
    (
        "no capabilities",
        "exec /usr/bin/setpriv --bounding-set=-all,+net_admin --inh-caps=-all spand-agent",
        "lacks CAP_BPF and CAP_PERFMON",
    ),
    ("a user namespace", "exec unshare -U -r spand-agent", "user namespace"),
    ("no type information", "mount -t tmpfs none /sys/kernel/btf && exec spand-agent", "CONFIG_DEBUG_INFO_BTF"),
    ("no cgroups", "umount /sys/fs/cgroup && exec spand-agent", "no cgroups are mounted"),
    (
        "version 1 cgroups alone",
        "umount /sys/fs/cgroup && mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/cpu && \
         mount -t cgroup -o cpu none /sys/fs/cgroup/cpu && exec spand-agent",
        "only version 1 cgroups",
    ),
];

/// Programs, maps and links in the kernel, what is pinned, and the congestion controls.
fn in_kernel() -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    all.extend(ProgInfoIter::default().map(|one| format!("program {} {}", one.id, one.name.to_string_lossy())));
    all.extend(MapInfoIter::default().map(|one| format!("map {} {} {:?}", one.id, one.name.to_string_lossy(), one.ty)));
    all.extend(LinkInfoIter::default().map(|one| format!("link {}", one.id)));
    pinned(Path::new("/sys/fs/bpf"), &mut all)?;
    let controls = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")?;
    all.extend(controls.split_whitespace().map(|name| format!("congestion control {name}")));
    Ok(all)
}

fn pinned(folder: &Path, all: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            pinned(&path, all)?;
        }
        all.insert(format!("pin {}", path.display()));
    }
    Ok(())
}

/// The program's own sentence at the end of its log.
fn last_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}
