//! The names of the dialect.

/// Ends of names that say a unit.
pub(super) const UNITS: &[&str] =
    &["_ms", "_s", "_bytes", "_segments", "_bytes_per_s", "_bits_per_s", "_per_s", "_bps", "_percent", "_pct"];

/// Names of times, and ends of such names.
pub(super) const TIMES: &[&str] = &["at", "since", "until", "expires", "time", "first_time", "last_time"];
pub(super) const TIME_ENDS: &[&str] = &["_at", "_since", "_until", "_not_after", "_expires"];

/// Names that are not used, and those that are.
pub(super) const BANNED: &[(&str, &str)] = &[
    ("way", "method"),
    ("apply", "method"),
    ("lacks", "limitations"),
    ("network", "prefix"),
    ("at_unix_ms", "at"),
    ("subscribed_unix_ms", "subscribed_at"),
    ("made_unix_s", "made_at"),
    ("share", "wc_segments` or `wc_bytes"),
    ("lifetime", "lifetime_ms"),
    ("refreshed", "age_s"),
];

/// Lists of networks, and what names a network among other things.
pub(super) const NETWORKS: &[&str] = &["prefix", "routes_gone", "routes_left", "routes_removed", "subject"];

/// Names of addresses that are not where a connection goes to, and of that one.
pub(super) const ADDRESSES: &[&str] =
    &["destination", "addresses", "host", "remote", "next_hop", "src", "dst", "subject"];

/// A list in the document about it, and elsewhere how many there are.
pub(super) const LIST_OR_COUNT: &[&str] = &["agents", "networks", "samples", "services"];

/// Names with two types that stay.
pub(super) const TWO_TYPES: &[(&str, &str)] = &[
    ("gateway", "the number of a gateway that shares, the gateway in use in an agent's status"),
    ("status", "a word at /healthz, HTTP's code in an error (RFC 9457)"),
    ("window_samples", "how many in /v1/traffic, a column of replay"),
    ("limited_by", "counts in /v1/networks, a word in a column of replay"),
];

/// Objects whose names are reasons and events, and whose values are counts. Those of `…_by_reason` are too.
pub(super) const COUNTS_BY_NAME: &[&str] = &["counters", "decisions", "method_events", "sandbox"];

/// Numbers that name something.
pub(super) const IDENTIFIERS: &[&str] = &[
    "gateway",
    "group",
    "pid",
    "pids",
    "as_number",
    "port",
    "rank",
    "sequence",
    "next",
    "next_event",
    "next_offset",
    "networks_revision",
    "link_id",
    "mirror_group",
    "cgroup_id",
    "status",
    "connection",
];

/// Parts from 0 to 1.
pub(super) const RATIOS: &[&str] = &[
    "advised_part",
    "confidence",
    "connections_part",
    "followed",
    "in_loss",
    "largest_host_part",
    "loss",
    "out_loss",
    "out_part",
];

/// Counts.
pub(super) const COUNTS: &[&str] = &[
    "addresses_in_all",
    "adopted",
    "adoptions",
    "agents",
    "all",
    "announced",
    "announced_total",
    "app_limited",
    "application",
    "applied",
    "cells_dropped",
    "cells_known",
    "cells_received",
    "cells_taken",
    "connections",
    "connections_compared",
    "connections_ended",
    "connections_midstream",
    "connections_one_sided",
    "count",
    "dropped_backlog",
    "dropped_by_snapshot",
    "dropped_interface",
    "dropped_kernel",
    "dropped_queue",
    "estimates",
    "evicted",
    "expired",
    "failed",
    "failed_attempts",
    "first_flight_losses",
    "gaps",
    "gateway_changes",
    "hosts",
    "in_time",
    "lag_messages",
    "late",
    "lately",
    "log_lines_left_out",
    "loss_connections",
    "losses",
    "lower_bounds",
    "midstream",
    "min_connections",
    "min_samples",
    "missing",
    "networks",
    "networks_held",
    "networks_in_force",
    "networks_with_estimate",
    "networks_without_estimate",
    "no_room",
    "not_applied",
    "not_compared",
    "notices_dropped",
    "one_sided",
    "packets",
    "parallel",
    "parallel_at_samples",
    "received",
    "receiver",
    "receiver_limited",
    "refused",
    "renewals",
    "replicas",
    "replicas_current",
    "reported_hosts",
    "reported_samples",
    "resyncs",
    "retransmitted_packets",
    "retreats",
    "ring_freezes",
    "rounds",
    "rx_dropped",
    "rx_fifo",
    "rx_missed",
    "samples",
    "seats",
    "seats_elsewhere",
    "seen",
    "seen_by_both",
    "seen_total",
    "service_sizes",
    "services",
    "slow_start_end",
    "slow_start_loss",
    "snapshots",
    "started_on_advice",
    "starts_pushed",
    "subscriptions_adopted",
    "succeeded",
    "timeout",
    "tls_failures",
    "total",
    "total_packets",
    "total_retransmitted_packets",
    "transfers",
    "transfers_advised",
    "transfers_beyond_hosts",
    "transfers_control",
    "transfers_paused",
    "unfinished",
    "unknown_control",
    "unmatched",
    "unmeasured",
    "unordered",
    "unreadable",
    "untimed",
    "waiting_starts",
    "window",
    "window_samples",
    "withdrawn",
];

/// Columns of `replay` without a unit.
pub(super) const REPLAY_COLUMNS: &[&str] = &[
    "data_connections",
    "data_pkts",
    "dport",
    "duplicate_pkts",
    "holefill_pkts",
    "limited_application",
    "limited_receiver",
    "limited_window",
    "loss_events",
    "mss",
    "pkts",
    "retx_pkts",
    "rtt_seqack_n",
    "rtt_ts_n",
    "sport",
    "synfin_retx_pkts",
    "timeouts",
];
