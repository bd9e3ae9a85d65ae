use std::num::NonZeroUsize;

use spand_core::counters::Ignored;
use spand_core::memory::FEW_BYTES;
use spand_tests::hostile::{Attack, Hoard, Outcome, Scene};
use spand_tests::memory::held_bytes;

/// A hundredth of the full size.
const SMALL: Scene = Scene {
    seconds: 40,
    connections: 100,
    networks: 8,
    limit: NonZeroUsize::new(10_000).unwrap(),
    tuples_per_second: 0,
    segment_memory_bytes: NonZeroUsize::new((320 << 20) / 100).unwrap(),
};

/// The default limits.
const FULL: Scene = Scene {
    seconds: 60,
    connections: 2_000,
    networks: 50,
    limit: NonZeroUsize::new(1_000_000).unwrap(),
    tuples_per_second: 0,
    segment_memory_bytes: NonZeroUsize::new(320 << 20).unwrap(),
};

/// Connections and segments of each hoard at a hundredth of its size, and whether the first segment is acknowledged.
const HOARDS: [(u32, u32, bool); 4] =
    [(1_000, 1_000, false), (1_000, 1_000, true), (8_000, 20, false), (10_000, 20, false)];

#[test]
fn segments_that_nobody_acknowledges_stay_within_their_memory_and_move_no_estimate() {
    stands(SMALL, 1, 20);
}

#[test]
#[ignore = "minutes and gigabytes: make hostile"]
fn a_hundred_million_unacknowledged_segments_stay_within_their_memory_and_move_no_estimate() {
    stands(FULL, 100, 40);
}

/// Plays every hoard; each line is one of docs/results/robustness.md.
fn stands(scene: Scene, times: u32, seconds: u64) {
    let without = scene.play(None, held_bytes);
    let estimates = without.shares.last().map_or(0, std::collections::BTreeMap::len);
    assert_eq!(u32::try_from(estimates).expect("few networks"), scene.networks, "each network has one");
    let mut failed = Vec::new();
    for (connections, segments, acknowledged) in HOARDS {
        let hoard = Hoard { connections: connections * times, segments, acknowledged, seconds };
        let with = scene.play(Some(Attack::Hoard(hoard)), held_bytes);
        let (furthest, mean, missing, of) = with.moved(&without);
        let Outcome { most_connections, most_segment_bytes, held_bytes, memory, counters, .. } = &with;
        let gave = counters.ignored(Ignored::SegmentMemory);
        println!(
            "| {} x {segments}, {} | {:+.2} % | {:.2} % | {missing} of {of} | {most_connections} | {gave} | {} | {} | {} | {} |",
            hoard.connections,
            if acknowledged { "the first acknowledged" } else { "none acknowledged" },
            100.0 * furthest,
            100.0 * mean,
            counters.connections_evicted,
            most_segment_bytes >> 10,
            memory.senders.used_bytes >> 10,
            held_bytes >> 10,
        );
        let few = scene.limit.get() * usize::try_from(FEW_BYTES).expect("few");
        let most = scene.segment_memory_bytes.get().max(few);
        assert!(*most_segment_bytes <= most, "{hoard:?}: {most_segment_bytes} of {most} bytes");
        // Where there are more than the table has room for, they displace each other before they hold much.
        let tried = gave + counters.connections_evicted;
        assert!(tried > u64::from(hoard.connections), "{hoard:?}: {tried} gave room or went: no limit was tried");
        // The accounts are what is held: beside it stand the tables' places, and what does not grow.
        let accounted = memory.segments.used_bytes + memory.senders.used_bytes + memory.networks.used_bytes;
        let accounted = u64::try_from(accounted).expect("bytes");
        let places = u64::try_from(scene.limit.get() * 400 + with.networks * 800 + (8 << 20)).expect("bytes");
        assert!((accounted..accounted + places).contains(held_bytes), "{hoard:?}: {accounted} of {held_bytes} bytes");
        if furthest.abs() > 0.02 || missing > 0 {
            failed.push(hoard);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
