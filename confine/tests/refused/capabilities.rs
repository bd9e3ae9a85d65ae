//! Capabilities, by thread, and what may never come back.

use std::process::Command;
use std::sync::mpsc;
use std::thread;

use caps::CapSet;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use spand_confine::{Capability, Plan, Process, confine};

use super::{Attempt, Group};

/// As the gateway does: a thread that starts before the last capability is dropped keeps it, and no other.
pub(crate) const GROUP: Group = Group {
    name: "capabilities",
    plan: |_| Plan { keep: vec![Capability::CAP_NET_RAW], ..Plan::default() },
    attempts: &[
        Attempt {
            name: "take back what no thread keeps",
            refused: NO,
            work: |_, _| raise(CapSet::Effective, Capability::CAP_DAC_OVERRIDE),
        },
        Attempt {
            name: "packets by an early thread",
            refused: None,
            work: |_, sandbox| {
                let (go, dropped) = mpsc::channel::<()>();
                let early = thread::spawn(move || {
                    _ = dropped.recv();
                    packets()
                });
                sandbox.keep_none_here();
                drop(go);
                early.join().expect("it ends")
            },
        },
        Attempt { name: "packets", refused: NO, work: |_, _| packets() },
        Attempt {
            name: "packets by a later thread",
            refused: NO,
            work: |_, _| thread::spawn(packets).join().expect("it ends"),
        },
        Attempt { name: "take it back", refused: NO, work: |_, _| raise(CapSet::Effective, Capability::CAP_NET_RAW) },
        Attempt { name: "another user", refused: NO, work: |_, _| nix::unistd::setuid(1.into()) },
    ],
};

/// Who may hand on what it does not have (`CAP_SETPCAP`) is held back by the bounding set alone.
pub(crate) const BOUNDING: Group = Group {
    name: "bounding set",
    plan: |_| Plan { keep: vec![Capability::CAP_SETPCAP], ..Plan::default() },
    attempts: &[Attempt {
        name: "hand on what was dropped",
        refused: NO,
        work: |_, _| raise(CapSet::Inheritable, Capability::CAP_SYS_ADMIN),
    }],
};

const NO: Option<Errno> = Some(Errno::EPERM);

fn packets() -> nix::Result<()> {
    socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).map(drop)
}

fn raise(set: CapSet, capability: Capability) -> nix::Result<()> {
    caps::raise(None, set, capability).map_err(|_| Errno::last())
}

// What a process that was root has left as another user, with the sandbox on and off.

/// The argument that makes a process become another user and print its capabilities.
pub(crate) const WORD: &str = "become";

const SETS: [CapSet; 4] = [CapSet::Permitted, CapSet::Effective, CapSet::Inheritable, CapSet::Ambient];
const WANTED: &str = "Permitted [CAP_NET_RAW], Effective [CAP_NET_RAW], Inheritable [], Ambient []";

/// What is wrong, with `confine` on and off.
pub(crate) fn faults() -> impl Iterator<Item = String> {
    ["confined", "free"].into_iter().filter_map(|who| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let output = command.args([WORD, who]).output().expect("a process of this program");
        let (printed, faults) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (printed.trim() != WANTED).then(|| format!("another user, {who}: {printed}{faults}"))
    })
}

/// The process that becomes another user.
pub(crate) fn become_another(confined: bool) {
    let process = Process { user: Some("nobody".to_owned()), confine: confined };
    let plan = Plan { keep: vec![Capability::CAP_NET_RAW], ..Plan::default() };
    let sandbox = confine(&process, &plan).unwrap_or_else(|failure| panic!("{failure}"));
    let sets = SETS.map(|set| {
        let mut has: Vec<_> = caps::read(None, set).expect("capabilities").into_iter().collect();
        has.sort_unstable_by_key(Capability::index);
        format!("{set:?} {has:?}")
    });
    println!("{}", sets.join(", "));
    drop(sandbox);
}
