//! A process that confines itself and then tries what it may not do, beside one that does not confine itself: what is not
//! refused to the second shows nothing.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::kill;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::{Pid, getppid};
use spand_confine::{Capability, Confined, Plan, Process, confine};
use spand_proto::operator::Failure;
use spand_tests::lab::namespace::Namespace;

use super::Case;
use super::stage::Folder;

pub(super) const CASES: &[Case] = &[("what is given up is refused, and the rest is not", refused)];

/// Refused to who gave up what a plan does not name.
const REFUSED: &[&str] = &[
    "read beside",
    "write beside",
    "write what is read",
    "remove what is read",
    "connect elsewhere",
    "listen",
    "start a program",
    "a namespace of its own",
    "another personality",
    "a packet socket",
    "a raw socket of the main thread",
    "signal its parent",
];
/// Not refused.
const ALLOWED: &[&str] = &["read", "write", "rename", "connect", "start a thread", "a raw socket of an early thread"];

fn refused() -> Result<()> {
    let folder = Folder::new()?;
    let namespace = Namespace::create("probe")?;
    for name in ["read", "write"] {
        fs::create_dir(folder.path(name))?;
        folder.write(&format!("{name}/file"), name)?;
    }
    folder.write("beside", "secret")?;
    let listeners = namespace.enter(|| Ok([TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?]))?;
    let ports = listeners.iter().map(|listener| Ok(listener.local_addr()?.port().to_string()));
    let ports = ports.collect::<Result<Vec<_>>>()?;
    for confined in [false, true] {
        let mut command = namespace.command(folder.path("probe"));
        let output = command.arg(confined.to_string()).arg(folder.path("")).args(&ports).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "the probe ended: {said}{}", String::from_utf8_lossy(&output.stderr));
        let outcome = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        for name in ALLOWED.iter().chain(REFUSED) {
            let outcome = outcome(name).with_context(|| format!("nothing about `{name}` in\n{said}"))?;
            let wanted = ALLOWED.contains(name) || !confined;
            ensure!((outcome == "done") == wanted, "confined {confined}: {name}: {outcome}");
        }
        ensure!(said.lines().count() == ALLOWED.len() + REFUSED.len(), "the lists are not those of the probe:\n{said}");
    }
    Ok(())
}

/// The probe: whether to confine itself, its folder, a port that it may connect to and one that it may not.
pub(super) fn run() -> Result<(), Failure> {
    tried().map_err(|error| Failure::Environment(format!("{error:#}")))
}

fn tried() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("an argument is missing");
    let (confined, folder, port, other) = (next()?, next()?, next()?, next()?);
    let folder = Path::new(&folder);
    let plan = Plan {
        keep: vec![Capability::CAP_NET_RAW],
        read: vec![folder.join("read")],
        write: vec![folder.join("write")],
        connect: vec![port.parse()?],
        ..Plan::default()
    };
    let mut given_up: Confined = confine(&Process { user: None, confine: confined.parse()? }, &plan)?;
    let (go, told) = std::sync::mpsc::channel::<()>();
    let early = std::thread::spawn(move || {
        _ = told.recv();
        packets()
    });
    given_up.keep_none_here();

    let write =
        |path: &str| Ok(OpenOptions::new().write(true).truncate(true).open(folder.join(path))?.write_all(b"x")?);
    say("read", || Ok(fs::read(folder.join("read/file")).map(drop)?));
    say("write", || write("write/file"));
    say("rename", || Ok(fs::rename(folder.join("write/file"), folder.join("write/other"))?));
    say("connect", || Ok(TcpStream::connect(format!("127.0.0.1:{port}")).map(drop)?));
    say("start a thread", || std::thread::Builder::new().spawn(|| ()).map(drop).context("a thread"));
    drop(go);
    say("a raw socket of an early thread", || early.join().ok().context("it panicked")?);
    // The same once more, by a thread that starts when nothing is left.
    say("a raw socket of the main thread", packets);
    say("a packet socket", || std::thread::spawn(packets).join().ok().context("it panicked")?);
    say("read beside", || Ok(File::open(folder.join("beside")).map(drop)?));
    say("write beside", || write("beside"));
    say("write what is read", || write("read/file"));
    say("remove what is read", || Ok(fs::remove_file(folder.join("read/file"))?));
    say("connect elsewhere", || Ok(TcpStream::connect(format!("127.0.0.1:{other}")).map(drop)?));
    say("listen", || Ok(TcpListener::bind("127.0.0.1:0").map(drop)?));
    say("start a program", || Ok(Command::new("/bin/true").status().map(drop)?));
    say("a namespace of its own", || {
        let fresh = std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET));
        Ok(fresh.join().ok().context("it panicked")??)
    });
    // SAFETY: asks for the personality in force and changes nothing.
    say("another personality", || match unsafe { libc::personality(0xffff_ffff) } {
        -1 => Err(std::io::Error::last_os_error().into()),
        _ => Ok(()),
    });
    say("signal its parent", || Ok(kill(Pid::from_raw(getppid().as_raw()), None)?));
    // The file that was removed is there again for the next probe.
    drop(fs::write(folder.join("read/file"), "read"));
    drop(fs::write(folder.join("write/file"), "write"));
    Ok(())
}

fn packets() -> Result<()> {
    Ok(socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).map(drop)?)
}

fn say(name: &str, work: impl FnOnce() -> Result<()>) {
    match work() {
        Ok(()) => println!("{name}: done"),
        Err(error) => println!("{name}: {error:#}"),
    }
}
