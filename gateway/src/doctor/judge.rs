//! From numbers to sentences. Pure.

use std::collections::BTreeMap;

use spand_core::counters::{Ignored, OtherProtocol};
use spand_proto::network::Network;
use spand_proto::operator::{Check, Verdict};
use spand_proto::units::counted;
use strum::VariantArray;

use super::tunnels;
use crate::config::Config;
use crate::other_protocols::Named;

/// Connections from which on a share of them says something.
const ENOUGH_CONNECTIONS: u64 = 5;
/// Segments from which on a share of them says something.
const ENOUGH_SEGMENTS: u64 = 100;
/// A snap length that holds every header with tags, a tunnel and all TCP options: the default.
const AMPLE_SNAP_LENGTH_BYTES: u32 = 256;

/// Whether the own prefixes are configured at all.
pub(super) fn internal_set(internal: &[Network]) -> Check {
    match internal.len() {
        0 => Check::warn(
            "internal_set",
            "traffic.internal is empty: both ends of every connection count as inside, which doubles the work and estimates \
             paths that lead in",
            "list your own prefixes there",
        ),
        count => Check::ok("internal_set", format!("traffic.internal lists {}", counted(count, "prefix", "prefixes"))),
    }
}

/// Everything that the traffic shows.
pub(super) fn traffic(seen: &Seen, config: &Config) -> Vec<Check> {
    let mut checks = vec![comes(seen, config)];
    if seen.packets > 0 {
        checks.push(tunnels::ignored(seen, config));
        checks.push(other_protocols(seen));
    }
    if seen.segments > 0 {
        checks.extend([dropped(seen), one_sided(seen), twice(seen), inside(seen, &config.traffic.internal)]);
        checks.push(cut(seen, config.capture.snap_length_bytes.get()));
        checks.extend(seen.merged.map(|merged| merged_packets(seen, merged)));
    }
    checks
}

pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Length of the window that estimates are made of, in seconds.
fn window_s(config: &Config) -> f64 {
    f64::from(config.estimate.buckets.get()) * config.estimate.bucket_s.get() as f64
}

/// A mirror port may be quiet for this many seconds. The dashboard uses the same bound.
const QUIET_S: f64 = 10.0;
/// The way out for a silent mirror port that is up. The dashboard and the alert give the same one.
const NOT_MIRRORED: &str = "check that the switch still mirrors to it, and capture.filter";

fn comes(seen: &Seen, config: &Config) -> Check {
    let span = seen.span_s;
    if seen.packets == 0 {
        let age = seen.newest_age_s.map_or(String::new(), |age| format!("; the newest came {age:.0} s ago"));
        if seen.mirrors.is_empty() {
            let found = format!("no packets in {span:.0} s{age}: the host is quiet, or capture.filter takes none");
            return Check::unknown("traffic", found, "run the doctor again while there is traffic");
        }
        let mirrors = seen.mirrors.join(", ");
        let found = format!("no packets on {mirrors} in {span:.0} s, though the interface is up{age}");
        return match seen.newest_age_s {
            Some(age) if age <= QUIET_S => Check::ok("traffic", found),
            // The estimates of the window are still in force.
            Some(age) if age <= window_s(config) => Check::warn("traffic", found, NOT_MIRRORED),
            _ => Check::fail("traffic", found, NOT_MIRRORED),
        };
    }
    if seen.segments == 0 {
        let reason =
            Ignored::VARIANTS.iter().max_by_key(|reason| seen.ignored(reason.name())).map(|reason| reason.name());
        return Check::fail(
            "traffic",
            format!("{} packets in {span:.0} s, none of them TCP (mostly: {})", seen.packets, reason.unwrap_or("-")),
            "check which ports or VLANs are mirrored, and traffic.tunnel if the mirror wraps packets",
        );
    }
    Check::ok(
        "traffic",
        format!("{} packets in {span:.0} s, {:.0} % of them TCP", seen.packets, percent(seen.segments, seen.packets)),
    )
}

