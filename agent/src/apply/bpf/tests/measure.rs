//! A connection's own threshold in the kernel against the contract's, acknowledgement by acknowledgement.

use std::cell::Cell;

use spand_proto::growth::threshold::OwnThreshold;

use super::*;

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
