//! A gateway that runs, asked over its own HTTP interface.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde::Deserialize;
use spand_proto::operator::Check;

use super::judge;
use super::seen::Seen;
use crate::config::Config;

/// Longest wait for a connection, and for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Largest answer that is read, in bytes.
const MOST_BYTES: u64 = 8 << 20;

/// What came back.
#[derive(Debug)]
pub(super) enum Answer {
    /// The document.
    Document(Box<Traffic>),
    /// Somebody is there, but gives no such document: why.
    Refused(String),
    /// Nobody listens.
    Nobody,
}

/// Of `/v1/traffic`, what is judged.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Traffic {
    ready: bool,
    not_ready: Vec<Part>,
    newest_packet_age_s: Option<f64>,
    connections_ended: u64,
    connections_one_sided: u64,
    interfaces: Vec<Interface>,
    ignored: Vec<Ignored>,
    packets: u64,
    tcp_segments: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Part {
    part: String,
    why: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Interface {
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

/// Where a listener is reached from this machine.
fn reached(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Asks for `path` where the gateway listens.
pub(super) fn ask(listen: SocketAddr, path: &str) -> Answer {
    let address = reached(listen);
    let Ok(stream) = TcpStream::connect_timeout(&address, PATIENCE) else { return Answer::Nobody };
    let refused = |why: String| Answer::Refused(why);
    match talk(stream, address, path) {
        Err(error) => refused(error.to_string()),
        Ok(answer) => match parts(&answer) {
            Some(("200", body)) => match serde_json::from_str(body) {
                Ok(document) => Answer::Document(document),
                Err(error) => refused(format!("its answer is not known here ({error})")),
            },
            Some((status, _)) => refused(format!("status {status}")),
            None => refused("it does not speak HTTP".to_owned()),
        },
    }
}

/// What is known of a listener that asks for more than is known here: whether somebody is there.
pub(super) fn unproven(listen: SocketAddr) -> Answer {
    match TcpStream::connect_timeout(&reached(listen), PATIENCE) {
        Ok(_) => Answer::Refused("[admin] asks for TLS or a password, which only you know".to_owned()),
        Err(_) => Answer::Nobody,
    }
}

fn talk(mut stream: TcpStream, address: SocketAddr, path: &str) -> std::io::Result<String> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Status and body. The documents asked for here come in one piece.
fn parts(answer: &str) -> Option<(&str, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.split_whitespace().next()?;
    Some((status, body))
}

/// What the gateway counted between two answers.
pub(super) fn judge(first: &Traffic, second: Answer, span: Duration, config: &Config) -> Vec<Check> {
    let second = match second {
        Answer::Document(second) => second,
        Answer::Refused(why) => {
            return vec![Check::unknown("gateway", format!("it stopped answering: {why}"), "ask again")];
        }
        Answer::Nobody => return vec![Check::fail("gateway", "it ended a moment ago", "look at its log")],
    };
    let mut checks: Vec<Check> = second
        .not_ready
        .iter()
        .map(|Part { part, why }| Check::fail("ready", format!("{part}: {why}"), "the log says more"))
        .collect();
    if second.ready {
        checks.push(Check::ok("ready", "it captures, computes and stores"));
    }
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
        dropped: dropped(second).saturating_sub(dropped(first)),
        segments: second.tcp_segments.saturating_sub(first.tcp_segments),
        outside: ignored.get(spand_core::counters::Ignored::NotInternal.name()).copied().unwrap_or(0),
        ignored,
        connections: second.connections_ended,
        one_sided: second.connections_one_sided,
        merged: None,
        senders: std::collections::BTreeMap::new(),
    }
}
