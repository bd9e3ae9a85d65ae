//! The status of readers, and readers on a veth pair in a separate namespace.
//!
//! The second needs root; without it it checks nothing, and says so on standard error.

use spand_needs::{Need, lacks};
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use spand_core::config::EngineConfig;
use spand_core::shard::Partition;

use super::*;
use crate::patience::eventually;
use crate::run::grouping::Groups;
use crate::run::{draw_seed, group};

fn ip(line: &str) {
    let output = Command::new("ip").args(line.split(' ')).output().expect("ip of iproute2");
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
}

fn make_pair() {
    ip("link add near type veth peer name far");
    for end in ["near", "far"] {
        ip(&format!("link set {end} up"));
    }
}

fn wait_until(captures: &Captures, what: &str, is_so: impl Fn(&InterfaceState) -> bool) {
    eventually(what, || captures.states().iter().all(&is_so));
}

fn two_readers_of_an_interface_that_comes_back() {
    make_pair();
    let backend = Some(Backend::AfPacket);
    let options = LiveOptions { backend, group: Some(7), ..LiveOptions::new("far") };
    let opened = [(); 2].map(|()| (LiveCapture::open(&options).unwrap(), options.clone()));
    let config = EngineConfig::default();
    let captures = Arc::new(Captures::new(
        vec![FrameQueue::new(NonZeroUsize::MIN)],
        Grouping::new(Groups::of(&config, Partition::new(&config, NonZeroU32::MIN))),
        MonotonicClock::from_wall_clock(),
        Duration::from_millis(20),
        &["far".to_owned()],
        NonZeroUsize::MIN.saturating_add(1),
    ));
    let threads = Captured::start(&captures, opened.into()).unwrap().go();
    for times in 1..=2 {
        ip("link delete far");
        wait_until(&captures, "both lost it", |state| state.status.losses == 2 * times);
        make_pair();
        wait_until(&captures, "both read again", |state| state.fault.is_none());
    }
    captures.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn readers_that_share_an_interface_read_again_when_it_comes_back() {
    let test = thread::spawn(|| match unshare(CloneFlags::CLONE_NEWNET) {
        Ok(()) => two_readers_of_an_interface_that_comes_back(),
        Err(error) => lacks(Need::Root, error),
    });
    if let Err(panic) = test.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn readers_of_an_interface_are_reported_as_one() {
    let state = |received, dropped_backlog, fault: Option<&str>| InterfaceState {
        status: CaptureStatus { received, dropped_kernel: 1, dropped_backlog, ..CaptureStatus::default() },
        fault: fault.map(str::to_owned),
    };
    let all = together(&[state(5, 3, None), state(7, 4, Some("gone"))]).unwrap();
    assert_eq!((all.status.received, all.status.dropped_kernel), (12, 2));
    assert_eq!((all.status.dropped_backlog, all.fault.as_deref()), (4, Some("gone")), "the host's is no one's own");
}

#[test]
fn gateways_share_no_group_of_readers_and_interfaces_have_one_each() {
    let of_gateways: BTreeSet<u16> = (0..64).map(|_| group(draw_seed(), 3)).collect();
    assert!(of_gateways.len() > 1, "whatever the number of their process");
    let of_interfaces: BTreeSet<u16> = (0..16).map(|interface| group(u64::MAX, interface)).collect();
    assert_eq!(of_interfaces.len(), 16);
}
