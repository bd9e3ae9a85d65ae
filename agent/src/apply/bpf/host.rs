//! What the programs need of this machine: a cgroup.

use std::path::{Path, PathBuf};

use spand_proto::operator::Failure;

use crate::probe::cgroup2_mount;

/// The cgroup that is configured, or the root of version 2 cgroups where there is one; whether it is any is not looked at.
pub(crate) fn cgroup2_or(configured: &Path) -> Option<PathBuf> {
    if configured.as_os_str().is_empty() { cgroup2_mount() } else { Some(configured.to_owned()) }
}

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
