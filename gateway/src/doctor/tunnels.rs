//! Tunnels: those that are seen and not looked into, and what to write where they are one's own. Pure.

use spand_core::types::TunnelKind;
use spand_proto::operator::{Check, Verdict};
use strum::VariantArray;

use super::judge::{Seen, percent};
use crate::config::{Config, Traffic, proposed, proposed_line};

/// Packets in tunnels that are not looked into are worth a look from this share on; some come from the Internet by
/// themselves.
const WORTH_A_LOOK_PERCENT: f64 = 1.0;

/// Whether the configured endpoints are those of few.
pub(super) fn endpoints(traffic: &Traffic) -> Vec<Check> {
    let wide = traffic.wide_tunnels();
    if wide.is_empty() && !traffic.tunnel.is_empty() {
        let found = format!("traffic.tunnel names the endpoints of every tunnel ({})", traffic.tunnel.len());
        return vec![Check::ok("tunnel_endpoints", found)];
    }
    let to_do = "list only the prefixes of your own mirror's or fabric's endpoints";
    wide.into_iter().map(|found| Check::warn("tunnel_endpoints", found, to_do)).collect()
}

/// Tunnels that were seen and not looked into.
pub(super) fn ignored(seen: &Seen, config: &Config) -> Check {
    let not_configured = counted(|kind| seen.ignored(kind.not_configured().name()));
    let unknown_endpoint = counted(|kind| seen.ignored(kind.unknown_endpoint().name()));
    if not_configured.is_empty() && unknown_endpoint.is_empty() {
        return Check::ok("tunnels", "no packet in a tunnel was ignored");
    }
    let mut found = Vec::new();
    let mut to_do = Vec::new();
    if !not_configured.is_empty() {
        found.push(format!("in tunnels that are not configured: {}", listed(seen, &not_configured)));
        let kinds = not_configured.iter().map(|(kind, _)| *kind);
        to_do.push(if config.traffic.tunnel.is_empty() {
            format!("write {} in [traffic]", proposed_line(kinds))
        } else {
            let entries: Vec<String> = kinds.map(proposed).collect();
            format!("add {} to traffic.tunnel", entries.join(", "))
        });
    }
    if !unknown_endpoint.is_empty() {
        found.push(format!("in tunnels between unknown endpoints: {}", listed(seen, &unknown_endpoint)));
        let kinds: Vec<&str> = unknown_endpoint.iter().map(|(kind, _)| kind.name()).collect();
        to_do.push(format!("add the missing prefixes to the endpoints of {} in traffic.tunnel", kinds.join(", ")));
    }
    let packets: u64 = not_configured.iter().chain(&unknown_endpoint).map(|(_, packets)| packets).sum();
    let worth_a_look = percent(packets, seen.packets) >= WORTH_A_LOOK_PERCENT;
    let verdict = if worth_a_look { Verdict::Warn } else { Verdict::Ok };
    let found = format!("ignored packets {}", found.join("; "));
    let to_do = format!(
        "if your own mirror or fabric wraps packets so, {}, with the prefixes of its endpoints (an endpoint can write any \
         connection); else nothing",
        to_do.join("; and ")
    );
    Check::to_do("tunnels", verdict, found, to_do)
}

fn counted(count: impl Fn(TunnelKind) -> u64) -> Vec<(TunnelKind, u64)> {
    TunnelKind::VARIANTS.iter().map(|kind| (*kind, count(*kind))).filter(|(_, count)| *count > 0).collect()
}

fn listed(seen: &Seen, kinds: &[(TunnelKind, u64)]) -> String {
    let share = |packets| percent(packets, seen.packets);
    let each = kinds.iter().map(|(kind, packets)| format!("{} {packets} ({:.1} %)", kind.name(), share(*packets)));
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, std::path::Path::new("x")).unwrap()
    }

    fn seen(ignored: &[(&str, u64)]) -> Seen {
        let ignored = ignored.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        Seen { span_s: 5.0, packets: 1_000, segments: 900, ignored, ..Seen::default() }
    }

    const VXLAN: &str = "[[traffic.tunnel]]\nkind = \"vxlan\"\nendpoints = [\"192.0.2.0/24\"]";

    #[test]
    fn ignored_tunnels_are_named_by_kind_with_what_to_write() {
        assert_eq!(ignored(&seen(&[("not_tcp", 500)]), &Config::default()).verdict, Verdict::Ok);
        let check = ignored(
            &seen(&[("tunnel_vxlan_not_configured", 40), ("tunnel_ip_in_ip_not_configured", 2)]),
            &Config::default(),
        );
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.found.contains("vxlan 40 (4.0 %), ip_in_ip 2 (0.2 %)"), "{check:?}");
        let to_do = check.to_do.unwrap();
        let line = "tunnel = [{ kind = \"vxlan\", endpoints = [\"PREFIX\"] }, { kind = \"ip_in_ip\", endpoints = [\"PREFIX\"] }]";
        assert!(to_do.contains(line) && to_do.contains("your own mirror or fabric"), "{to_do}");
        config(&format!("[traffic]\n{}", line.replace("PREFIX", "192.0.2.0/24")));
        // A few come from the Internet, whatever one does.
        let few = ignored(&seen(&[("tunnel_gre_not_configured", 9)]), &Config::default());
        assert_eq!(few.verdict, Verdict::Ok);
        assert!(few.found.contains("gre 9 (0.9 %)") && few.to_do.is_some(), "{few:?}");
    }

    #[test]
    fn endpoints_that_are_missing_or_too_wide_are_named() {
        let seen = seen(&[("tunnel_vxlan_unknown_endpoint", 300), ("tunnel_gtp_not_configured", 20)]);
        let check = ignored(&seen, &config(VXLAN));
        let to_do = check.to_do.as_deref().unwrap();
        assert!(check.found.contains("between unknown endpoints: vxlan 300 (30.0 %)"), "{check:?}");
        assert!(to_do.contains("the missing prefixes to the endpoints of vxlan"), "{check:?}");
        assert!(to_do.contains("add { kind = \"gtp\", endpoints = [\"PREFIX\"] } to traffic.tunnel"), "{check:?}");
        assert!(endpoints(&Config::default().traffic).is_empty());
        assert_eq!(endpoints(&config(VXLAN).traffic)[0].verdict, Verdict::Ok);
        let wide = endpoints(&config(&VXLAN.replace("192.0.2.0/24", "0.0.0.0/0")).traffic);
        assert_eq!((wide.len(), wide[0].verdict), (1, Verdict::Warn), "{wide:?}");
    }
}
