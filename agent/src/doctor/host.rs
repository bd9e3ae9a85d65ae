//! The machine: kernel, rights, cgroups, TCP's settings, directories, addresses. Reads only.

use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, faccessat};
use spand_proto::operator::{Check, Verdict, judge_directory};

use super::verdict_if_missing;
use crate::apply::bpf::{NotStarted, Trial, no_cgroup2, try_out};
use crate::apply::route::{Netlink, Survey};
use crate::apply::{Lack, Part};
use crate::capabilities::Capabilities;
use crate::config::{ApplyMethod, Bbr, Config};
use crate::control::{SeenState, Status};
use crate::probe;
use crate::probe::{BTF, Jit, cgroup2_mount, read};
use crate::run::is_reachable;

/// What this machine takes of the programs: as the running agent found it, else by loading, attaching and removing them.
pub(super) fn programs(config: &Config, agent: Option<&Status>) -> Vec<Check> {
    const NAME: &str = "kernel_programs";
    if config.apply != ApplyMethod::Bpf {
        return vec![Check::ok(NAME, format!("apply = \"{}\" loads none", config.apply))];
    }
    let running = agent.filter(|status| status.method == ApplyMethod::Bpf || !status.lacking.is_empty());
    let (variant, lacks, how) = if let Some(status) = running {
        (status.variant.clone(), status.lacking.clone(), "the agent has them in the kernel")
    } else if !Capabilities::own().is_some_and(Capabilities::may_load) {
        return vec![Check::unknown(NAME, "this process may not load programs", "run this as root")];
    } else {
        match try_out(config) {
            Ok(Trial { attached: Err(failure), .. }) => {
                return vec![Check::fail(NAME, failure.to_string(), "do what the reason names")];
            }
            Ok(Trial { variant, lacks, .. }) => {
                (Some(variant.name().to_owned()), lacks, "the kernel took them in a trial, and they are removed")
            }
            Err(NotStarted::Lacking(lack)) => (None, vec![lack], ""),
            Err(NotStarted::Failed(failure)) => {
                return vec![Check::unknown(NAME, failure.to_string(), "stop what holds the name, and ask again")];
            }
        }
    };
    if variant.is_none() && lacks.is_empty() {
        return vec![Check::unknown(
            NAME,
            "the agent that runs does not show its variant",
            "restart it: it is of an older release",
        )];
    }
    let taken = variant.map(|variant| Check::ok(NAME, format!("{how}: variant {variant}")));
    taken.into_iter().chain(lacks.iter().map(lacking)).collect()
}

fn lacking(lack: &Lack) -> Check {
    let (name, verdict) = match lack.part {
        Part::Programs => ("kernel_programs", Verdict::Fail),
        Part::CongestionControls | Part::Stay => ("congestion_controls_of_ours", Verdict::Warn),
        Part::Bbr => {
            ("bbr_start", if probe::default_control().as_deref() == Some("bbr") { Verdict::Warn } else { Verdict::Ok })
        }
    };
    let to_do = match lack.part {
        Part::Programs => "do what the reason names, or set apply or bpf.fallback to route",
        Part::CongestionControls | Part::Stay => "do what the reason names, unless socket options are enough",
        Part::Bbr => "do what the reason names, or set bpf.bbr to window",
    };
    Check::to_do(name, verdict, lack.sentence(), to_do)
}

/// Of the agent where one runs, else of this process.
pub(super) fn capabilities(method: ApplyMethod, agent: Option<u32>) -> Check {
    const NAME: &str = "capabilities";
    let (whose, capabilities) = match agent.and_then(Capabilities::of) {
        Some(capabilities) => ("the agent", Some(capabilities)),
        None => ("this process", Capabilities::own()),
    };
    let Some(capabilities) = capabilities else {
        return Check::unknown(NAME, "/proc does not say what this process may do", "mount /proc");
    };
    let (may, needed) = match method {
        ApplyMethod::DryRun => return Check::ok(NAME, "apply = \"dry_run\" needs none"),
        ApplyMethod::Route => (capabilities.may_change_routes(), "CAP_NET_ADMIN"),
        ApplyMethod::Bpf => (capabilities.may_load(), "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"),
    };
    if may {
        return Check::ok(NAME, format!("{whose} has {needed}"));
    }
    let found = format!("{whose} lacks {needed}, which apply = \"{method}\" needs");
    match agent {
        Some(_) => Check::fail(NAME, found, "give them to the service (AmbientCapabilities= in its unit)"),
        None => Check::unknown(NAME, found, "run this as root, or start the agent and ask again"),
    }
}

