use std::num::NonZeroUsize;

use spand_tests::hostile::{Attack, Kind, Outcome, Scene};
use spand_tests::memory::held_bytes;
use strum::VariantArray;

/// A hundredth of the full size, for less long. A tuple of the flood stays in the table for two seconds.
const SMALL: Scene = Scene {
    seconds: 40,
    connections: 100,
    networks: 8,
    limit: NonZeroUsize::new(2_000).unwrap(),
    tuples_per_second: 1_000,
    segment_memory_bytes: NonZeroUsize::new(320 << 20).unwrap(),
};

/// A million tuples in ten seconds, for 45 s, at the table's default limit.
const FULL: Scene = Scene {
    seconds: 60,
    connections: 2_000,
    networks: 50,
    limit: NonZeroUsize::new(1_000_000).unwrap(),
    tuples_per_second: 100_000,
    segment_memory_bytes: NonZeroUsize::new(320 << 20).unwrap(),
};

#[test]
fn no_flood_moves_the_estimates_of_real_networks_by_more_than_a_fiftieth() {
    stands(SMALL);
}

#[test]
#[ignore = "minutes and gigabytes: make hostile"]
fn a_million_tuples_in_ten_seconds_move_no_estimate_by_more_than_a_fiftieth() {
    stands(FULL);
}

/// Plays every flood; each line is one of docs/results/robustness.md.
fn stands(scene: Scene) {
    let without = scene.play(None, held_bytes);
    let estimates = without.shares.last().map_or(0, std::collections::BTreeMap::len);
    let few = u32::try_from(estimates).expect("few networks");
    assert!(4 * few >= 3 * scene.networks, "{few} of {} networks have one", scene.networks);
    let mut failed = Vec::new();
    for &kind in Kind::VARIANTS {
        let with = scene.play(Some(Attack::Flood(kind)), held_bytes);
        let (furthest, mean, missing, of) = with.moved(&without);
        let Outcome { tuples, most_connections, counters, resident_mib, .. } = &with;
        println!(
            "| {} | {tuples} | {:+.2} % | {:.2} % | {missing} of {of} | {most_connections} | {} | {} | {resident_mib} |",
            kind.words(),
            100.0 * furthest,
            100.0 * mean,
            counters.connections_evicted,
            counters.established_evicted,
        );
        let full = u64::try_from(scene.limit.get()).expect("a limit");
        assert!(*tuples > 4 * full && counters.connections_evicted > 3 * full, "{kind:?}: the table is not full");
        assert!(*most_connections <= scene.limit.get(), "{kind:?}");
        // A quarter of blind acknowledgements lies within the largest window there is.
        let blind = if kind == Kind::BlindHandshake { tuples / 3 } else { 0 };
        if furthest.abs() > 0.02 || missing > 0 || counters.established_evicted > blind {
            failed.push(kind);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
