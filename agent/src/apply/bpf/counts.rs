//! The programs' counters by name.

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::apply::ApplyCounts;

/// `enum count` of `bpf/tables.h`, in its order.
pub(super) const NAMES: [&str; 34] = [
    "started",
    "restarted",
    "control",
    "no_estimate",
    "expired",
    "refused",
    "no_rtt",
    "rtt_mismatch",
    "retreated",
    "mptcp",
    "own_congestion_control",
    "retransmitted_syn",
    "other_congestion_control",
    "not_set",
    "no_room",
    "kept_window",
    "event_lost",
    "clipped_peer_window",
    "clipped_budget",
    "stated_size",
    "first_flight_loss",
    "reconnected",
    "paused",
    "seen_accepted",
    "seen_opened",
    "no_opening",
    "loss_overdue",
    "other_namespace",
    "share_too_high",
    "share_too_low",
    "bbr_seeded",
    "bbr_too_high",
    "bbr_too_low",
    "bbr_handed_over",
];

/// Adds the programs' counters to `counts`; those that are zero are left out.
pub(super) fn add(table: &MapHandle, counts: &mut ApplyCounts) {
    for (place, name) in (0_u32..).zip(NAMES) {
        let Ok(Some(per_cpu)) = table.lookup_percpu(&place.to_ne_bytes(), MapFlags::ANY) else { continue };
        let number = |bytes: &Vec<u8>| bytes.first_chunk().map_or(0, |n| u64::from_ne_bytes(*n));
        let sum: u64 = per_cpu.iter().map(number).sum();
        if sum > 0 {
            *counts.entry(name).or_default() += sum;
        }
    }
}