pub(super) fn btf(method: ApplyMethod) -> Check {
    if Path::new(BTF).exists() {
        return Check::ok("btf", "the kernel has its type information");
    }
    let found =
        format!("{BTF} is not there: programs cannot be fitted to this kernel, and apply = \"bpf\" does not work");
    let to_do = "use a kernel built with CONFIG_DEBUG_INFO_BTF (Debian's are), or apply = \"route\"";
    Check::to_do("btf", verdict_if_missing(method, ApplyMethod::Bpf), found, to_do)
}

pub(super) fn jit(method: ApplyMethod) -> Check {
    const NAME: &str = "bpf_jit";
    let verdict = if method == ApplyMethod::Bpf { Verdict::Warn } else { Verdict::Ok };
    let lack = |found, to_do| {
        let found = format!("{found}: no congestion control of ours can be registered");
        Check::to_do(NAME, verdict, found, to_do)
    };
    match probe::jit() {
        Jit::Enabled => Check::ok(NAME, "the kernel compiles BPF programs"),
        Jit::Disabled => lack("net.core.bpf_jit_enable is 0", "sysctl -w net.core.bpf_jit_enable=1"),
        Jit::Missing => lack("the kernel was built without CONFIG_BPF_JIT", "use a kernel that has it"),
        Jit::NotVisible => {
            let found = "whether the kernel compiles BPF programs is not visible in this network namespace";
            Check::unknown(NAME, found, "run this as root, or look at net.core.bpf_jit_enable outside of the namespace")
        }
    }
}

pub(super) fn cgroup(config: &Config) -> Check {
    const NAME: &str = "cgroup_v2";
    let verdict = verdict_if_missing(config.apply, ApplyMethod::Bpf);
    let configured = &config.bpf.cgroup;
    if configured.as_os_str().is_empty() {
        if let Some(mount) = cgroup2_mount() {
            return Check::ok(NAME, format!("mounted at {}", mount.display()));
        }
        return Check::to_do(NAME, verdict, "apply = \"bpf\" needs version 2 cgroups", no_cgroup2());
    }
    if configured.join("cgroup.controllers").is_file() {
        return Check::ok(NAME, format!("bpf.cgroup {} is a version 2 cgroup", configured.display()));
    }
    let found = format!("bpf.cgroup {} is not a version 2 cgroup", configured.display());
    Check::to_do(NAME, verdict, found, "name a directory below their mount, or leave it out for all sockets")
}

pub(super) fn congestion_control(config: &Config) -> Check {
    const NAME: &str = "congestion_control";
    let Some(default) = probe::default_control() else {
        return Check::unknown(NAME, "the kernel does not say which one is the default", "mount /proc");
    };
    if ["cubic", "reno"].contains(&default.as_str()) {
        return Check::ok(NAME, format!("the default is {default}"));
    }
    if default == "bbr" && config.apply == ApplyMethod::Bpf && config.bpf.bbr == Bbr::Full {
        // What becomes of it is the next check's.
        return Check::ok(NAME, "the default is bbr, and bpf.bbr is \"full\"");
    }
    let lost = match config.apply {
        ApplyMethod::Bpf => "apply = \"bpf\" sets its starts by socket options only, without a threshold",
        ApplyMethod::Route | ApplyMethod::DryRun => {
            "it paces by its own guess and keeps no threshold, so that less of the advice has an effect"
        }
    };
    let to_do = "sysctl -w net.ipv4.tcp_congestion_control=cubic, unless this host should have another";
    Check::warn(NAME, format!("the default is {default}: {lost}"), to_do)
}

