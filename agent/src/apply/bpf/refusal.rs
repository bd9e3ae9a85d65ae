//! Why the kernel refused the programs: capabilities, missing features, the verifier, or a security policy. It reads and does not decide what
//! happens instead.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{ErrorKind, PrintLevel, ProgramType};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use tracing::debug;

use crate::capabilities::Capabilities;
use crate::probe::{self, Features};

/// Warnings of libbpf that are kept: the first one is the cause, the last ones are its consequences.
const MOST_WARNINGS: usize = 16;

/// What libbpf warned of since [`forget_warnings`].
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Takes libbpf's messages; a library has one place for them in a process.
pub(super) fn listen() {
    libbpf_rs::set_print(Some((PrintLevel::Debug, |level, text| {
        debug!(target: "libbpf", "{}", text.trim_end());
        if level == PrintLevel::Warn {
            let mut warnings = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner);
            if warnings.len() < MOST_WARNINGS {
                warnings.push(text);
            }
        }
    })));
}

/// Clears the warnings before the next load.
pub(super) fn forget_warnings() {
    WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Why libbpf or the kernel refused what was tried since [`forget_warnings`], with the way out.
pub(super) fn reason(error: &libbpf_rs::Error) -> String {
    let warnings = std::mem::take(&mut *WARNINGS.lock().unwrap_or_else(PoisonError::into_inner));
    if let Some(lacking) = Capabilities::own().and_then(Capabilities::lacking_to_load) {
        return format!("this process lacks {lacking}: give the service CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN");
    }
    if !Path::new(probe::BTF).exists() {
        return format!("{} is not there: use a kernel built with CONFIG_DEBUG_INFO_BTF", probe::BTF);
    }
    if let Some(lacking) = Features::of_this_kernel().and_then(Features::lacking_for_programs) {
        return lacking.to_owned();
    }
    if let Some(verdict) = verdict(&warnings) {
        return format!("{verdict}; this is a fault of spand: please report it with the kernel's release");
    }
    if error.kind() == ErrorKind::PermissionDenied {
        return denied();
    }
    let first = warnings.first().map(|text| text.trim().trim_start_matches("libbpf: ").to_owned());
    first.map_or_else(|| error.to_string(), |first| format!("{first} ({error})"))
}

/// A program of somebody else that may hold a cgroup.
#[derive(Clone, Debug)]
pub(crate) struct Other {
    kind: ProgramType,
    id: u32,
    name: String,
}

/// Programs of the kinds that ours are of. The kernel lists them for `CAP_SYS_ADMIN` alone, which the agent has before it confines itself at
/// most: none without it. Which cgroup they hold no safe interface shows.
pub(crate) fn others() -> Vec<Other> {
    let programs = ProgInfoIter::default().map(|program| Other {
        kind: program.ty,
        id: program.id,
        name: program.name.to_string_lossy().into_owned(),
    });
    programs.filter(|other| matches!(other.kind, ProgramType::SockOps | ProgramType::CgroupSockopt)).collect()
}

/// Why the kernel did not attach a program to `cgroup`, with the way out; `others` were there before ours.
pub(super) fn not_attached(error: &libbpf_rs::Error, kind: ProgramType, cgroup: &Path, others: &[Other]) -> String {
    let cgroup = cgroup.display();
    let first = format!("cannot attach to the cgroup {cgroup}");
    // The kernel refuses with EPERM where a program is attached without BPF_F_ALLOW_MULTI, there or above (`hierarchy_allows_attach`).
    if error.kind() != ErrorKind::PermissionDenied
        || Capabilities::own().and_then(Capabilities::lacking_to_load).is_some()
    {
        return format!("{first}: {error}");
    }
    let suspects: Vec<String> = others
        .iter()
        .filter(|other| other.kind == kind && !super::attached::PROGRAMS.contains(&other.name.as_str()))
        .map(|other| format!("`{}` (id {})", other.name, other.id))
        .collect();
    let whose = match suspects.len() {
        0 => "`bpftool cgroup tree` names it".to_owned(),
        1 => format!("it is {}", suspects.join("")),
        _ => format!("it is one of {}", suspects.join(", ")),
    };
    let kind = if kind == ProgramType::SockOps { "sock_ops" } else { "setsockopt" };
    format!(
        "{first}: a {kind} program of somebody else holds it, or one above, for itself; {whose}: have its owner attach it with \
         BPF_F_ALLOW_MULTI, stop it, or name in bpf.cgroup one that is not below its cgroup"
    )
}

/// The verifier's last words on the program that it refused.
fn verdict(warnings: &[String]) -> Option<String> {
    let (before, log) = warnings.iter().find_map(|text| text.split_once("BEGIN PROG LOAD LOG --"))?;
    let program = before.split('\'').nth(1).unwrap_or("a program");
    let mut lines = log.lines().map(str::trim).filter(|line| !line.is_empty());
    let last = lines.rfind(|line| !line.starts_with("--") && !line.starts_with("processed "))?;
    Some(format!("the verifier refused {program} ({last})"))
}

/// The process has the capabilities, and something else denies bpf(2) to it.
fn denied() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    // A user namespace of its own: its capabilities do not hold for bpf(2).
    if !read("/proc/self/uid_map").split_whitespace().eq(["0", "0", "4294967295"]) {
        return "this process is in a user namespace, where no capability allows bpf(2): run the agent outside of it"
            .to_owned();
    }
    let lockdown = read("/sys/kernel/security/lockdown");
    if let Some(level) =
        ["integrity", "confidentiality"].into_iter().find(|level| lockdown.contains(&format!("[{level}]")))
    {
        return format!("the kernel is locked down ({level}) and denies bpf(2): boot without lockdown={level}");
    }
    let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(RLIM_INFINITY, |(now, _)| now);
    if limit != RLIM_INFINITY && Features::of_this_kernel().is_some_and(|features| features.counts_locked_memory) {
        return format!("tables count as locked memory, which is limited to {limit} bytes: set LimitMEMLOCK=infinity");
    }
    "bpf(2) is denied although the process has the capabilities: look for a seccomp filter (of a container) or a security \
     module (SELinux: ausearch -m avc; AppArmor: dmesg)"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_last_words_are_found_in_its_log() {
        let warnings = [
            "libbpf: prog 'on_socket': BPF program load failed: Permission denied\n".to_owned(),
            "libbpf: prog 'on_socket': -- BEGIN PROG LOAD LOG --\n0: R1=ctx() R10=fp0\ninvalid read from stack R10 off=-96 size=8\n\
             processed 4711 insns (limit 1000000)\n-- END PROG LOAD LOG --\n"
                .to_owned(),
            "libbpf: failed to load object 'spand'\n".to_owned(),
        ];
        let found = verdict(&warnings).unwrap();
        assert_eq!(found, "the verifier refused on_socket (invalid read from stack R10 off=-96 size=8)");
        assert_eq!(verdict(&warnings[2..]), None);
    }
}
