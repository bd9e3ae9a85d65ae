//! What being confined costs a system call: the same calls by a process that confined itself as the gateway does, and by one
//! that did not, in turns. Of each process the fastest of many short runs counts, and of all processes of a kind the median:
//! other work on the machine only ever makes a run longer.
//!
//! ```text
//! cargo bench -p spand-confine --bench cost
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::SocketError;
use nix::sys::socket::{MsgFlags, getsockopt, send, sendmsg};
use spand_confine::{Capability, Plan, Process, confine};

/// Processes of each kind, one after the other.
const PROCESSES: usize = 11;
/// Runs of a process, and how long one takes at least.
const RUNS: usize = 60;
const RUN: Duration = Duration::from_micros(500);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, kind, folder] = &arguments[..]
        && first == "measure"
    {
        return measure(kind == "confined", Path::new(folder));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut figures: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
    let mut order = Vec::new();
    for _ in 0..PROCESSES {
        for (place, kind) in ["free", "confined"].into_iter().enumerate() {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            let output =
                command.args(["measure", kind]).arg(folder.path()).output().expect("a process of this program");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let (name, ns) = line.split_once(": ").expect("a name and a figure");
                if !order.iter().any(|one| one == name) {
                    order.push(name.to_owned());
                }
                figures.entry(name.to_owned()).or_default()[place].push(ns.parse().expect("a number"));
            }
        }
    }
    println!("| call | free (ns) | confined (ns) | more (ns) | ratio |\n| --- | --- | --- | --- | --- |");
    for name in order {
        let [free, confined] = figures[&name].each_ref().map(|all| median(all));
        println!("| {name} | {free:.0} | {confined:.0} | {:.0} | {:.2} |", confined - free, confined / free);
    }
}

fn median(all: &[f64]) -> f64 {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// One process: figures of every call.
fn measure(confined: bool, folder: &Path) {
    let plan = Plan {
        keep: vec![Capability::CAP_NET_RAW],
        read: vec!["/proc/self/net".into(), "/sys/class/net".into(), "/sys/devices".into()],
        write: vec![folder.to_owned()],
        ..Plan::default()
    };
    let sandbox = confine(&Process { user: None, confine: confined }, &plan).unwrap_or_else(|why| panic!("{why}"));
    for (part, done) in sandbox.parts() {
        assert!(!confined || done || part == "user", "{part} is not dropped here: there is nothing to compare");
    }
    let (mut here, mut there) = UnixStream::pair().expect("a pair of sockets");
    let file = folder.join("file");
    fs::write(&file, "").expect("a file");
    let mut kept = File::create(folder.join("kept")).expect("a file");
    let mut bytes = [0; 256];

    say("getppid", nix::unistd::getppid);
    say("poll", || {
        let mut wanted = [PollFd::new(here.as_fd(), PollFlags::POLLIN)];
        poll(&mut wanted, PollTimeout::ZERO).expect("poll")
    });
    say("getsockopt", || getsockopt(&here, SocketError).expect("an option"));
    say("write to a file", || kept.write_all(b"x").expect("written"));
    say("write and read of a socket", || {
        here.write_all(&bytes).expect("written");
        there.read_exact(&mut bytes).expect("read");
    });
    say("sendto and read of a socket", || {
        send(here.as_raw_fd(), &bytes, MsgFlags::empty()).expect("sent");
        there.read_exact(&mut bytes).expect("read");
    });
    say("sendmsg and read of a socket", || {
        let parts = [IoSlice::new(&bytes)];
        sendmsg::<()>(here.as_raw_fd(), &parts, &[], MsgFlags::empty(), None).expect("sent");
        there.read_exact(&mut bytes).expect("read");
    });
    say("openat and close of a file", || File::open(&file).expect("a file"));
    say("openat and close of counters", || File::open("/proc/self/net/dev").expect("counters"));
}

fn say<T>(name: &str, mut call: impl FnMut() -> T) {
    let mut many = 1_u32;
    let mut time = |many: u32| {
        let begin = Instant::now();
        (0..many).for_each(|_| drop(black_box(call())));
        begin.elapsed()
    };
    while time(many) < RUN {
        many *= 2;
    }
    let fastest = (0..RUNS).map(|_| time(many)).min().unwrap_or_default();
    println!("{name}: {}", fastest.as_secs_f64() * 1e9 / f64::from(many));
}
