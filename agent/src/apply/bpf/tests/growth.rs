//! Slow start's rules in the kernel against the contract's, and the tables that choose one.

use std::num::NonZeroU32;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use spand_proto::growth::{FRACTION_BITS, GrownWindow, Growth, MOST_ACKED, MOST_SEGMENTS};
use spand_proto::start::NO_THRESHOLD;

use super::super::growths::{GrowthTables, encoded};
use super::*;
use crate::config::MOST_NAMED;
use crate::policy::Growths;

/// The kernel's answer; `None` where its own rule holds.
fn in_kernel(programs: &Object, growth: Growth, window: GrownWindow, ssthresh: u32, acked: u32) -> Option<GrownWindow> {
    let parts = u64::from(window.whole) << FRACTION_BITS | u64::from(window.fraction);
    let trial = Encoder::default().u64(parts).u64(0).u32(encoded(growth)).u32(ssthresh).u32(acked).u32(0);
    let mut trial = trial.done();
    let program = programs.progs_mut().find(|program| program.name() == "try_grow").unwrap();
    program.test_run(ProgramInput { context_in: Some(&mut trial), ..ProgramInput::default() }).unwrap();
    let grown = u64::from_ne_bytes(*trial[8..].first_chunk().unwrap());
    let whole = u32::try_from(grown >> FRACTION_BITS).unwrap();
    let fraction = u32::try_from(grown & ((1 << FRACTION_BITS) - 1)).unwrap();
    (grown != 0).then_some(GrownWindow { whole, fraction })
}

fn dbc(dmax: u32) -> Growth {
    Growth::Dbc { dmax: NonZeroU32::new(dmax).unwrap() }
}

fn burst(f: u32) -> Growth {
    Growth::Burst { f: NonZeroU32::new(f).unwrap() }
}

/// Numbers near the ends of their ranges, and in between.
fn edges(most: u32) -> impl Strategy<Value = u32> {
    let near = [1, 2, 32, MOST_ACKED, MOST_SEGMENTS, NO_THRESHOLD.0, most].map(|edge| edge.min(most));
    prop_oneof![
        prop::sample::select(near.to_vec())
            .prop_flat_map(move |edge| { edge.saturating_sub(2)..=edge.saturating_add(2).min(most) }),
        0..=200.min(most),
        0..=most,
    ]
}

#[test]
fn the_kernels_growth_is_the_contracts() {
    let Some(programs) = programs() else { return };
    let rules = (0_u32..3, edges(u32::MAX)).prop_map(|(kind, parameter)| match kind {
        0 => Growth::Standard,
        1 => dbc(parameter.max(1)),
        _ => burst(parameter.max(1)),
    });
    let cases = (rules, edges(u32::MAX), edges((1 << FRACTION_BITS) - 1), edges(u32::MAX), edges(u32::MAX));
    let mut runner = TestRunner::new(Runs { cases: 20_000, failure_persistence: None, ..Runs::default() });
    let (grown, all) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let outcome = runner.run(&cases, |(growth, whole, fraction, ssthresh, acked)| {
        let window = GrownWindow { whole, fraction };
        let contracts = growth.grow(window, Segments(ssthresh), Segments(acked));
        prop_assert_eq!(in_kernel(&programs, growth, window, ssthresh, acked), contracts);
        grown.set(grown.get() + usize::from(contracts.is_some()));
        all.set(all.get() + 1);
        Ok(())
    });
    outcome.unwrap();
    assert!(all.get() >= 20_000 && grown.get() > 1_500, "{} of {} grow", grown.get(), all.get());
}

/// Every window that a connection passes through from one segment, acknowledgement by acknowledgement.
#[test]
fn whole_slow_starts_of_the_kernel_are_the_contracts() {
    let Some(programs) = programs() else { return };
    let rules = [dbc(1), dbc(2), dbc(3), dbc(16), burst(4), burst(8), burst(16)];
    for (growth, ssthresh) in rules.into_iter().flat_map(|growth| [20, 100, 700].map(|ssthresh| (growth, ssthresh))) {
        let mut window = GrownWindow { whole: 1, fraction: 0 };
        for ack in 0.. {
            let acked = 1 + ack % 3;
            let contracts = growth.grow(window, Segments(ssthresh), Segments(acked));
            assert_eq!(in_kernel(&programs, growth, window, ssthresh, acked), contracts, "{growth:?} at {window:?}");
            let Some(next) = contracts else { break };
            assert!(ack < 20_000, "{growth:?} does not come to an end");
            window = next;
        }
    }
}

#[test]
fn the_tables_hold_as_many_as_a_configuration_may_name() {
    let open = ObjectBuilder::default().open_memory(super::super::load::PROGRAMS).unwrap();
    for name in ["growth_prefixes", "growth_services"] {
        let table = open.maps().find(|map| map.name() == name).unwrap();
        assert_eq!(table.max_entries() as usize, MOST_NAMED, "{name}");
    }
}

#[test]
fn the_tables_follow_the_choice_and_are_off_where_nothing_is_chosen_or_advice_is_paused() {
    let Some(programs) = programs() else { return };
    let table = |name: &str| {
        let map = programs.maps().find(|map| map.name() == name).unwrap();
        MapHandle::try_from(&map).unwrap()
    };
    let [control, prefixes, services] = [".data.growths", "growth_prefixes", "growth_services"];
    let mut tables = GrowthTables::new(table(control), table(prefixes), table(services));
    let in_kernel = || {
        let control = table(control).lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        (control, table(prefixes).keys().count(), table(services).keys().count())
    };
    let value = |in_use: u32, by_default: u32| Encoder::default().u32(in_use).u32(by_default).done();
    let none = Growths::default();
    tables.write(&none, true).unwrap();
    assert_eq!(in_kernel(), (value(0, 0), 0, 0));

    let mut growths = Growths { by_default: dbc(2), ..Growths::default() };
    growths.prefixes.insert("192.0.2.0/24".parse().unwrap(), Growth::Standard);
    growths.prefixes.insert("2001:db8::/32".parse().unwrap(), burst(8));
    growths.services.insert("192.0.2.2:443".parse().unwrap(), burst(16));
    tables.write(&growths, true).unwrap();
    assert_eq!(in_kernel(), (value(1, 1 << 16 | 2), 2, 1));
    let key = layout::prefix("2001:db8::/32".parse().unwrap());
    let chosen = table(prefixes).lookup(&key, MapFlags::ANY).unwrap();
    assert_eq!(chosen.unwrap(), (2_u32 << 16 | 8).to_ne_bytes());

    growths.prefixes.clear();
    tables.write(&growths, true).unwrap();
    assert_eq!(in_kernel(), (value(1, 1 << 16 | 2), 0, 1));
    tables.write(&growths, false).unwrap();
    assert_eq!(in_kernel(), (value(0, 0), 0, 0));
}
