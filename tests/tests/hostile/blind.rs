use std::num::NonZeroUsize;

use spand_core::counters::Counters;
use spand_tests::hostile::{Attack, Blind, Outcome, Scene};
use spand_tests::memory::held_bytes;
use strum::VariantArray;

const SCENE: Scene = Scene {
    seconds: 40,
    connections: 100,
    networks: 8,
    limit: NonZeroUsize::new(2_000).unwrap(),
    tuples_per_second: 0,
    segment_memory_bytes: NonZeroUsize::new(320 << 20).unwrap(),
};

/// One packet of each kind on every connection, with numbers made up; each line is one of docs/results/robustness.md.
#[test]
fn blind_packets_cost_no_connection_its_samples() {
    let without = SCENE.play(None, held_bytes);
    let counted = |counters: &Counters| counters.window_samples + counters.lower_bounds;
    let of = counted(&without.counters);
    assert!(of > 500, "{of} samples");
    let mut failed = Vec::new();
    for &kind in Blind::VARIANTS {
        let with = SCENE.play(Some(Attack::Blind(kind)), held_bytes);
        let (furthest, _, missing, estimates) = with.moved(&without);
        let Outcome { tuples, counters, .. } = &with;
        let samples = counted(counters);
        println!(
            "| {} | {tuples} | {samples} of {of} | {:+.2} % | {missing} of {estimates} |",
            kind.words(),
            100.0 * furthest
        );
        assert!(*tuples > 500, "{kind:?}: {tuples} connections");
        if samples * 20 < of * 19 || samples * 20 > of * 21 || furthest.abs() > 0.02 || missing > 0 {
            failed.push(kind);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
