//! A gateway that runs, asked over its own HTTP interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use spand_core::counters::{OTHER_PROTOCOLS, OtherProtocol};
use spand_proto::operator::Check;

use super::judge;
use super::judge::Seen;
use super::shared::Shared;
use crate::config::Config;
use crate::http_client::HttpClient;

/// What came back.
#[derive(Debug)]
pub(super) enum Answer {
    /// The document.
    Document(Box<Traffic>),
    /// It shows what it sees to none without a password; this it says to all.
    ReadyOnly(Ready),
    /// Somebody is there, but gives no such document: why.
    Refused(String),
    /// Nobody listens.
    Nobody,
}

/// Of `/readyz`, what is judged; `/v1/traffic` has it too.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Ready {
    ready: bool,
    not_ready: Vec<Part>,
}

/// Of `/v1/traffic`, what is judged.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Traffic {
    #[serde(flatten)]
    ready: Ready,
    newest_packet_age_s: Option<f64>,
    connections_ended: u64,
    connections_one_sided: u64,
    interfaces: Vec<Interface>,
    ignored: Vec<Ignored>,
    /// A gateway of an older release has none.
    #[serde(default)]
    other_protocols: Vec<OtherProtocolCount>,
    packets: u64,
    tcp_segments: u64,
}

/// Of `/v1/networks`, what is judged.
#[derive(Clone, Debug, Default, Deserialize)]
struct Networks {
    networks: Vec<Network>,
    total: usize,
}

#[derive(Clone, Debug, Deserialize)]
struct Network {
    prefix: String,
    no_estimate_message: Option<String>,
    transfer_outcomes: Transfers,
}

#[derive(Clone, Debug, Deserialize)]
struct Transfers {
    seen: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Part {
    part: String,
    why: String,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Deserialize)]
