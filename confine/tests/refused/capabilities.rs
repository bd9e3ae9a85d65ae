//! Capabilities, by thread, and what may never come back.

use std::sync::mpsc;
use std::thread;

use caps::CapSet;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use spand_confine::{Capability, Plan};

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
