//! The kernel's table of networks when updates fail.

use std::collections::BTreeSet;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use spand_proto::network::Network;
use spand_proto::start::Mode;

use super::super::networks::{Moment, Networks};
use super::*;
use crate::apply::{Decided, Desired, DesiredStarts, Skipped, StartReason};
use crate::policy::Reason;

/// When the tables of these tests begin.
const START: Moment = Moment { agent: Timestamp(0), programs_ns: 0 };

fn table(programs: &Object, name: &str) -> MapHandle {
    let map = programs.maps().find(|map| map.name() == name).unwrap();
    MapHandle::try_from(&map).unwrap()
}

fn wanted() -> Desired {
    let estimate = estimate(Window::from_segments(Segments(40), Bytes(1_448)), None, 0);
    Desired {
        window: Segments(40),
        reason: StartReason { mode: Mode::Paper, share: Segments(40), clipped_by: None },
        expires: Timestamp(2),
        announced: None,
        inputs: inputs(&estimate, &StartPolicy::PAPER),
    }
}

#[test]
fn a_network_that_the_kernel_does_not_take_keeps_no_place() {
    let Some(programs) = programs_with_room(1) else { return };
    let networks = table(&programs, "networks");
    let mut written = Networks::new(table(&programs, "networks"), table(&programs, "budgets"), START);
    let network = "192.0.2.0/24".parse().unwrap();
    let touched = BTreeSet::from([network]);
    let skipped = Skipped::from([(network, (Reason::HeldOut, Timestamp(1)))]);
    let changes = written
        .write(&Decided { desired: &DesiredStarts::new(), skipped: &skipped, touched: Some(&touched) }, START.agent);
    assert_eq!(changes.added, 1);
    // Another takes its room.
    let (own, other) = (layout::prefix(network), layout::prefix("198.51.100.0/24".parse().unwrap()));
    networks.delete(&own).unwrap();
    networks.update(&other, &layout::left_alone(1, 0), MapFlags::ANY).unwrap();
    let desired = DesiredStarts::from([(network, wanted())]);
    let decided = Decided { desired: &desired, skipped: &Skipped::new(), touched: Some(&touched) };
    assert_eq!(written.write(&decided, START.agent).failed, 1);
    networks.delete(&other).unwrap();
    let changes = written.write(&decided, START.agent);
    assert_eq!((changes.no_room, changes.changed), (0, 1), "the only place in the table of budgets is free again");
}

#[test]
fn a_network_that_the_kernel_does_not_give_up_keeps_its_place_and_is_tried_again() {
    let Some(programs) = programs_with_room(1) else { return };
    let mut written = Networks::new(table(&programs, "networks"), table(&programs, "budgets"), START);
    let (network, other) = ("192.0.2.0/24".parse().unwrap(), "198.51.100.0/24".parse().unwrap());
    let mut write = |desired: &[Network]| {
        let desired: DesiredStarts = desired.iter().map(|network| (*network, wanted())).collect();
        let changes =
            written.write(&Decided { desired: &desired, skipped: &Skipped::new(), touched: None }, START.agent);
        (changes, written.started(network).is_some())
    };
    assert_eq!(write(&[network]).0.added, 1);
    // From here on it takes nothing from outside.
    table(&programs, "networks").freeze().unwrap();
    for _ in 0..2 {
        let (changes, in_force) = write(&[]);
        assert_eq!((changes.removed, changes.failed, in_force), (0, 1, true));
    }
    assert_eq!(write(&[other]).0.no_room, 1, "the only place is another's");
}

#[test]
fn a_network_that_is_not_in_the_table_any_more_needs_no_removal() {
    let Some(programs) = programs_with_room(1) else { return };
    let mut written = Networks::new(table(&programs, "networks"), table(&programs, "budgets"), START);
    let network = "192.0.2.0/24".parse().unwrap();
    let desired = DesiredStarts::from([(network, wanted())]);
    let skipped = Skipped::new();
    written.write(&Decided { desired: &desired, skipped: &skipped, touched: None }, START.agent);
    table(&programs, "networks").delete(&layout::prefix(network)).unwrap();
    let changes =
        written.write(&Decided { desired: &DesiredStarts::new(), skipped: &skipped, touched: None }, START.agent);
    assert_eq!((changes.removed, changes.failed), (1, 0));
}