pub(super) fn idle_restart(method: ApplyMethod) -> Check {
    const NAME: &str = "slow_start_after_idle";
    match read("/proc/sys/net/ipv4/tcp_slow_start_after_idle").as_deref() {
        Some("0") if method == ApplyMethod::Bpf => Check::warn(
            NAME,
            "connections keep their window over idle times: a later transfer on them is not started by advice",
            "sysctl -w net.ipv4.tcp_slow_start_after_idle=1, unless that is meant",
        ),
        Some(value) => Check::ok(NAME, format!("net.ipv4.tcp_slow_start_after_idle is {value}")),
        None => Check::unknown(NAME, "the kernel does not say", "mount /proc"),
    }
}

pub(super) fn window_scaling() -> Check {
    const NAME: &str = "window_scaling";
    match read("/proc/sys/net/ipv4/tcp_window_scaling").as_deref() {
        Some("0") => Check::warn(
            NAME,
            "net.ipv4.tcp_window_scaling is 0: no peer can be sent more than 65,535 bytes at once",
            "sysctl -w net.ipv4.tcp_window_scaling=1",
        ),
        Some(_) => Check::ok(NAME, "peers may offer windows above 65,535 bytes"),
        None => Check::unknown(NAME, "the kernel does not say", "mount /proc"),
    }
}

pub(super) fn state(config: &Config) -> Check {
    let directory = &config.state_dir;
    let room = statvfs(nearest(directory)).ok().map(|stat| stat.blocks_available() * stat.fragment_size());
    let may = may_write(directory).map_err(|error| error.to_string());
    judge_directory("state_dir", "state_dir", directory, may, room)
}

/// Whether this process may make files in a directory. What is not there yet is made inside the nearest one that is.
pub(crate) fn may_write(directory: &Path) -> Result<(), Errno> {
    // A file in the directory's place, or in that of one above it.
    if directory.ancestors().any(|path| path.exists() && !path.is_dir()) {
        return Err(Errno::ENOTDIR);
    }
    faccessat(AT_FDCWD, nearest(directory), AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS)
}

fn nearest(directory: &Path) -> &Path {
    directory.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"))
}

pub(super) async fn addresses(config: &Config) -> Check {
    const NAME: &str = "addresses";
    let found = match Netlink::open() {
        Ok(netlink) => netlink.addresses().await,
        Err(error) => Err(error),
    };
    let mut found = match found {
        Ok(found) => found,
        Err(error) => return Check::unknown(NAME, error.to_string(), "run this as root"),
    };
    found.retain(|address| is_reachable(*address));
    if let Some(absent) = config.addresses.iter().find(|address| !found.contains(address)) {
        let found = format!("addresses lists {absent}, which no interface of this host has");
        return Check::warn(NAME, found, "correct it, unless others reach this host by it through translation");
    }
    match found.first() {
        None if config.addresses.is_empty() => Check::fail(
            NAME,
            "this host has no address by which others could reach it: there is nothing to subscribe for",
            "bring its interface up, or set addresses",
        ),
        None => Check::ok(NAME, "as configured"),
        Some(first) => Check::ok(NAME, format!("{} ({first} first)", found.len())),
    }
}

// Pure verdicts: advice is in force, and the programs see the connections of announced starts.

pub(super) fn in_force(status: &Status) -> Check {
    const NAME: &str = "in_force";
    match &status.not_in_force {
        Some(lasting) => {
            Check::fail(NAME, lasting.sentence(), "do what the reason names; the log has the moment it began")
        }
        None => {
            Check::ok(NAME, format!("networks in force: {} of {} held", status.in_force.len(), status.networks_held))
        }
    }
}

pub(super) fn look(status: &Status) -> Check {
    const NAME: &str = "connections_seen";
    let Some(seen) = &status.connections_seen else {
        return Check::unknown(
            NAME,
            "the agent that runs does not compare them",
            "restart it: it is of an older release",
        );
    };
    let found = format!("announced connections: {}", seen.sentence());
    match seen.state {
        SeenState::Ok | SeenState::TooFew => Check::ok(NAME, found),
        SeenState::CannotBeSeen => {
            Check::unknown(NAME, found, "use apply = \"bpf\", if it should be known; measure at the peers otherwise")
        }
        SeenState::Unseen => Check::fail(NAME, found, format!("may be: {}", status.causes_unseen().join("; or "))),
    }
}