/// What comes in place of TCP.
fn other_protocols(seen: &Seen) -> Check {
    let ignored = |reason: Ignored| seen.ignored(reason.name());
    let named = Named::of(seen.packets, ignored, seen.other_protocols.iter().copied());
    if named.is_empty() {
        return Check::ok("other_protocols", "no packets of other well-known protocols in place of TCP");
    }
    let found = named.iter().map(Named::to_string).collect::<Vec<_>>().join("; ");
    let to_do: Vec<_> =
        named.iter().filter_map(|named| Some(format!("{}: {}", named.protocol.name, named.advice()?))).collect();
    if to_do.is_empty() {
        Check::ok("other_protocols", found)
    } else {
        Check::warn("other_protocols", found, to_do.join("; "))
    }
}

fn dropped(seen: &Seen) -> Check {
    let share = percent(seen.dropped, seen.packets + seen.dropped);
    if seen.dropped == 0 {
        return Check::ok("drops", "no packets were dropped");
    }
    let verdict = if share >= 1.0 { Verdict::Fail } else { Verdict::Warn };
    let found = format!("{} packets ({share:.2} %) were dropped before the engine", seen.dropped);
    Check::to_do("drops", verdict, found, "raise capture.buffer_mib and net.core.netdev_max_backlog, or mirror less")
}

fn one_sided(seen: &Seen) -> Check {
    if seen.connections < ENOUGH_CONNECTIONS {
        let found = format!("too few connections ({}) to determine whether both directions are seen", seen.connections);
        return Check::unknown("both_directions", found, "run the doctor for longer (--seconds), or at a busier time");
    }
    let share = percent(seen.one_sided, seen.connections);
    let found = format!("only one direction was seen of {} of {} connections", seen.one_sided, seen.connections);
    let verdict = match share {
        share if share >= 50.0 => Verdict::Fail,
        share if share >= 10.0 => Verdict::Warn,
        _ => return Check::ok("both_directions", found),
    };
    let to_do = "mirror both directions (rx and tx) of the uplink; where they take different links, mirror all of them and \
                 name all interfaces in capture.interfaces";
    Check::to_do("both_directions", verdict, found, to_do)
}

fn twice(seen: &Seen) -> Check {
    let copies = seen.ignored(Ignored::DuplicateCopy.name());
    let share = percent(copies, seen.segments);
    let found = format!("{share:.1} % of segments were captured twice");
    if share < 5.0 {
        return Check::ok("copies", found);
    }
    let to_do = "mirror each packet at one place of its path: one port, or one direction of every port, not both directions of all";
    Check::warn("copies", found, to_do)
}

fn inside(seen: &Seen, internal: &[Network]) -> Check {
    if internal.is_empty() {
        let most = seen.senders.iter().max_by_key(|(_, connections)| **connections);
        return match most {
            Some((network, connections)) => Check::warn(
                "internal_prefixes",
                format!("traffic.internal is empty; most connections seen ({connections}) have an end in {network}"),
                "list the prefixes in traffic.internal that are yours",
            ),
            None => Check::warn("internal_prefixes", "traffic.internal is empty", "list your own prefixes there"),
        };
    }
    if seen.segments < ENOUGH_SEGMENTS {
        let found = format!("too few segments ({})", seen.segments);
        return Check::unknown(
            "internal_prefixes",
            found,
            "run the doctor for longer (--seconds), or at a busier time",
        );
    }
    let share = percent(seen.outside, seen.segments);
    let found = format!("{share:.1} % of segments have neither end inside traffic.internal");
    let verdict = match share {
        share if share >= 50.0 => Verdict::Fail,
        share if share >= 10.0 => Verdict::Warn,
        _ => return Check::ok("internal_prefixes", found),
    };
    let strangers = seen.senders.iter().filter(|(network, _)| !covers(internal, **network));
    let most = strangers.max_by_key(|(_, connections)| **connections);
    let most = most.map_or_else(String::new, |(network, _)| format!(" (most often seen: {network})"));
    let to_do = format!("add the missing prefix{most}, or place the tap before address translation");
    Check::to_do("internal_prefixes", verdict, found, to_do)
}

fn covers(internal: &[Network], network: Network) -> bool {
    internal.iter().any(|prefix| prefix.prefix().contains(&network.prefix()))
}

