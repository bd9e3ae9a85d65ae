//! Files, signals and sockets of others: Landlock.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::{getppid, truncate};
use spand_confine::Plan;

use super::stage::Stage;
use super::{Attempt, Group, every_capability};

pub(crate) const GROUP: Group = Group { name: "files and others", plan, attempts: ATTEMPTS };

fn plan(stage: &Stage) -> Plan {
    Plan {
        keep: every_capability(),
        read: vec![stage.path("read")],
        write: vec![stage.path("write")],
        write_to: vec!["/dev/null".into()],
        ..Plan::default()
    }
}

const NO: Option<Errno> = Some(Errno::EACCES);

const ATTEMPTS: &[Attempt] = &[
    Attempt { name: "read", refused: None, work: |stage, _| read(&stage.path("read/file")) },
    Attempt { name: "write", refused: None, work: |stage, _| write(&stage.path("write/file")) },
    Attempt { name: "write to a device that is named", refused: None, work: |_, _| write("/dev/null".as_ref()) },
    Attempt {
        name: "make and rename",
        refused: None,
        work: |stage, _| {
            done(fs::write(stage.path("write/new"), ""))?;
            done(fs::rename(stage.path("write/new"), stage.path("write/newer")))
        },
    },
    Attempt { name: "read beside", refused: NO, work: |stage, _| read(&stage.path("beside")) },
    Attempt { name: "read by a link", refused: NO, work: |stage, _| read(&stage.path("read/link")) },
    Attempt {
        name: "read by the root of the process",
        refused: NO,
        work: |stage, _| read(Path::new(&format!("/proc/self/root{}", stage.path("beside").display()))),
    },
    Attempt { name: "read what users are", refused: NO, work: |_, _| read("/etc/shadow".as_ref()) },
    Attempt { name: "list beside", refused: NO, work: |stage, _| done(fs::read_dir(stage.path(""))).map(drop) },
    Attempt { name: "write beside", refused: NO, work: |stage, _| write(&stage.path("beside")) },
    Attempt { name: "write what is read", refused: NO, work: |stage, _| write(&stage.path("read/file")) },
    Attempt { name: "cut short what is read", refused: NO, work: |stage, _| truncate(&stage.path("read/file"), 0) },
    Attempt { name: "make beside", refused: NO, work: |stage, _| done(fs::write(stage.path("new"), "")) },
    Attempt {
        name: "make a device",
        refused: NO,
        work: |stage, _| mknod(&stage.path("write/disk"), SFlag::S_IFBLK, Mode::S_IRUSR, makedev(254, 0)),
    },
    Attempt {
        name: "link what is beside to where may be written",
        refused: Some(Errno::EXDEV),
        work: |stage, _| done(fs::hard_link(stage.path("beside"), stage.path("write/beside"))),
    },
    Attempt {
        name: "remove what is read",
        refused: NO,
        work: |stage, _| done(fs::remove_file(stage.path("read/file"))),
    },
    Attempt { name: "signal its parent", refused: Some(Errno::EPERM), work: |_, _| kill(getppid(), None) },
    Attempt {
        name: "connect to a nameless socket of its parent",
        refused: Some(Errno::EPERM),
        work: |stage, _| done(stage.nameless().and_then(|address| UnixStream::connect_addr(&address))).map(drop),
    },
];

fn read(path: &Path) -> nix::Result<()> {
    done(File::open(path)).map(drop)
}

fn write(path: &Path) -> nix::Result<()> {
    done(OpenOptions::new().write(true).open(path)).map(drop)
}

/// The kernel's error.
pub(crate) fn done<T>(outcome: io::Result<T>) -> nix::Result<T> {
    outcome.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}
