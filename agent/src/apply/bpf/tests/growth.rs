//! Slow start's rules in the kernel against the contract's, and the tables that choose one.

use std::cell::Cell;
use std::num::NonZeroU32;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use spand_proto::growth::threshold::OwnThreshold;
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
    let (grown, all) = (Cell::new(0), Cell::new(0));
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

// A connection's own threshold in the kernel against the contract's, acknowledgement by acknowledgement.

/// `struct measure_trial`, and where its fields after `struct measured` lie.
const TRIAL_BYTES: usize = 40;
const MINIMUM_AT: usize = 16;
const MEASURES_AT: usize = 20;
const GIVEN_AT: usize = 24;
const THRESHOLD_AT: usize = 36;

/// `enum measures`.
const NOT: u32 = 0;
const FIRST: u32 = 1;

/// The kernel's measurement of one connection.
struct InKernel<'a> {
    programs: &'a Object,
    trial: Vec<u8>,
}

impl<'a> InKernel<'a> {
    fn new(programs: &'a Object) -> Self {
        let mut trial = vec![0; TRIAL_BYTES];
        trial[MEASURES_AT..GIVEN_AT].copy_from_slice(&FIRST.to_ne_bytes());
        Self { programs, trial }
    }

    fn at(&self, place: usize) -> u32 {
        u32::from_ne_bytes(*self.trial[place..].first_chunk().unwrap())
    }

    /// Its threshold after an acknowledgement, the smallest, and whether it is settled. Of the time it is given the low half.
    fn on_ack(&mut self, at: u64, acked: u32, rtt_us: u32) -> (Option<u32>, Option<u32>, bool) {
        let low = u32::try_from(at & u64::from(u32::MAX)).unwrap();
        let given = Encoder::default().u32(low).u32(acked).u32(rtt_us).done();
        self.trial[GIVEN_AT..THRESHOLD_AT].copy_from_slice(&given);
        let program = self.programs.progs_mut().find(|program| program.name() == "try_measure").unwrap();
        program.test_run(ProgramInput { context_in: Some(&mut self.trial), ..ProgramInput::default() }).unwrap();
        let some = |number: u32| (number != 0).then_some(number);
        (some(self.at(THRESHOLD_AT)), some(self.at(MINIMUM_AT)), self.at(MEASURES_AT) == NOT)
    }
}

/// One acknowledgement: what lies before it in time, in millionths of a round trip or as they are; what it acknowledges.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Micros(u32),
    Part(u32),
    Back(u32),
}

fn gaps() -> impl Strategy<Value = Gap> {
    prop_oneof![
        4 => (0_u32..4).prop_map(Gap::Micros),
        12 => (0_u32..140_000).prop_map(Gap::Part),
        // About the end of a group, and of a round trip.
        2 => (124_900_u32..125_100).prop_map(Gap::Part),
        2 => (990_000_u32..1_010_000).prop_map(Gap::Part),
        1 => (0_u32..2_000_000).prop_map(Gap::Part),
        1 => (0_u32..2_000_000).prop_map(Gap::Back),
    ]
}

fn acked() -> impl Strategy<Value = u32> {
    prop_oneof![20 => 0_u32..5, 3 => 0_u32..200, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

#[test]
fn the_kernels_own_threshold_is_the_contracts() {
    let Some(programs) = programs() else { return };
    // A round trip of up to 20 s: whatever times are compared lie less than half an hour apart.
    let rtts = prop_oneof![1 => Just(0), 3 => 0_u32..100, 20 => 100_u32..600_000, 2 => 600_000_u32..20_000_000];
    // About where the low half of a time begins again, and anywhere.
    let begins = prop_oneof![
        (1_u64..1_000, 0_u64..4_000_000).prop_map(|(turns, before)| (turns << 32) - before),
        any::<u32>().prop_map(u64::from),
        0_u64..1 << 62,
    ];
    // Shifts between round trips are small, as those of a smoothed one.
    let cases = (begins, rtts, prop::collection::vec((gaps(), acked(), 95_u32..106), 1..40));
    let (estimated, settled, acks) = (Cell::new(0_u32), Cell::new(0_u32), Cell::new(0_u32));
    let mut runner = TestRunner::new(Runs { cases: 6_000, failure_persistence: None, ..Runs::default() });
    let outcome = runner.run(&cases, |(begin, usual_rtt, sequence)| {
        let (mut kernel, mut contract) = (InKernel::new(&programs), OwnThreshold::default());
        let mut at = begin;
        for (gap, acked, percent) in sequence {
            let part = |millionths: u32| u64::from(millionths) * u64::from(usual_rtt) / 1_000_000;
            at = match gap {
                Gap::Micros(micros) => at + u64::from(micros),
                Gap::Part(millionths) => at + part(millionths),
                Gap::Back(millionths) => at.saturating_sub(part(millionths)),
            };
            let rtt_us = u32::try_from(u64::from(usual_rtt) * u64::from(percent) / 100).unwrap();
            let own = contract.on_ack(Micros(at), Segments(acked), Micros(rtt_us.into()));
            let contracts = (own.map(|own| own.0), contract.minimum().map(|least| least.0), contract.settled());
            prop_assert_eq!(kernel.on_ack(at, acked, rtt_us), contracts);
            acks.set(acks.get() + 1);
            estimated.set(estimated.get() + u32::from(own.is_some()));
        }
        settled.set(settled.get() + u32::from(contract.settled()));
        Ok(())
    });
    outcome.unwrap();
    let (acks, estimated, settled) = (acks.get(), estimated.get(), settled.get());
    println!("{acks} acknowledgements, {estimated} estimations, {settled} connections settled");
    assert!(acks > 50_000 && estimated > 5_000 && settled > 150, "{acks}, {estimated}, {settled}");
}