fn cut(seen: &Seen, snap_length_bytes: u32) -> Check {
    let cut = seen.ignored(Ignored::Truncated.name());
    let share = percent(cut, seen.packets);
    if cut == 0 || share < 0.1 {
        return Check::ok(
            "snap_length",
            format!("headers are whole at capture.snap_length_bytes = {snap_length_bytes}"),
        );
    }
    let found = format!("{share:.1} % of packets are cut within their headers");
    let to_do = if snap_length_bytes < AMPLE_SNAP_LENGTH_BYTES {
        format!("raise capture.snap_length_bytes from {snap_length_bytes} to {AMPLE_SNAP_LENGTH_BYTES}")
    } else {
        "the mirror itself cuts packets: turn its slicing or truncation off".to_owned()
    };
    Check::fail("snap_length", found, to_do)
}

fn merged_packets(seen: &Seen, merged: u64) -> Check {
    let share = percent(merged, seen.segments);
    if share < 1.0 {
        return Check::ok("merged_packets", format!("{share:.1} % of packets are longer than the interface's MTU"));
    }
    Check::warn(
        "merged_packets",
        format!(
            "{share:.1} % of packets are longer than the interface's MTU: they are merged before they are captured"
        ),
        "turn the offloads off that merge: on this machine `ethtool -K INTERFACE gro off lro off`, on a mirrored host's \
         virtual interface `tso off gso off`",
    )
}

// What was seen of the traffic in a while, wherever the numbers come from.

/// Numbers of a while of traffic.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    /// How long the while was, in seconds.
    pub(super) span_s: f64,
    /// Packets that came.
    pub(super) packets: u64,
    /// Age of the newest packet in seconds; `None` where no gateway runs, or where it received none.
    pub(super) newest_age_s: Option<f64>,
    /// Interfaces without an address of their own, as a mirror port.
    pub(super) mirrors: Vec<String>,
    /// Packets that were lost before they could be looked at, wherever.
    pub(super) dropped: u64,
    /// TCP segments among what came.
    pub(super) segments: u64,
    /// Frames and segments that were not used, by the stable names of the engine's reasons.
    pub(super) ignored: BTreeMap<String, u64>,
    /// Frames without IP or TCP by the well-known protocol that they held.
    pub(super) other_protocols: Vec<(&'static OtherProtocol, u64)>,
    /// Connections that say whether both directions are seen.
    pub(super) connections: u64,
    /// Of them, those that showed one direction.
    pub(super) one_sided: u64,
    /// Segments of connections of which neither end lies inside.
    pub(super) outside: u64,
    /// Packets longer than the interface's longest, merged by someone; `None` where lengths were not looked at.
    pub(super) merged: Option<u64>,
    /// Networks of senders, by connections; empty where they were not looked at.
    pub(super) senders: BTreeMap<Network, u64>,
}

