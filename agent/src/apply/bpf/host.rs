//! What the programs need of this machine: its cgroup, the length of a tick, and the rights to load them.

use std::fs;
use std::path::{Path, PathBuf};

use spand_proto::operator::Failure;

use crate::probe::cgroup2_mount;

/// The cgroup that is configured, or the root of version 2 cgroups.
pub(super) fn cgroup(configured: &Path) -> Result<PathBuf, Failure> {
    if !configured.as_os_str().is_empty() {
        // The file that every version 2 cgroup has.
        return if configured.join("cgroup.procs").is_file() && configured.join("cgroup.controllers").is_file() {
            Ok(configured.to_owned())
        } else {
            Err(Failure::Usage(format!(
                "bpf.cgroup {} is no version 2 cgroup: name a directory below its mount, or leave it out for all sockets",
                configured.display()
            )))
        };
    }
    cgroup2_mount().ok_or_else(|| {
        Failure::Environment(
            "apply = \"bpf\" needs version 2 cgroups, and none is mounted: mount -t cgroup2 none /sys/fs/cgroup/unified, or \
             set apply to route"
                .to_owned(),
        )
    })
}

/// Whether this process may load programs and change sockets: `CAP_BPF`, `CAP_PERFMON` and `CAP_NET_ADMIN`, or
/// `CAP_SYS_ADMIN` for the first two (capabilities(7)). `None` where it cannot be found out.
pub(crate) fn may_load() -> Option<bool> {
    const NET_ADMIN: u64 = 1 << 12;
    const SYS_ADMIN: u64 = 1 << 21;
    const PERFMON: u64 = 1 << 38;
    const BPF: u64 = 1 << 39;
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let effective = text.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(effective.trim(), 16).ok()?;
    let has = |all: u64| effective & all == all;
    Some(has(NET_ADMIN) && (has(SYS_ADMIN) || has(BPF | PERFMON)))
}
