//! What this host supports, found by reading, and by loading the programs where a caller has tried that.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::apply::{Lack, Part};
use crate::capabilities::Capabilities;
use crate::config::Variant;

mod bbr;
mod btf;
mod features;
mod jit;

pub(crate) use bbr::{Prototype, bbr, bbr_is_module};
pub(crate) use features::Features;
pub(crate) use jit::{Jit, jit};

/// The congestion control of sockets that choose none.
pub(crate) fn default_control() -> Option<String> {
    read("/proc/sys/net/ipv4/tcp_congestion_control")
}

/// One thing that was looked at.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Finding {
    /// Its stable name.
    pub(crate) name: &'static str,
    /// What was found.
    pub(crate) value: String,
    /// What that means for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// The result of loading the programs: the variant, or why there is none, and what the kernel does not take.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) variant: Result<Variant, String>,
    pub(crate) lacks: Vec<Lack>,
}

/// Collects all findings. `tried` is the result of loading the programs, if a caller loaded them.
pub(crate) fn look(tried: Option<&Tried>) -> Vec<Finding> {
    let mut findings = vec![kernel(), capability(), bpf_capability(), ipv6()];
    findings.push(finding("route_initcwnd", yes(true), Some("Linux has the metric since 2.6.34 for both families")));
    findings.push(cgroup());
    findings.push(file("btf", BTF, "type information of the kernel: apply = \"bpf\" needs it"));
    findings.push(finding(
        "bpf_jit",
        jit().words(),
        Some("BPF programs are compiled, which congestion controls of ours need"),
    ));
    findings.push(struct_ops());
    findings.push(namespaces());
    findings.push(always_run());
    findings.push(congestion_control());
    findings.push(growth());
    findings.push(kernel_programs(tried));
    findings.push(bbr_start(tried));
    findings.extend(SYSCTLS.iter().map(|(name, note)| sysctl(name, note)));
    findings
}

/// Type information of the kernel.
pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Settings of TCP that decide what an initial window does.
const SYSCTLS: &[(&str, &str)] = &[
    ("net.ipv4.tcp_available_congestion_control", ""),
    (
        "net.ipv4.tcp_slow_start_after_idle",
        "1: an idle connection starts again from the route's initcwnd; 0: it keeps its window",
    ),
    ("net.ipv4.tcp_no_metrics_save", "0: the kernel keeps metrics of closed connections per host"),
    ("net.ipv4.tcp_no_ssthresh_metrics_save", "1: it does not keep their slow-start threshold"),
    ("net.ipv4.tcp_window_scaling", "0: no peer can take more than 65,535 bytes at once"),
    ("net.ipv4.tcp_pacing_ss_ratio", "percent of cwnd/RTT at which slow start is paced"),
    (
        "net.ipv4.tcp_wmem",
        "least, first and most bytes of a send buffer; a first flight larger than the first must grow it",
    ),
    ("net.core.default_qdisc", "fq paces by itself; others leave pacing to TCP"),
];

fn finding(name: &'static str, value: impl Into<String>, note: Option<&str>) -> Finding {
    let note = note.filter(|note| !note.is_empty()).map(str::to_owned);
    Finding { name, value: value.into(), note }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

pub(crate) fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn kernel() -> Finding {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_else(|| "not known".to_owned());
    finding("kernel", release, None)
}

fn capability() -> Finding {
    let note = "changing routes needs CAP_NET_ADMIN";
    match Capabilities::own().map(Capabilities::may_change_routes) {
        Some(may) => finding("cap_net_admin", yes(may), Some(note)),
        None => finding("cap_net_admin", "not known", Some(note)),
    }
}

fn bpf_capability() -> Finding {
    let note = "apply = \"bpf\" needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN";
    finding("may_load_programs", Capabilities::own().map_or("not known", |own| yes(own.may_load())), Some(note))
}

fn ipv6() -> Finding {
    let there = Path::new("/proc/net/if_inet6").exists();
    finding("ipv6", yes(there), (!there).then_some("only IPv4 destinations can be advised"))
}

/// Where version 2 cgroups are mounted.
pub(crate) fn cgroup2_mount() -> Option<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    cgroup2(&text).map(PathBuf::from)
}

/// The mount point of cgroup v2 in the text of `/proc/self/mountinfo` (proc(5)), octal escapes resolved.
fn cgroup2(mountinfo: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let kind = after.split_whitespace().next()?;
        (kind == "cgroup2").then(|| before.split_whitespace().nth(4).map(unescape))?
    })
}

fn unescape(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (from, to)| path.replace(from, to))
}

fn cgroup() -> Finding {
    match cgroup2_mount() {
        Some(path) => finding("cgroup_v2", path.display().to_string(), Some("the sockets that apply = \"bpf\" starts")),
        None => finding("cgroup_v2", "not mounted", Some("apply = \"bpf\" needs one: mount -t cgroup2 none DIRECTORY")),
    }
}

fn file(name: &'static str, path: &str, note: &str) -> Finding {
    finding(name, yes(Path::new(path).exists()), Some(note))
}

