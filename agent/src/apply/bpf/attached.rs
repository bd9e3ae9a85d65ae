//! The programs of agents that are attached on this machine, as the kernel lists them.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfoIter, ProgInfoIter};
use procfs::process::FDTarget;
use serde::Serialize;
use spand_proto::operator::Failure;

use super::NotStarted;
use crate::apply::{Lack, Part};
use crate::capabilities::Capabilities;
use crate::probe::cgroup2_mount;

/// Names of the programs that are attached to cgroups.
pub(super) const PROGRAMS: [&str; 2] = ["on_setsockopt", "on_socket"];
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
    /// The path of that cgroup, where it is visible here.
    pub(crate) cgroup: Option<PathBuf>,
    /// Whether that is the cgroup of this configuration.
    pub(crate) configured_cgroup: bool,
    /// The processes that hold the link, of those visible here.
    pub(crate) pids: Vec<i32>,
}

impl Attached {
    /// What it is attached to, for people.
    pub(crate) fn place(&self) -> String {
        match (self.cgroup_id, &self.cgroup) {
            (None, _) => "as congestion control".to_owned(),
            (Some(_), Some(path)) => format!("on the cgroup {}", path.display()),
            (Some(id), None) => format!("on a cgroup that is not visible here (inode {id})"),
        }
    }

    /// Whose it is, for people.
    pub(crate) fn holder(&self) -> String {
        match self.pids[..] {
            [] => "a process that is not visible here".to_owned(),
            [pid] => format!("process {pid}"),
            _ => format!("processes {}", self.pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Those of all agents of this machine, or `None` where this process may not look. One whose cgroup was removed is left out: it is attached
/// to nothing.
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
            LinkTypeInfo::Cgroup(cgroup) if cgroup.cgroup_id == 0 => return None,
            LinkTypeInfo::Cgroup(cgroup) => (programs.get(&link.prog_id)?, &PROGRAMS[..], Some(cgroup.cgroup_id)),
            LinkTypeInfo::StructOps(registered) => (maps.get(&registered.map_id)?, &CONGESTION_CONTROLS[..], None),
            _ => return None,
        };
        known.contains(&name.as_str()).then(|| Attached {
            link_id: link.id,
            name: name.clone(),
            cgroup_id,
            cgroup: None,
            configured_cgroup: cgroup_id.is_some() && cgroup_id == configured,
            pids: Vec::new(),
        })
    });
    let mut ours: Vec<Attached> = ours.collect();
    if !ours.is_empty() {
        let (holders, root) = (holders(), cgroup2_mount());
        for one in &mut ours {
            one.pids = holders.get(&one.link_id).cloned().unwrap_or_default();
            one.cgroup = one.cgroup_id.and_then(|id| path_of(root.as_deref()?, id));
        }
    }
    Some(ours)
}

/// The processes that hold each link, by the `link_id` in the `fdinfo` of their descriptors (proc(5)).
fn holders() -> BTreeMap<u32, Vec<i32>> {
    let mut holders: BTreeMap<u32, Vec<i32>> = BTreeMap::new();
    for process in procfs::process::all_processes().into_iter().flatten().flatten() {
        // Those that end meanwhile, or are somebody else's.
        for fd in process.fd().into_iter().flatten().flatten() {
            if !matches!(&fd.target, FDTarget::AnonInode(kind) if kind.contains("bpf_link")) {
                continue;
            }
            let text = std::fs::read_to_string(format!("/proc/{}/fdinfo/{}", process.pid, fd.fd)).unwrap_or_default();
            let id = text.lines().find_map(|line| line.strip_prefix("link_id:")?.trim().parse().ok());
            let Some(id) = id else { continue };
            let pids = holders.entry(id).or_default();
            if !pids.contains(&process.pid) {
                pids.push(process.pid);
            }
        }
    }
    holders
}

/// The cgroup with this number at or below `root`.
fn path_of(root: &Path, id: u64) -> Option<PathBuf> {
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        if std::fs::metadata(&path).is_ok_and(|there| there.ino() == id) {
            return Some(path);
        }
        let inside = std::fs::read_dir(&path).into_iter().flatten().flatten();
        left.extend(inside.filter(|one| one.file_type().is_ok_and(|kind| kind.is_dir())).map(|one| one.path()));
    }
    None
}

// What the programs need of this machine: a cgroup.

/// The cgroup that is configured, or the root of version 2 cgroups where there is one; whether it is any is not looked at.
pub(crate) fn cgroup2_or(configured: &Path) -> Option<PathBuf> {
    if configured.as_os_str().is_empty() { cgroup2_mount() } else { Some(configured.to_owned()) }
}

/// The cgroup that is configured, or the root of version 2 cgroups.
pub(super) fn cgroup(configured: &Path) -> Result<PathBuf, NotStarted> {
    is_cgroup2(configured)?;
    cgroup2_or(configured).ok_or_else(|| Lack { part: Part::Programs, reason: no_cgroup2() }.into())
}

/// Whether the cgroup that is configured is a version 2 cgroup. None is none at fault.
pub(crate) fn is_cgroup2(configured: &Path) -> Result<(), Failure> {
    // The files that every version 2 cgroup has.
    let is_there = |name| configured.join(name).is_file();
    if configured.as_os_str().is_empty() || ["cgroup.procs", "cgroup.controllers"].into_iter().all(is_there) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "bpf.cgroup {} is no version 2 cgroup: name a directory below its mount, or leave it out for all sockets",
        configured.display()
    )))
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