// What stands in the routes. Pure.

/// Judges what was found; `running` is whether an agent answers.
pub(super) fn judge(survey: &Survey, method: ApplyMethod, running: bool) -> Vec<Check> {
    let mut checks = vec![others(survey, method), left(survey, running)];
    if method == ApplyMethod::Route {
        checks.push(rules(survey));
    }
    checks
}

fn others(survey: &Survey, method: ApplyMethod) -> Check {
    const NAME: &str = "routes_of_others";
    let Some((prefix, window)) = survey.others.first() else {
        return Check::ok(NAME, "nobody else sets initial windows by routes");
    };
    let more = match survey.others.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let found = format!("someone else's route to {prefix} has initcwnd {window}{more}");
    match method {
        ApplyMethod::Route => {
            let to_do = "remove initcwnd from it (`ip route change`): below such a route ours stay away";
            Check::warn(NAME, found, to_do)
        }
        ApplyMethod::Bpf | ApplyMethod::DryRun => {
            let to_do = "remove initcwnd from it: it is what connections without advice, and those after an idle time, start with";
            Check::warn(NAME, found, to_do)
        }
    }
}

fn left(survey: &Survey, running: bool) -> Check {
    const NAME: &str = "routes_of_ours";
    if survey.ours > 0 && !running {
        let found = format!("{} routes of an agent are there, but no agent answers", survey.ours);
        return Check::fail(NAME, found, "spand-agent undo --run");
    }
    Check::ok(NAME, format!("{} in force", survey.ours))
}

fn rules(survey: &Survey) -> Check {
    const NAME: &str = "policy_routing";
    let families = match survey.plain_rules {
        (true, true) => return Check::ok(NAME, "the kernel's own rules choose the table"),
        (false, true) => "IPv4",
        (true, false) => "IPv6",
        (false, false) => "IPv4 and IPv6",
    };
    let found = format!("rules of someone else choose the table for {families}: no route of ours is set there");
    Check::to_do(NAME, Verdict::Warn, found, "use apply = \"bpf\", which needs no routes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_that_is_held_and_not_in_force_is_a_failure() {
        let mut status = crate::control::made_up("bpf", &[]);
        assert_eq!(in_force(&status).verdict, Verdict::Ok);
        let (example, why) = ("192.0.2.0/24".parse().unwrap(), "the cgroup /a was removed".to_owned());
        status.not_in_force = Some(crate::control::NotInForce { networks: 3, for_s: 41, example, why });
        let check = in_force(&status);
        assert_eq!(check.verdict, Verdict::Fail);
        assert!(check.found.ends_with("192.0.2.0/24: the cgroup /a was removed"), "{check:?}");
    }

    #[test]
    fn each_fault_of_the_routes_has_its_check() {
        let calm = Survey { others: Vec::new(), ours: 3, plain_rules: (true, true) };
        let verdict = |survey: &Survey, method, running, name| {
            judge(survey, method, running).into_iter().find(|check| check.name == name).map(|check| check.verdict)
        };
        assert!(judge(&calm, ApplyMethod::Route, true).iter().all(|check| check.verdict == Verdict::Ok));
        assert_eq!(verdict(&calm, ApplyMethod::Route, false, "routes_of_ours"), Some(Verdict::Fail));
        let theirs = Survey { others: vec![("0.0.0.0/0".parse().unwrap(), 40)], ..calm.clone() };
        for method in [ApplyMethod::Route, ApplyMethod::Bpf, ApplyMethod::DryRun] {
            assert_eq!(verdict(&theirs, method, true, "routes_of_others"), Some(Verdict::Warn));
        }
        let ruled = Survey { plain_rules: (true, false), ..calm };
        assert_eq!(verdict(&ruled, ApplyMethod::Route, true, "policy_routing"), Some(Verdict::Warn));
        assert_eq!(verdict(&ruled, ApplyMethod::Bpf, true, "policy_routing"), None);
    }
}
