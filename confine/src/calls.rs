//! System calls that neither program ever makes, and that turn a foothold in it into more (seccomp(2)).
//!
//! A list of what is forbidden, not of what is allowed: the libraries below may come to need another harmless call with any
//! release, and the allow-list of the service's unit stands outside of this one. A forbidden call fails with `EPERM`.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads,
};

use super::plan::Plan;

/// Other processes.
const PROCESSES: &[c_long] = &[
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
];
/// Mounts and namespaces, and files by handle, which pass by Landlock.
const MOUNTS: &[c_long] = &[
    libc::SYS_chroot,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
];
/// The machine itself: its kernel, modules, clock, name and disks.
const MACHINE: &[c_long] = &[
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];
/// Parts of the kernel with a history: keys, faults in user space, personalities; and `io_uring`, whose requests no filter sees.
const SURFACE: &[c_long] = &[
    libc::SYS_add_key,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_keyctl,
    libc::SYS_personality,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
];
#[cfg(target_arch = "x86_64")]
const OF_THIS_ARCHITECTURE: &[c_long] =
    &[libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_kexec_file_load, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const OF_THIS_ARCHITECTURE: &[c_long] = &[];
/// Programs and tables in the kernel.
const KERNEL_PROGRAMS: &[c_long] = &[libc::SYS_bpf, libc::SYS_perf_event_open];
/// Being connected to. Landlock checks `bind`, and the kernel assigns a port to a socket that listens without one.
const LISTEN: [c_long; 1] = [libc::SYS_listen];
/// Other programs.
#[cfg(target_arch = "x86_64")]
const START: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat, libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const START: &[c_long] = &[libc::SYS_execve, libc::SYS_execveat];

/// Families of sockets that either program has: of its own machine, of the internet, of the kernel, of packets, and PF_RING's.
const FAMILIES: &[libc::c_int] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK, libc::AF_PACKET, 27];
/// Connections of the internet to which Landlock's rule for TCP ports does not hold.
const OTHER_STREAMS: &[libc::c_int] = &[libc::IPPROTO_MPTCP, libc::IPPROTO_SCTP];
/// Calls that send, with the place of their flags: with `MSG_FASTOPEN` they connect, past Landlock.
const SENDING: &[(c_long, u8)] = &[(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)];

/// With this bit x86-64 knows every call a second time, by the numbers of its 32-bit pointers.
#[cfg(target_arch = "x86_64")]
const SECOND_NUMBERS: Option<c_long> = Some(0x4000_0000);
#[cfg(not(target_arch = "x86_64"))]
const SECOND_NUMBERS: Option<c_long> = None;

const NAMESPACES: libc::c_int = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// Forbids them to every thread of this process, for ever.
pub(crate) fn forbid(plan: &Plan) -> Result<(), String> {
    // The flags of clone3(2) lie in memory, where no filter looks. To a kernel without it every library has an answer.
    apply(always([libc::SYS_clone3]), libc::ENOSYS)?;
    apply(rules(plan).map_err(|error| error.to_string())?, libc::EPERM)
}

/// Forbids every thread of this process to have others connect to it by a socket where they cannot yet.
pub(crate) fn forbid_listening() -> Result<(), String> {
    apply(always(LISTEN), libc::EPERM)
}

fn apply(rules: Rules, answer: i32) -> Result<(), String> {
    let compile = || -> Result<BpfProgram, BackendError> {
        let answer = SeccompAction::Errno(answer.cast_unsigned());
        let rules = with_second_numbers(rules);
        SeccompFilter::new(rules, SeccompAction::Allow, answer, std::env::consts::ARCH.try_into()?)?.try_into()
    };
    apply_filter_all_threads(&compile().map_err(|error| error.to_string())?).map_err(|error| match error {
        seccompiler::Error::Seccomp(why) => format!("seccomp is not there, or the service may not use it ({why})"),
        other => other.to_string(),
    })
}

/// Calls with the conditions under which they are forbidden: none is always.
type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn rules(plan: &Plan) -> Result<Rules, BackendError> {
    let mut forbidden: Vec<c_long> = [PROCESSES, MOUNTS, MACHINE, SURFACE, OF_THIS_ARCHITECTURE].concat();
    if !plan.kernel_programs {
        forbidden.extend(KERNEL_PROGRAMS);
    }
    if !plan.starts() {
        forbidden.extend(START);
    }
    if !plan.listens {
        forbidden.extend(LISTEN);
    }
    let mut rules = always(forbidden);
    // Of `clone`, threads are always allowed; processes only where programs are started, and never in a namespace of its own.
    let clone = if plan.starts() {
        let bits = (0..32).map(|bit| 1 << bit).filter(|bit| NAMESPACES & bit != 0);
        bits.map(|bit| rule([has(0, bit, bit)])).collect::<Result<Vec<_>, _>>()?
    } else {
        vec![rule([has(0, libc::CLONE_THREAD, 0)])?]
    };
    rules.insert(libc::SYS_clone, clone);
    let equal = |place, value| condition(place, SeccompCmpOp::Eq, value);
    let mut sockets =
        OTHER_STREAMS.iter().map(|protocol| rule([equal(2, *protocol)])).collect::<Result<Vec<_>, _>>()?;
    sockets.push(rule(FAMILIES.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family)))?);
    rules.insert(libc::SYS_socket, sockets);
    for (call, place) in SENDING {
        rules.insert(*call, vec![rule([has(*place, libc::MSG_FASTOPEN, libc::MSG_FASTOPEN)])?]);
    }
    Ok(rules)
}

fn always(calls: impl IntoIterator<Item = c_long>) -> Rules {
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// All of the conditions.
fn rule(
    conditions: impl IntoIterator<Item = Result<SeccompCondition, BackendError>>,
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

/// Of the argument at a place.
fn condition(place: u8, how: SeccompCmpOp, value: libc::c_int) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(place, SeccompCmpArgLen::Dword, how, wide(value))
}

/// That these flags at a place have this value.
fn has(place: u8, mask: libc::c_int, value: libc::c_int) -> Result<SeccompCondition, BackendError> {
    condition(place, SeccompCmpOp::MaskedEq(wide(mask)), value)
}

fn wide(value: libc::c_int) -> u64 {
    value.cast_unsigned().into()
}

fn with_second_numbers(mut rules: Rules) -> Rules {
    if let Some(bit) = SECOND_NUMBERS {
        let second: Rules = rules.iter().map(|(call, conditions)| (call | bit, conditions.clone())).collect();
        rules.extend(second);
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plan_needs_is_not_forbidden() {
        let nothing = rules(&Plan::default()).unwrap();
        let agent = Plan { kernel_programs: true, start: vec!["/proc/self/exe".into()], ..Plan::default() };
        let agent = rules(&agent).unwrap();
        for call in [libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_execve] {
            assert!(nothing.contains_key(&call) && !agent.contains_key(&call), "{call}");
        }
        assert_eq!((nothing[&libc::SYS_clone].len(), agent[&libc::SYS_clone].len()), (1, 7));
        for call in [libc::SYS_ptrace, libc::SYS_mount, libc::SYS_unshare, libc::SYS_io_uring_setup] {
            assert!(agent.contains_key(&call), "{call}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_second_numbers_are_forbidden_too() {
        assert!(with_second_numbers(rules(&Plan::default()).unwrap()).contains_key(&(libc::SYS_execve | 0x4000_0000)));
    }
}