/// Why congestion controls of ours cannot be registered.
pub(crate) fn congestion_controls() -> Result<(), String> {
    let Some(features) = Features::of_this_kernel() else {
        return Err(format!("the kernel's types cannot be read from {BTF} (CONFIG_DEBUG_INFO_BTF)"));
    };
    if let Some(lacking) = features.lacking_for_congestion_controls() {
        return Err(lacking.to_owned());
    }
    match jit() {
        Jit::Enabled | Jit::NotVisible => Ok(()),
        Jit::Disabled => Err("net.core.bpf_jit_enable is 0: sysctl -w net.core.bpf_jit_enable=1".to_owned()),
        Jit::Missing => Err("the kernel was built without CONFIG_BPF_JIT".to_owned()),
    }
}

fn struct_ops() -> Finding {
    let value = congestion_controls().map_or_else(|lack| format!("no ({lack})"), |()| yes(true).to_owned());
    finding("struct_ops_tcp", value, Some("congestion controls of ours can be registered, by the kernel's types"))
}

fn namespaces() -> Finding {
    finding(
        "socket_namespaces",
        Features::of_this_kernel().map_or("not known", |features| yes(features.socket_namespaces)),
        Some("BPF programs see the network namespace of a socket, which apply = \"bpf\" needs"),
    )
}

/// A field by which some patched kernels tell BPF programs of process 1 from all others, which they do not run while that process is the
/// current one; upstream has neither.
const OWNED_BY_INIT: &[u8] = b"init_owned";

fn always_run() -> Finding {
    let Ok(types) = fs::read(BTF) else { return finding("programs_always_run", "not known", None) };
    if !skips_programs(&types) {
        return finding("programs_always_run", yes(true), None);
    }
    let note = "this kernel is patched (its types show it) and runs no BPF program in timers that interrupt process 1. With bpf.variant = \
                \"stay\" a sender that detects a loss there has no slow-start threshold and sends all that its receiver accepts: use \
                hand_over or sockops";
    finding("programs_always_run", yes(false), Some(note))
}

/// Whether the names of the kernel's types have that field.
fn skips_programs(types: &[u8]) -> bool {
    types.split(|byte| *byte == 0).any(|name| name == OWNED_BY_INIT)
}

fn congestion_control() -> Finding {
    let name = default_control().unwrap_or_else(|| "not known".to_owned());
    let note = name.starts_with("bbr").then_some(
        "BBR begins with the route's initcwnd, but paces from its own first guess of the rate and keeps no slow-start \
         threshold: less of the advice has an effect",
    );
    finding("congestion_control", name, note)
}

/// Whether slow start may go by another rule: that needs a congestion control of ours on CUBIC or Reno.
fn growth() -> Finding {
    let name = default_control().unwrap_or_default();
    let lacking = if let Err(lack) = congestion_controls() {
        Some(format!("no ({lack})"))
    } else if !["cubic", "reno"].contains(&name.as_str()) {
        Some(format!("no (this host's congestion control is {name}, and not cubic or reno)"))
    } else {
        None
    };
    let note = "start.growth: another rule of slow start, with apply = \"bpf\" and bpf.variant = \"stay\"";
    finding("growth", lacking.unwrap_or_else(|| yes(true).to_owned()), Some(note))
}

fn kernel_programs(tried: Option<&Tried>) -> Finding {
    let value = match tried.map(|tried| &tried.variant) {
        Some(Ok(variant)) => format!("yes (variant {variant})"),
        Some(Err(reason)) => format!("no ({reason})"),
        None => "not known".to_owned(),
    };
    finding(
        "kernel_programs",
        value,
        Some("the result of loading the programs of apply = \"bpf\" and removing them, as root"),
    )
}

/// Whether connections on BBR may start whole.
fn bbr_start(tried: Option<&Tried>) -> Finding {
    let refused =
        tried.and_then(|tried| tried.lacks.iter().find(|lack| lack.part == Part::Bbr)).map(|lack| lack.reason.clone());
    let lacking = refused.or_else(|| bbr().err().map(|lack| lack.to_string()));
    let value = lacking.map_or_else(|| yes(true).to_owned(), |lack| format!("no ({lack})"));
    let note = "bpf.bbr = \"full\": connections on BBR start with rate and estimate; without, they get a window alone";
    finding("bbr_start", value, Some(note))
}

fn sysctl(name: &'static str, note: &str) -> Finding {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    let value = read(path).unwrap_or_else(|| "not there".to_owned());
    finding(name, value, Some(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_skips_programs_is_known_by_a_whole_name() {
        assert!(skips_programs(b"\xeb\x9f\0init_private\0init_owned\0load_time\0"));
        assert!(!skips_programs(b"\xeb\x9f\0init_private\0not_init_owned\0init_owned_by\0load_time\0"));
    }

    #[test]
    fn cgroup2_is_found_beside_v1_and_with_optional_fields() {
        let text = "\
            25 20 0:22 / /sys/fs/cgroup/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu\n\
            26 20 0:23 / /sys/fs/my\\040groups rw,nosuid shared:10 master:3 - cgroup2 cgroup2 rw\n";
        assert_eq!(cgroup2(text).as_deref(), Some("/sys/fs/my groups"));
    }

    #[test]
    fn nonsense_is_no_mount() {
        assert_eq!(cgroup2("26 20 - cgroup2\nrubbish\n\n - "), None);
    }
}
