//! System calls, each with arguments that no kernel accepts: it fails in any case, and the error says who refused.

use std::ffi::c_long;

use nix::errno::Errno;
use spand_confine::Plan;

use super::every_capability;

type Call = (&'static str, c_long);

/// Calls of one process.
pub(crate) struct Calls {
    pub(crate) name: &'static str,
    pub(crate) plan: fn() -> Plan,
    pub(crate) forbidden: &'static [Call],
    pub(crate) left: &'static [Call],
}

pub(crate) const GROUPS: &[Calls] = &[
    Calls { name: "calls of a gateway", plan: gateway, forbidden: OF_A_GATEWAY, left: &[] },
    Calls { name: "calls of an agent with a guard", plan: agent, forbidden: OF_AN_AGENT, left: LEFT_TO_AN_AGENT },
];

macro_rules! calls {
    ($($name:ident)*) => {
        &[$((concat!(stringify!($name)), libc::$name)),*]
    };
}

const OF_A_GATEWAY: &[Call] = calls!(
    SYS_kcmp SYS_pidfd_getfd SYS_process_madvise SYS_process_vm_readv SYS_process_vm_writev SYS_ptrace
    SYS_chroot SYS_fsconfig SYS_fsmount SYS_fsopen SYS_fspick SYS_mount SYS_mount_setattr SYS_move_mount
    SYS_open_by_handle_at SYS_open_tree SYS_pivot_root SYS_setns SYS_umount2 SYS_unshare
    SYS_acct SYS_adjtimex SYS_clock_adjtime SYS_clock_settime SYS_delete_module SYS_finit_module SYS_init_module
    SYS_kexec_load SYS_quotactl SYS_reboot SYS_setdomainname SYS_sethostname SYS_settimeofday SYS_swapoff SYS_swapon
    SYS_syslog SYS_vhangup
    SYS_add_key SYS_io_uring_enter SYS_io_uring_register SYS_io_uring_setup SYS_keyctl SYS_personality SYS_request_key
    SYS_userfaultfd
    SYS_bpf SYS_perf_event_open SYS_execve SYS_execveat SYS_fork SYS_clone SYS_clone3
);
const OF_AN_AGENT: &[Call] = calls!(SYS_ptrace SYS_mount SYS_unshare SYS_init_module SYS_clone SYS_clone3);
const LEFT_TO_AN_AGENT: &[Call] = calls!(SYS_bpf SYS_perf_event_open SYS_execve);

/// With this bit x86-64 knows every call a second time. A kernel that was built without them has an answer of its own.
const SECOND_NUMBERS: c_long = 0x4000_0000;

/// As the call is named when it is made by its second number.
pub(crate) fn by_second_number(name: &str) -> Option<String> {
    // The answer to `clone3` is that of such a kernel.
    (cfg!(target_arch = "x86_64") && name != "SYS_clone3").then(|| format!("{name} by its second number"))
}

/// The answer of a confined process.
pub(crate) fn answer(name: &str) -> Errno {
    if name == "SYS_clone3" { Errno::ENOSYS } else { Errno::EPERM }
}

/// Makes the call, and the same by its second number.
pub(crate) fn make((name, call): Call, mut say: impl FnMut(&str, nix::Result<()>)) {
    // A process of its own is what is forbidden, and no process has signal handlers in common with another's memory.
    let first = if name == "SYS_clone" { c_long::from(libc::CLONE_NEWNET | libc::CLONE_SIGHAND) } else { -1 };
    let made = |call: c_long| {
        // SAFETY: no pointer of -1 is read or written by the kernel, and a process that is made ends at once.
        let result = unsafe { libc::syscall(call, first, -1, -1, -1, -1, -1) };
        if name == "SYS_fork" && result == 0 {
            // SAFETY: ends the process that was made.
            unsafe { libc::_exit(0) };
        }
        Errno::result(result).map(drop)
    };
    say(name, made(call));
    if let Some(name) = by_second_number(name) {
        say(&name, made(call | SECOND_NUMBERS));
    }
}

/// Calls that the filter does not know at all: a process that makes one is killed.
pub(crate) const OF_32_BITS: &str = "calls of 32 bits";

/// Asks for its number as a program of 32 bits does.
pub(crate) fn make_one_of_32_bits() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: `getpid` of 32 bits changes nothing but the registers that are named.
    unsafe {
        std::arch::asm!(
            "int 0x80",
            inout("eax") 20 => _,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
}

/// Nothing but system calls is restricted.
fn gateway() -> Plan {
    Plan { keep: every_capability(), ..Plan::default() }
}

fn agent() -> Plan {
    Plan { kernel_programs: true, start: vec!["/bin/true".into()], ..gateway() }
}