impl Seen {
    /// How often something was not used for this reason.
    pub(super) fn ignored(&self, reason: &str) -> u64 {
        self.ignored.get(reason).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use spand_core::counters::{OTHER_PROTOCOLS, ProtocolNumber};

    use super::*;

    fn seen() -> Seen {
        let mirrors = vec!["mirror0".to_owned()];
        Seen {
            span_s: 5.0,
            packets: 1_000,
            segments: 900,
            connections: 100,
            merged: Some(0),
            mirrors,
            ..Seen::default()
        }
    }

    fn verdicts(seen: &Seen, text: &str) -> Vec<(&'static str, Verdict)> {
        let config = Config::parse(text, std::path::Path::new("x")).unwrap();
        traffic(seen, &config).into_iter().map(|check| (check.name, check.verdict)).collect()
    }

    const INSIDE: &str = "[traffic]\ninternal = [\"10.0.0.0/8\"]";

    #[test]
    fn sound_traffic_has_no_fault() {
        let all = verdicts(&seen(), INSIDE);
        assert_eq!(all.len(), 9);
        assert!(all.iter().all(|(_, verdict)| *verdict == Verdict::Ok), "{all:?}");
    }

    #[test]
    fn each_fault_has_its_check() {
        let ignored = |reason: Ignored, count| [(reason.name().to_owned(), count)].into();
        let of_port = |port| {
            let one = OTHER_PROTOCOLS.iter().find(|one| one.number == ProtocolNumber::UdpPort(port)).unwrap();
            Seen { ignored: ignored(Ignored::NotTcp, 100), other_protocols: vec![(one, 60)], ..seen() }
        };
        let quiet = |newest_age_s| Seen { packets: 0, segments: 0, newest_age_s, ..seen() };
        let cases = [
            (quiet(None), INSIDE, "traffic", Verdict::Fail),
            (quiet(Some(9.0)), INSIDE, "traffic", Verdict::Ok),
            (quiet(Some(11.0)), INSIDE, "traffic", Verdict::Warn),
            (quiet(Some(299.0)), INSIDE, "traffic", Verdict::Warn),
            (quiet(Some(301.0)), INSIDE, "traffic", Verdict::Fail),
            (Seen { mirrors: Vec::new(), ..quiet(Some(301.0)) }, INSIDE, "traffic", Verdict::Unknown),
            (Seen { mirrors: Vec::new(), ..quiet(None) }, INSIDE, "traffic", Verdict::Unknown),
            (Seen { segments: 0, ..seen() }, INSIDE, "traffic", Verdict::Fail),
            (Seen { dropped: 3, ..seen() }, INSIDE, "drops", Verdict::Warn),
            (Seen { dropped: 300, ..seen() }, INSIDE, "drops", Verdict::Fail),
            (Seen { one_sided: 9, ..seen() }, INSIDE, "both_directions", Verdict::Ok),
            (Seen { one_sided: 20, ..seen() }, INSIDE, "both_directions", Verdict::Warn),
            (Seen { one_sided: 99, ..seen() }, INSIDE, "both_directions", Verdict::Fail),
            (Seen { connections: 2, ..seen() }, INSIDE, "both_directions", Verdict::Unknown),
            (Seen { ignored: ignored(Ignored::DuplicateCopy, 400), ..seen() }, INSIDE, "copies", Verdict::Warn),
            (of_port(8472), INSIDE, "other_protocols", Verdict::Warn),
            (of_port(443), INSIDE, "other_protocols", Verdict::Ok),
            (Seen { outside: 200, ..seen() }, INSIDE, "internal_prefixes", Verdict::Warn),
            (Seen { outside: 900, ..seen() }, INSIDE, "internal_prefixes", Verdict::Fail),
            (seen(), "", "internal_prefixes", Verdict::Warn),
            (Seen { ignored: ignored(Ignored::Truncated, 50), ..seen() }, INSIDE, "snap_length", Verdict::Fail),
            (Seen { merged: Some(90), ..seen() }, INSIDE, "merged_packets", Verdict::Warn),
            (
                Seen { segments: 0, ignored: ignored(Ignored::TunnelVxlanNotConfigured, 900), ..seen() },
                INSIDE,
                "tunnels",
                Verdict::Warn,
            ),
        ];
        for (seen, text, name, verdict) in cases {
            let all = verdicts(&seen, text);
            assert!(all.contains(&(name, verdict)), "{name} {verdict:?}: {all:?} of {seen:?}");
        }
    }

    #[test]
    fn what_to_do_names_the_prefix_and_the_key() {
        let senders = [("10.1.1.0/24".parse().unwrap(), 90), ("203.0.113.0/24".parse().unwrap(), 40)].into();
        let lacking = Seen { outside: 500, senders, ..seen() };
        let config = Config::parse(INSIDE, std::path::Path::new("x")).unwrap();
        let check = inside(&lacking, &config.traffic.internal);
        assert!(check.to_do.as_deref().unwrap().contains("203.0.113.0/24"), "{check:?}");
        let short = Seen { ignored: [("truncated".to_owned(), 50)].into(), ..seen() };
        assert!(cut(&short, 118).to_do.unwrap().contains("from 118 to 256"));
        assert!(cut(&short, 256).to_do.unwrap().contains("the mirror itself"));
    }
}
