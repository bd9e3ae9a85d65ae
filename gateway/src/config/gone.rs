//! Keys of earlier releases that are refused, each with what takes its place.

use toml::Table;

/// Section, key, and what holds without it.
const GONE: &[(&str, &str, &str)] = &[
    ("capture", "block_kib", "blocks of 128 KiB"),
    ("capture", "immediate", "packets are always handed over at once"),
    ("capture", "promiscuous", "packets to other machines are always taken"),
    ("estimate", "refresh_s", "a fifteenth of estimate.max_age_s"),
    ("limits", "events", "65,536"),
    ("limits", "fragmented_packets", "fragments of IP packets are counted and not reassembled"),
    ("limits", "idle_other_s", "120 s"),
    ("limits", "idle_unacknowledged_s", "60 s"),
    ("limits", "live_senders", "64 of a network"),
    ("limits", "outstanding_segments", "16,384 of a sender, within limits.segment_memory_mib"),
    ("limits", "sequence_ranges", "1,024 of a sender, within limits.segment_memory_mib"),
    ("limits", "services", "8,192"),
    ("publish", "addresses", "1,024 of a subscriber"),
    ("publish", "backlog_batches", "256"),
    ("publish", "destinations", "2,000,000"),
    ("publish", "destinations_per_host", "4,096"),
    ("publish", "gather_ms", "20 ms"),
    ("publish", "leased_networks", "65,536"),
    ("publish", "leases", "1,000,000"),
    ("publish", "readvertise_s", "a third of estimate.max_age_s"),
    ("publish", "remembered_networks", "16,384"),
    ("publish", "retell_s", "a third of estimate.max_age_s"),
    ("publish", "subscribers_per_address", "4"),
    ("publish", "talked_networks", "4,096"),
    ("publish", "talks", "2,000,000"),
    ("publish", "waiting_networks", "2,000,000"),
    ("publish", "waiting_starts", "1,024 of a subscriber"),
    ("api", "http_connections", "256"),
    ("api", "live_streams", "32"),
    ("api", "live_streams_per_peer", "8"),
    ("api", "reported_connections_per_s", "10,000 of a peer"),
    ("api", "reporting_hosts", "10,000"),
    ("api", "request_kib", "256 KiB"),
    ("api", "request_timeout_s", "10 s"),
    ("api", "streams_per_peer", "128"),
    ("api", "subscriptions_per_s", "10 of a client"),
    ("store", "save_interval_ms", "one second"),
    ("store", "waiting_mib", "256 MiB"),
];

/// Refuses a configuration that has such keys, in one sentence that names all of them.
pub(super) fn refuse(text: &str) -> Result<(), String> {
    let Ok(table) = text.parse::<Table>() else { return Ok(()) };
    let has = |section: &str, key: &str| {
        table.get(section).and_then(toml::Value::as_table).is_some_and(|section| section.contains_key(key))
    };
    let gone = GONE.iter().filter(|(section, key, _)| has(section, key));
    let found: Vec<String> = gone.map(|(section, key, instead)| format!("{section}.{key} ({instead})")).collect();
    if found.is_empty() { Ok(()) } else { Err(format!("remove what is no option any more: {}", found.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_that_are_gone_are_named_at_once_with_what_holds_instead() {
        let message = refuse("[publish]\ngather_ms = 1\n[limits]\nevents = 7\nconnections = 9").unwrap_err();
        assert_eq!(message, "remove what is no option any more: limits.events (65,536), publish.gather_ms (20 ms)");
        assert_eq!(refuse("[limits]\nconnections = 9"), Ok(()));
        assert_eq!(refuse("[limits"), Ok(()), "what cannot be read is refused by its reader");
    }
}
