//! The programs of agents that are attached on this machine, as the kernel lists them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter};
use serde::Serialize;
use spand_proto::operator::Failure;

use super::NotStarted;
use crate::apply::{Lack, Part};
use crate::capabilities::Capabilities;
use crate::probe::cgroup2_mount;

/// Names of the programs that are attached to cgroups.
const PROGRAMS: [&str; 2] = ["on_setsockopt", "on_socket"];
/// Names of the `struct_ops` maps that register congestion controls.
const CONGESTION_CONTROLS: [&str; 8] =
    ["on_cubic", "on_cubic_tx", "on_reno", "on_reno_tx", "at_start", "on_bbr", "on_bbr_tx", "on_bbr_old"];

/// A link that holds a program, or a congestion control, in place. All go with the process that made them.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Attached {
    /// The kernel's number of the link.
    pub(crate) link_id: u32,
    /// Name of the program, or of the `struct_ops` map.
    pub(crate) name: String,
    /// The number of the cgroup that it is attached to; `null` for a congestion control.
    pub(crate) cgroup_id: Option<u64>,
    /// Whether that is the cgroup of this configuration.
    pub(crate) configured_cgroup: bool,
}

/// Those of all agents of this machine, or `None` where this process may not look.
pub(crate) fn attached(cgroup: Option<&Path>) -> Option<Vec<Attached>> {
    if !Capabilities::own().is_some_and(Capabilities::may_list_programs) {
        return None;
    }
    let configured = cgroup.and_then(|path| std::fs::metadata(path).ok()).map(|cgroup| cgroup.ino());
    let programs: BTreeMap<u32, String> =
        ProgInfoIter::default().map(|program| (program.id, program.name.to_string_lossy().into_owned())).collect();
    let maps: BTreeMap<u32, String> =
        MapInfoIter::default().map(|map| (map.id, map.name.to_string_lossy().into_owned())).collect();
    let ours = LinkInfoIter::default().filter_map(|link| {
        let (name, known, cgroup_id) = match link.info {
            LinkTypeInfo::Cgroup(cgroup) => (programs.get(&link.prog_id)?, &PROGRAMS[..], Some(cgroup.cgroup_id)),
            LinkTypeInfo::StructOps(registered) => (maps.get(&registered.map_id)?, &CONGESTION_CONTROLS[..], None),
            _ => return None,
        };
        known.contains(&name.as_str()).then(|| Attached {
            link_id: link.id,
            name: name.clone(),
            cgroup_id,
            configured_cgroup: cgroup_id.is_some() && cgroup_id == configured,
        })
    });
    Some(ours.collect())
}

// What the programs need of this machine: a cgroup.

/// The cgroup that is configured, or the root of version 2 cgroups where there is one; whether it is any is not looked at.
pub(crate) fn cgroup2_or(configured: &Path) -> Option<PathBuf> {
    if configured.as_os_str().is_empty() { cgroup2_mount() } else { Some(configured.to_owned()) }
}

/// The cgroup that is configured, or the root of version 2 cgroups.
pub(super) fn cgroup(configured: &Path) -> Result<PathBuf, NotStarted> {
    if !configured.as_os_str().is_empty() {
        // The file that every version 2 cgroup has.
        return if configured.join("cgroup.procs").is_file() && configured.join("cgroup.controllers").is_file() {
            Ok(configured.to_owned())
        } else {
            Err(NotStarted::Failed(Failure::Usage(format!(
                "bpf.cgroup {} is no version 2 cgroup: name a directory below its mount, or leave it out for all sockets",
                configured.display()
            ))))
        };
    }
    cgroup2_mount().ok_or_else(|| Lack { part: Part::Programs, reason: no_cgroup2() }.into())
}

/// Why there is no version 2 cgroup.
pub(crate) fn no_cgroup2() -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let first =
        if mounts.contains(" - cgroup ") { "only version 1 cgroups are mounted" } else { "no cgroups are mounted" };
    format!(
        "{first}: boot with systemd.unified_cgroup_hierarchy=1, or mount -t cgroup2 none /sys/fs/cgroup/unified beside them"
    )
}
