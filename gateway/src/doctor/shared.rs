//! What a gateway that runs shares with others. Pure.

use serde::Deserialize;
use spand_proto::operator::{Check, Verdict};

use super::gateways;

/// A clock that is off by more than this is worth a warning, as in the gateway's log.
const CLOCK_MS: f64 = 2_000.0;

/// A copy is worth a warning if its source was silent for longer than this, or if it lacks more messages than this.
const COPY_S: f64 = 30.0;
const COPY_MESSAGES: u64 = 1_000;

/// Of `/v1/share`, what is judged.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Shared {
    configured: bool,
    link: Link,
    site: String,
    streams: Vec<Stream>,
    members: Vec<Member>,
    agents: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Link {
    state: String,
    since: Option<String>,
    reason: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Stream {
    site: String,
    fault: Option<String>,
    replicas: Option<usize>,
    replicas_current: Option<usize>,
    lag_messages: Option<u64>,
    lag_s: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Member {
    pub(super) gateway: u16,
    pub(super) name: String,
    pub(super) connections_compared: u64,
    pub(super) seen_by_both: u64,
    pub(super) duplicate: bool,
    pub(super) clock_offset_ms: f64,
    pub(super) incompatible: Option<String>,
    pub(super) seats: usize,
}

/// Everything about sharing; nothing where neither the configuration nor the gateway shares. `subscribers`: the limit of this gateway's.
pub(super) fn judge(shared: &Shared, is_configured: bool, subscribers: usize) -> Vec<Check> {
    match (shared.configured, is_configured) {
        (false, false) => Vec::new(),
        (false, true) => vec![Check::warn(
            "share_link",
            "the configuration names share.servers, but the gateway that runs shares nothing",
            "restart it",
        )],
        (true, _) => {
            let mut checks = vec![link(&shared.link)];
            checks.extend(copies(shared));
            checks.extend(members(shared));
            checks.extend(clocks(&shared.members));
            checks.extend(room(shared, subscribers));
            checks.extend(gateways::judge(&shared.members));
            checks
        }
    }
}

fn link(link: &Link) -> Check {
    let since = link.since.as_ref().map_or_else(String::new, |since| format!(" since {since}"));
    if link.state == "up" {
        return Check::ok("share_link", format!("messages to and from other gateways get through{since}"));
    }
    if let ("degraded", Some(reason)) = (link.state.as_str(), &link.reason) {
        return Check::warn(
            "share_link",
            format!("messages get through, but nothing is kept for gateways that are away{since}: {reason}"),
            "where it stays so, see by `nats stream info` that most of the stream's servers run; what is not kept comes again afterwards",
        );
    }
    let found = match &link.reason {
        Some(reason) => format!("nothing gets through to other gateways{since}: {reason}"),
        None => format!("not connected with the servers of share.servers{since}"),
    };
    let to_do = "see that a server of share.servers runs, is reached from here and takes share.user or share.credentials; meanwhile this gateway goes on with \
                 what it knows";
    Check::warn("share_link", found, to_do)
}

/// Whether the site's stream and the copies of other sites' stand. Where the link is down nothing is known of them.
fn copies(shared: &Shared) -> Option<Check> {
    let (mut found, mut to_do) = (Vec::new(), Vec::new());
    for stream in &shared.streams {
        let (is, way_out) = copy(stream, stream.site == shared.site);
        found.push(is);
        to_do.extend(way_out);
    }
    to_do.sort_unstable();
    to_do.dedup();
    match (found.is_empty(), to_do.is_empty()) {
        (true, _) => None,
        (_, true) => Some(Check::ok("share_copies", found.join("; "))),
        _ => Some(Check::to_do("share_copies", Verdict::Warn, found.join("; "), to_do.join("; "))),
    }
}

/// How a stream is, and the way out where it should be otherwise.
fn copy(stream: &Stream, is_own: bool) -> (String, Option<&'static str>) {
    let Stream { site, fault, replicas, replicas_current, lag_messages, lag_s } = stream;
    let name = format!("the {} of site {site}", if is_own { "stream" } else { "copy" });
    if fault.as_deref() == Some("missing") {
        let to_do = "make each missing stream or copy once (docs/operate/share.md): a gateway that starts while a site is away has nothing of what was seen there";
        return (format!("{name} is missing"), Some(to_do));
    }
    let (Some(replicas), Some(current)) = (replicas, replicas_current) else {
        let to_do =
            "see that two of this site's three servers run, and allow $JS.API.STREAM.INFO of each copy in users.conf";
        return (format!("no server answers about {name}"), Some(to_do));
    };
    let is = format!("{name} has {current} of {replicas} replicas");
    let few = (current < replicas).then_some("see that all servers of this site run");
    let Some(messages) = lag_messages else { return (is, few) };
    let got = lag_s
        .map_or_else(|| "has received nothing yet".to_owned(), |lag| format!("received its newest {lag:.1} s ago"));
    let is_late = *messages > COPY_MESSAGES || lag_s.is_none_or(|lag| lag > COPY_S);
    let late = is_late.then_some(
        "see that the other site's servers run and that the leaf link is up; where they are, make the copy again (docs/operate/share.md)",
    );
    (format!("{is}, lacks {messages} messages and {got}"), late.or(few))
}

/// Who is heard, and whose cells do not count. Where nothing gets through nobody can be heard, which the link says already.
fn members(shared: &Shared) -> Option<Check> {
    let mut faults = Vec::new();
    let mut to_do = Vec::new();
    for member in &shared.members {
        let Some(reason) = &member.incompatible else { continue };
        let (fault, way_out) = fault(reason);
        faults.push(format!("cells of {} do not count: {fault}", named(member)));
        to_do.push(way_out);
    }
    to_do.sort_unstable();
    to_do.dedup();
    match (shared.members.len(), faults.as_slice()) {
        (0, []) if !["up", "degraded"].contains(&shared.link.state.as_str()) => None,
        (0, []) => Some(Check::warn(
            "share_members",
            "no other gateway is heard",
            "start another one with the same share.cluster and share.secret, or leave share.servers out",
        )),
        (1, []) => Some(Check::ok("share_members", "cells of 1 other gateway count")),
        (count, []) => Some(Check::ok("share_members", format!("cells of {count} other gateways count"))),
        (_, faults) => Some(Check::to_do("share_members", Verdict::Warn, faults.join("; "), to_do.join("; "))),
    }
}

/// What is wrong, and the way out, by the stable name of the reason.
fn fault(reason: &str) -> (&str, &'static str) {
    match reason {
        "same_number" => ("it has this gateway's number", "give each gateway of the cluster its own share.gateway"),
        "bucket_length" => ("its buckets have another length", "set estimate.bucket_s alike on all gateways"),
        "prefix_list" => {
            ("its list of prefixes makes other networks", "give all gateways the same traffic.prefix_list")
        }
        "clock" => ("its clock is off by more than a bucket", "synchronise the clocks of both gateways"),
        other => (other, "see the log of this gateway"),
    }
}

fn clocks(members: &[Member]) -> Option<Check> {
    if members.is_empty() {
        return None;
    }
    let off = members.iter().filter(|member| member.clock_offset_ms.abs() > CLOCK_MS);
    let off: Vec<_> = off
        .map(|member| {
            let direction = if member.clock_offset_ms < 0.0 { "behind" } else { "ahead of" };
            let seconds = member.clock_offset_ms.abs() / 1_000.0;
            format!("the clock of {} is {seconds:.1} s {direction} this one's", named(member))
        })
        .collect();
    if off.is_empty() {
        return Some(Check::ok("share_clocks", "the clocks of all gateways are within 2 s of this one's"));
    }
    let to_do = "synchronise the clocks of both gateways; beyond a bucket (estimate.bucket_s) cells are refused";
    Some(Check::warn("share_clocks", off.join("; "), to_do))
}

/// Whether the hosts of the largest other gateway find room here when it dies. A host counts once for each of its addresses, and of more
/// addresses than a gateway remembers none are counted.
fn room(shared: &Shared, subscribers: usize) -> Option<Check> {
    let largest = shared.members.iter().max_by_key(|member| member.seats)?;
    let needed = shared.agents.saturating_add(largest.seats);
    let agents = match shared.agents {
        1 => "1 agent is".to_owned(),
        count => format!("{count} agents are"),
    };
    let found = format!(
        "{agents} subscribed here, and {} addresses of hosts at {}; publish.subscribers is {subscribers}",
        largest.seats,
        named(largest)
    );
    if needed <= subscribers {
        return Some(Check::ok("share_room", found));
    }
    let to_do = format!(
        "raise publish.subscribers to {needed} (spand-gateway check-config says what memory that takes), so that hosts find room when \
         that gateway goes away; fewer are enough where hosts have several addresses, or other gateways have room"
    );
    Some(Check::to_do("share_room", Verdict::Warn, found, to_do))
}

pub(super) fn named(member: &Member) -> String {
    format!("gateway {} ({})", member.gateway, member.name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use spand_share::Incompatible;
    use strum::VariantArray;

    use super::*;

    /// Two gateways that share soundly, with what is named changed.
    fn with(change: &Value, members: &[Value]) -> Shared {
        let mut document = json!({
            "configured": true, "link": { "state": "up", "since": "2027-01-15T08:00:00.000Z", "reason": null },
            "messages_refused_by_reason": {}, "agents": 400, "site": "a",
            "streams": [stream("a", &json!({})), stream("b", &json!({ "lag_messages": 3, "lag_s": 0.4 }))]
        });
        let members: Vec<Value> = (2_u16..)
            .zip(members)
            .map(|(gateway, change)| {
                let mut member = json!({
                    "gateway": gateway, "name": "edge", "clock_offset_ms": -3.0, "incompatible": null, "seats": 600
                });
                member.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
                member
            })
            .collect();
        let fields = document.as_object_mut().unwrap();
        fields.insert("members".to_owned(), members.into());
        fields.extend(change.as_object().unwrap().clone());
        serde_json::from_value(document).unwrap()
    }

    /// A sound one, with what is named changed.
    fn stream(site: &str, change: &Value) -> Value {
        let mut stream = json!({
            "site": site, "fault": null, "replicas": 3, "replicas_current": 3, "lag_messages": null, "lag_s": null
        });
        stream.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        stream
    }

    #[test]
    fn streams_and_copies_are_reported_and_each_fault_of_theirs_has_a_way_out() {
        let of = |own: &Value, copy: &Value| {
            let shared = with(&json!({ "streams": [stream("a", own), stream("b", copy)] }), &[json!({})]);
            judge(&shared, true, 1_000).into_iter().find(|check| check.name == "share_copies").unwrap()
        };
        let lag = |messages: u64, s: Value| json!({ "lag_messages": messages, "lag_s": s });
        let sound = of(&json!({}), &lag(1_000, json!(30.0)));
        let found = "the stream of site a has 3 of 3 replicas; \
                     the copy of site b has 3 of 3 replicas, lacks 1000 messages and received its newest 30.0 s ago";
        assert_eq!((sound.verdict, sound.found.as_str()), (Verdict::Ok, found));
        let fault = |name: &str| json!({ "fault": name, "replicas": null, "replicas_current": null });
        let few = json!({ "replicas_current": 2 });
        for (own, copy, found, to_do) in [
            (few, lag(0, json!(1.0)), "stream of site a has 2 of 3", "all servers"),
            (fault("missing"), lag(0, json!(1.0)), "the stream of site a is missing", "docs/operate/share.md"),
            (json!({}), fault("missing"), "the copy of site b is missing", "docs/operate/share.md"),
            (json!({}), fault("no_answer"), "no server answers about the copy of site b", "STREAM.INFO"),
            (json!({}), lag(0, json!(30.1)), "received its newest 30.1 s ago", "leaf link"),
            (json!({}), lag(0, json!(null)), "has received nothing yet", "leaf link"),
            (json!({}), lag(1_001, json!(1.0)), "lacks 1001 messages", "leaf link"),
        ] {
            let check = of(&own, &copy);
            assert_eq!(check.verdict, Verdict::Warn, "{check:?}");
            assert!(check.found.contains(found) && check.to_do.as_ref().unwrap().contains(to_do), "{check:?}");
        }
        assert!(!verdicts(&with(&json!({ "streams": [] }), &[])).iter().any(|(name, _)| *name == "share_copies"));
    }

    fn verdicts(shared: &Shared) -> Vec<(&'static str, Verdict)> {
        judge(shared, true, 1_000).into_iter().map(|check| (check.name, check.verdict)).collect()
    }

    #[test]
    fn sound_sharing_has_no_fault_and_none_has_no_line() {
        let all = verdicts(&with(&json!({}), &[json!({}), json!({})]));
        assert_eq!(all.len(), 6);
        assert!(all.iter().all(|(_, verdict)| *verdict == Verdict::Ok), "{all:?}");
        let absent: Shared = serde_json::from_value(json!({ "configured": false })).unwrap();
        assert_eq!(judge(&absent, false, 1_000), []);
        assert_eq!(verdicts(&absent), [("share_link", Verdict::Warn)]);
    }

    #[test]
    fn each_fault_has_its_check_and_its_way_out() {
        let down = json!({ "link": { "state": "down", "reason": "no server answers" } });
        let degraded = json!({ "link": { "state": "degraded", "reason": "the NATS stream elects" } });
        let connecting = json!({ "link": { "state": "connecting" } });
        let none = json!({});
        let cases = [
            (&down, json!({}), "share_link", "no server answers", "share.servers"),
            (&degraded, json!({}), "share_link", "away: the NATS stream elects", "nats stream info"),
            (&connecting, json!({}), "share_link", "not connected", "share.servers"),
            (
                &none,
                json!({ "incompatible": "prefix_list" }),
                "share_members",
                "gateway 2 (edge)",
                "traffic.prefix_list",
            ),
            (&none, json!({ "incompatible": "of_later" }), "share_members", "of_later", "log"),
            (&none, json!({ "clock_offset_ms": 2_500.0 }), "share_clocks", "2.5 s ahead of", "synchronise"),
            (&none, json!({ "clock_offset_ms": -2_500.0 }), "share_clocks", "2.5 s behind", "synchronise"),
            (&none, json!({ "seats": 601 }), "share_room", "601 addresses", "publish.subscribers to 1001"),
        ];
        for (change, member, name, found, to_do) in cases {
            let checks = judge(&with(change, &[member]), true, 1_000);
            let faults: Vec<_> = checks.iter().filter(|check| check.verdict != Verdict::Ok).collect();
            let [check] = faults.as_slice() else { panic!("{name}: {checks:?}") };
            assert_eq!((check.name, check.verdict), (name, Verdict::Warn));
            assert!(check.found.contains(found), "{check:?}");
            assert!(check.to_do.as_deref().unwrap().contains(to_do), "{check:?}");
        }
    }

    #[test]
    fn nobody_is_missed_while_nothing_gets_through() {
        assert!(verdicts(&with(&json!({}), &[])).contains(&("share_members", Verdict::Warn)));
        let down = json!({ "link": { "state": "down" }, "streams": [] });
        assert_eq!(verdicts(&with(&down, &[])), [("share_link", Verdict::Warn)]);
    }

    #[test]
    fn every_reason_of_a_gateway_has_a_way_out() {
        for reason in Incompatible::VARIANTS {
            assert_ne!(fault(reason.name()).1, fault("unknown").1, "{reason:?}");
        }
    }

    #[test]
    fn the_dashboard_has_the_same_sentence_for_every_reason() {
        let view = include_str!("../../dashboard/views/gateways.js");
        for reason in Incompatible::VARIANTS.iter().map(|reason| reason.name()) {
            let (why, way_out) = fault(reason);
            let line = format!("{reason}: [\"{why}\", \"{way_out}\"]");
            assert!(view.contains(&line), "gateways.js lacks {line}");
        }
    }
}