struct Interface {
    #[serde(rename = "interface")]
    name: String,
    /// A gateway of an older release does not distinguish.
    #[serde(default = "yes")]
    is_mirror: bool,
    #[serde(rename = "dropped_kernel")]
    before_the_buffer: u64,
    #[serde(rename = "dropped_interface")]
    by_the_adapter: u64,
    #[serde(rename = "dropped_queue")]
    before_the_engine: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Ignored {
    reason: String,
    all: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct OtherProtocolCount {
    protocol: String,
    all: u64,
}

impl Traffic {
    fn other_protocol(&self, protocol: &OtherProtocol) -> u64 {
        let name = protocol.number.to_string();
        self.other_protocols.iter().find(|one| one.protocol == name).map_or(0, |one| one.all)
    }
}

/// Where a listener is reached from this machine.
fn reached(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Asks what the gateway sees, where it listens.
pub(super) fn ask(listen: SocketAddr, client: &HttpClient) -> Answer {
    match get(listen, client, "/v1/traffic") {
        Ok(Some((200, body))) => read(&body, Answer::Document),
        // It is open to all, and is the whole answer where some part does not work.
        Ok(Some((401, _))) if !client.has_password() => match get(listen, client, "/readyz") {
            Ok(Some((200 | 503, body))) => read(&body, |ready| Answer::ReadyOnly(*ready)),
            other => refusal(other),
        },
        other => refusal(other),
    }
}

/// Asks what the gateway shares; `None` where it does not answer that, as one of another release.
pub(super) fn ask_shared(listen: SocketAddr, client: &HttpClient) -> Option<Shared> {
    let (status, body) = get(listen, client, "/v1/share").ok()??;
    serde_json::from_str(&body).ok().filter(|_| status == 200)
}

/// Whether networks have estimates, and if none has, the reason of the one with most transfers; `None` where that cannot be asked.
pub(super) fn ask_estimates(listen: SocketAddr, client: &HttpClient) -> Option<Check> {
    let networks = |which: &str| -> Option<Networks> {
        let (status, body) = get(listen, client, &format!("/v1/networks?{which}")).ok()??;
        serde_json::from_str(&body).ok().filter(|_| status == 200)
    };
    Some(judge_estimates(&networks("estimate=yes&limit=1")?, &networks("estimate=no&limit=1000")?))
}

fn judge_estimates(with: &Networks, without: &Networks) -> Check {
    let busiest = without.networks.iter().max_by_key(|network| network.transfer_outcomes.seen);
    let why = busiest.and_then(|network| Some((network, network.no_estimate_message.as_ref()?)));
    let example = why.map(|(network, message)| format!("; {}: {message}", network.prefix)).unwrap_or_default();
    match (with.total, without.total) {
        (0, 0) => Check::ok("estimates", "no network was seen yet"),
        (0, without) => Check::warn(
            "estimates",
            format!("networks with an estimate: 0 of {without}{example}"),
            "see the reason of each network in /v1/networks?estimate=no",
        ),
        (with, 0) => Check::ok("estimates", format!("networks with an estimate: {with} of {with}")),
        (with, without) => {
            Check::ok("estimates", format!("networks with an estimate: {with} of {}{example}", with + without))
        }
    }
}

fn read<T: DeserializeOwned>(body: &str, answer: impl FnOnce(Box<T>) -> Answer) -> Answer {
    match serde_json::from_str(body) {
        Ok(document) => answer(document),
        Err(error) => Answer::Refused(format!("its answer cannot be read ({error})")),
    }
}

fn refusal(answer: Result<Option<(u16, String)>, String>) -> Answer {
    match answer {
        Ok(None) => Answer::Nobody,
        Ok(Some((401, _))) => Answer::Refused("wrong name or password".to_owned()),
        Ok(Some((status, _))) => Answer::Refused(format!("status {status}")),
        Err(why) => Answer::Refused(why),
    }
}

/// Status and body of one answer; `None` where nobody listens.
fn get(listen: SocketAddr, client: &HttpClient, path: &str) -> Result<Option<(u16, String)>, String> {
    let address = reached(listen);
    client.get(&address.ip().to_string(), address.port(), path)
}

/// Whether every part works.
pub(super) fn judge_ready(ready: &Ready) -> Vec<Check> {
    let faults = ready.not_ready.iter();
    let mut checks: Vec<Check> =
        faults.map(|Part { part, why }| Check::fail("ready", format!("{part}: {why}"), "see the log")).collect();
    if ready.ready {
        checks.push(Check::ok("ready", "capture, engine and store work"));
    }
    checks
}

/// What the gateway counted between two answers.
pub(super) fn judge(first: &Traffic, second: Answer, span: Duration, config: &Config) -> Vec<Check> {
    let second = match second {
        Answer::Document(second) => second,
        Answer::ReadyOnly(ready) => return judge_ready(&ready),
        Answer::Refused(why) => {
            return vec![Check::unknown("gateway", format!("it stopped answering: {why}"), "ask again")];
        }
        Answer::Nobody => return vec![Check::fail("gateway", "it has just stopped", "look at its log")],
    };
    let mut checks = judge_ready(&second.ready);
    if let Some(age) = second.newest_packet_age_s {
        checks.push(Check::ok("newest_packet", format!("{age:.1} s old")));
    }
    checks.extend(judge::traffic(&between(first, &second, span), config));
    checks
}

fn between(first: &Traffic, second: &Traffic, span: Duration) -> Seen {
    let dropped = |traffic: &Traffic| -> u64 {
        traffic.interfaces.iter().map(|i| i.before_the_buffer + i.by_the_adapter + i.before_the_engine).sum()
    };
    let before = |reason: &str| first.ignored.iter().find(|one| one.reason == reason).map_or(0, |one| one.all);
    let ignored: std::collections::BTreeMap<String, u64> =
        second.ignored.iter().map(|one| (one.reason.clone(), one.all.saturating_sub(before(&one.reason)))).collect();
    Seen {
        span_s: span.as_secs_f64(),
        packets: second.packets.saturating_sub(first.packets),
        newest_age_s: second.newest_packet_age_s,
        mirrors: second.interfaces.iter().filter(|one| one.is_mirror).map(|one| one.name.clone()).collect(),
        dropped: dropped(second).saturating_sub(dropped(first)),
        segments: second.tcp_segments.saturating_sub(first.tcp_segments),
        outside: ignored.get(spand_core::counters::Ignored::NotInternal.name()).copied().unwrap_or(0),
        ignored,
        other_protocols: OTHER_PROTOCOLS
            .iter()
            .map(|one| (one, second.other_protocol(one).saturating_sub(first.other_protocol(one))))
            .collect(),
        connections: second.connections_ended,
        one_sided: second.connections_one_sided,
        merged: None,
        senders: std::collections::BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use spand_proto::operator::Verdict;

    use super::*;

    fn networks(of: &[(&str, u64)]) -> Networks {
        let network = |&(prefix, seen): &(&str, u64)| Network {
            prefix: prefix.to_owned(),
            no_estimate_message: Some(format!("{seen} transfers seen: no sample")),
            transfer_outcomes: Transfers { seen },
        };
        Networks { networks: of.iter().map(network).collect(), total: of.len() }
    }

    #[test]
    fn without_any_estimate_the_busiest_network_has_the_reason() {
        let check = judge_estimates(&Networks::default(), &networks(&[("192.0.2.0/24", 3), ("198.51.100.0/24", 39)]));
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.found.ends_with("198.51.100.0/24: 39 transfers seen: no sample"), "{}", check.found);
        assert_eq!(judge_estimates(&networks(&[("192.0.2.0/24", 3)]), &Networks::default()).verdict, Verdict::Ok);
        assert_eq!(judge_estimates(&Networks::default(), &Networks::default()).verdict, Verdict::Ok);
    }
}
