//! Whether the memory that every limit together may take is there: of the machine, and of the control groups around the gateway.

use std::fs;
use std::path::{Path, PathBuf};

use spand_proto::operator::Check;

use crate::config::{Item, Memory};

const NAME: &str = "memory";

/// A limit of memory, and whose it is.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Limit {
    mib: usize,
    whose: String,
}

/// Compares the sum with what there is. `pid` is the gateway that runs, where it is known; else this program stands for it.
pub(super) fn memory(memory: &Memory, pid: Option<u32>) -> Check {
    let process = pid.map_or_else(|| "self".to_owned(), |pid| pid.to_string());
    let groups = fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let machine = machine(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
    judge(memory, machine, tightest(&groups, Path::new("/sys/fs/cgroup")))
}

/// The process that runs as `spand-gateway run`, where exactly one is seen.
pub(super) fn running() -> Option<u32> {
    let own = std::process::id();
    let mut found = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let arguments = fs::read(entry.path().join("cmdline")).ok()?;
        (pid != own && is_gateway(&arguments)).then_some(pid)
    });
    let first = found.next();
    first.filter(|_| found.next().is_none())
}

/// Whether these are the arguments of a gateway that runs, each with a zero behind it.
fn is_gateway(arguments: &[u8]) -> bool {
    let mut words = arguments.split(|byte| *byte == 0);
    let program = words.next().unwrap_or_default();
    program.rsplit(|byte| *byte == b'/').next() == Some(b"spand-gateway") && words.next() == Some(b"run")
}

/// The whole memory of the machine, by `/proc/meminfo`.
fn machine(text: &str) -> Option<Limit> {
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"))?;
    let kib: usize = kib.trim().parse().ok()?;
    Some(Limit { mib: kib >> 10, whose: "this machine has".to_owned() })
}

/// The least limit of the control groups in the text of `/proc/PID/cgroup`, and of those around them: version 2 and 1.
fn tightest(groups: &str, root: &Path) -> Option<Limit> {
    groups
        .lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let is_memory = controllers.split(',').any(|one| one == "memory");
            match controllers {
                "" => around(root, path, "memory.max"),
                _ if is_memory => around(&root.join("memory"), path, "memory.limit_in_bytes"),
                _ => None,
            }
        })
        .min_by_key(|limit| limit.mib)
}

fn around(root: &Path, group: &str, file: &str) -> Option<Limit> {
    // A group outside the namespace of this process is shown with `..`: what is above its root cannot be read.
    let inside: PathBuf =
        Path::new(group).components().filter(|part| matches!(part, std::path::Component::Normal(_))).collect();
    let limits = inside.ancestors().filter_map(|group| {
        let path = root.join(group).join(file);
        let bytes: usize = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        Some(Limit { mib: bytes >> 20, whose: format!("the control group's {} allows", path.display()) })
    });
    limits.min_by_key(|limit| limit.mib)
}

fn judge(memory: &Memory, machine: Option<Limit>, group: Option<Limit>) -> Check {
    let need = memory.total_mib();
    // Version 1 says "no limit" by a very large number.
    let Some(least) = group.into_iter().chain(machine).min_by_key(|limit| limit.mib) else {
        let found = format!("the limits together are {need} MiB; the available memory cannot be read");
        return Check::unknown(NAME, found, "look at /proc/meminfo and the service's MemoryMax=");
    };
    let Limit { mib, whose } = least;
    let found = format!("the limits together are {need} MiB, {whose} {mib}");
    if need <= mib {
        return Check::ok(NAME, found);
    }
    let largest =
        memory.largest(3).into_iter().map(|Item { options, bytes, .. }| format!("{options} ({} MiB)", bytes >> 20));
    let largest: Vec<String> = largest.collect();
    let to_do = format!(
        "lower {}, or give it more memory; `spand-gateway check-config` prints every item. Under a flood the kernel would end the \
         gateway before its limits are reached",
        largest.join("; ")
    );
    Check::warn(NAME, found, to_do)
}

#[cfg(test)]
mod tests {
    use spand_proto::operator::Verdict;

    use super::*;
    use crate::config::{Config, EngineOptions};

    fn default() -> Memory {
        let config = Config::default();
        Memory::of(&config, &config.engine(EngineOptions::default()).unwrap())
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("system.slice/spand-gateway.service");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("system.slice/memory.max"), "1073741824\n").unwrap();
        let found = tightest("0::/system.slice/spand-gateway.service\n", root.path()).unwrap();
        assert_eq!(found.mib, 1_024);
        assert!(found.whose.contains("system.slice/memory.max"), "{found:?}");
        let first = root.path().join("memory/docker/x");
        fs::create_dir_all(&first).unwrap();
        fs::write(first.join("memory.limit_in_bytes"), "536870912\n").unwrap();
        let found = tightest("4:cpu,cpuacct:/\n3:memory:/docker/x\n0::/\n", root.path()).unwrap();
        assert_eq!(found.mib, 512);
        assert_eq!(tightest("", root.path()), None);
        assert_eq!(tightest("0::/../../other\n", root.path()), None);
    }

    #[test]
    fn too_little_names_the_options_that_take_most() {
        let limit = |mib| Some(Limit { mib, whose: "this machine has".to_owned() });
        let need = default().total_mib();
        assert_eq!(judge(&default(), limit(need), None).verdict, Verdict::Ok);
        let check = judge(&default(), limit(need * 2), limit(need - 1));
        assert_eq!(check.verdict, Verdict::Warn);
        let largest = default().largest(1)[0];
        assert!(check.to_do.as_deref().unwrap().contains(largest.options), "{check:?}");
        assert_eq!(judge(&default(), None, None).verdict, Verdict::Unknown);
        assert_eq!(machine("MemTotal:        8000000 kB\nMemFree: 1 kB\n").unwrap().mib, 7_812);
    }

    #[test]
    fn a_running_gateway_is_distinguished_from_a_doctor() {
        assert!(is_gateway(b"/usr/bin/spand-gateway\0run\0--config\0x\0"));
        assert!(!is_gateway(b"/usr/bin/spand-gateway\0doctor\0"));
        assert!(!is_gateway(b"/usr/bin/other\0run\0"));
    }
}
