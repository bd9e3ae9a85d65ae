//! How the commands reach a running agent: one JSON object a line, one request and one reply, over a Unix socket in the
//! state directory.
//!
//! Advice can be paused and resumed over it, and nothing else can be changed. The socket has mode 0660: root, the agent's user and
//! its group may connect and send requests. A peer that can connect only because somebody widened that mode may look but change
//! nothing. Each change is logged with the user and the process that asked for it.
//! The shapes here are the contract of `--json`, in the dialect of docs/reference/api.md.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use spand_proto::comparison::ClassSummary;
use spand_proto::network::Network;
use spand_proto::start::Mode;

mod client;
mod seen;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use client::try_ask;
pub use client::{AskError, ask};
pub use seen::{ConnectionsSeen, DirectionSeen, SeenState};
pub use server::{Peer, Pending, Server};
pub(crate) use server::{bind, status};
#[cfg(test)]
pub(crate) use tests::made_up;

use crate::applications::ApplicationsStatus;
use crate::apply::Lack;
use crate::config::ApplyMethod;
use crate::subscriber::HoldingCounts;

/// Longest request line in bytes.
pub const MOST_REQUEST_BYTES: usize = 4_096;

/// What is asked.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "ask", deny_unknown_fields)]
pub enum Request {
    /// The state of the agent.
    Status,
    /// What it decides for a destination, and why.
    Explain {
        /// The destination.
        destination: IpAddr,
        /// Size of the transfer in bytes.
        bytes: Option<u64>,
        /// Segment size less options, in bytes.
        mss: Option<u64>,
    },
    /// Withdraw everything, and start nothing on advice from now on.
    Pause {
        /// For how long, in seconds; until [`Request::Resume`] where absent.
        length_s: Option<u64>,
    },
    /// Start connections on advice again.
    Resume,
}

impl Request {
    /// Whether it changes something.
    pub const fn changes(&self) -> bool {
        matches!(self, Self::Pause { .. } | Self::Resume)
    }
}

/// The reply.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Explain`].
    Explained(Box<Explained>),
    /// To [`Request::Pause`] and [`Request::Resume`].
    Pause(Box<Paused>),
    /// The request made no sense, or was refused.
    Error(String),
}

/// What a pause or its end came to.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Paused {
    /// The agent's process.
    pub pid: u32,
    /// Whether advice is paused now.
    pub paused: bool,
    /// When that ends by itself, in RFC 3339; `null` where it does not.
    pub paused_until: Option<String>,
    /// Whether advice was paused before.
    pub was_paused: bool,
    /// Networks whose advice is in force now; none while advice is paused, unless the kernel refused to remove something.
    pub networks_in_force: usize,
    /// Why this does not outlast the agent's process, where that is so.
    pub not_kept: Option<String>,
}

/// The state of an agent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Status {
    /// Its release.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Log messages suppressed by the rate limit.
    #[serde(default)]
    pub log_lines_left_out: u64,
    /// By part, whether the process dropped what it does not need.
    #[serde(default)]
    pub sandbox: BTreeMap<String, bool>,
    /// Whether advice is paused.
    #[serde(default)]
    pub paused: bool,
    /// When that ends by itself, in RFC 3339; `null` where it does not.
    #[serde(default)]
    pub paused_until: Option<String>,
    /// Times its configuration was read again.
    #[serde(default)]
    pub reloads: Reloads,
    /// Its mode.
    pub mode: Mode,
    /// How it applies starts.
    pub method: ApplyMethod,
    /// `bpf.variant` as it is in force; absent with another method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// What this machine does not take of `apply = "bpf"`; absent where that is nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacking: Vec<Lack>,
    /// The name it gives the gateway.
    pub host_name: String,
    /// The addresses it subscribed for.
    pub addresses: Vec<IpAddr>,
    /// The subscription.
    pub gateway: GatewayStatus,
    /// Networks whose advice is held.
    pub networks_held: usize,
    /// What is in force now.
    pub in_force: Vec<InForce>,
    /// What should be in force where nothing has been for longer than two renewals; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_in_force: Option<NotInForce>,
    /// The rules of slow start in force, the default first; absent where the kernel's own holds for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub growth: Vec<GrowthInForce>,
    /// Decisions by outcome, counted when they change.
    pub decisions: BTreeMap<String, u64>,
    /// What the method did or met.
    pub method_events: BTreeMap<String, u64>,
    /// What became of advice.
    pub advice: HoldingCounts,
    /// What became of announced starts.
    pub pushes: Pushes,
    /// Whether the connections of announced starts are seen; `null` from an agent that does not compare them.
    #[serde(default)]
    pub connections_seen: Option<ConnectionsSeen>,
    /// Applications that ask for advice; absent where there is no socket for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applications: Option<ApplicationsStatus>,
    /// Why there is no socket for them although one is configured; else absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applications_error: Option<String>,
    /// What became of connections, by size and by arm; all zero where the method cannot see them.
    pub comparison: Vec<ClassSummary>,
    /// Connections that met a pause, and are in neither arm.
    #[serde(default)]
    pub transfers_paused: u64,
    /// What this method cannot do.
    pub limitations: Vec<Limitation>,
}

/// Advice that nothing is in force of.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NotInForce {
    /// Networks for which a start is decided.
    pub networks: usize,
    /// For how long none has been in force, in seconds.
    pub for_s: u64,
    /// One of the networks.
    pub example: Network,
    /// Why its start is not in force, for people.
    pub why: String,
}

impl NotInForce {
    /// One sentence.
    pub(crate) fn sentence(&self) -> String {
        let Self { networks, for_s, example, why } = self;
        let plural = if *networks == 1 { "" } else { "s" };
        format!(
            "advice for {networks} network{plural} should be in force, and has been for none of them for {for_s} s; {example}: {why}"
        )
    }
}

/// Times the configuration was read again.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Reloads {
    /// It came into force.
    pub succeeded: u64,
    /// It could not be used, and what was in force stayed so.
    pub failed: u64,
    /// The last time; `null` where there was none.
    pub last: Option<LastReload>,
}

/// What came of reading the configuration again.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct LastReload {
    /// When, in RFC 3339.
    pub at: String,
    /// Why it could not be used; `null` where it came into force.
    pub error: Option<String>,
    /// Keys whose new value came into force.
    pub took_effect: Vec<String>,
    /// Keys that changed and wait for a restart.
    pub needs_restart: Vec<String>,
}

/// The subscription.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct GatewayStatus {
    /// The gateway in use, else the one that was last, else the first.
    pub url: String,
    /// Times that this host changed to another gateway.
    #[serde(default)]
    pub gateway_changes: u64,
    /// All gateways, in the order in which they are tried.
    #[serde(default)]
    pub gateways: Vec<GatewayStanding>,
    /// Whether a stream is open.
    pub connected: bool,
    /// Seconds since that changed.
    pub since_s: u64,
    /// Streams that were opened.
    pub connections: u64,
    /// Gaps in the sequence of updates.
    pub gaps: u64,
    /// Updates that could not be read.
    pub unreadable: u64,
    /// When this host's certificate ends, in RFC 3339; `null` without TLS.
    #[serde(default)]
    pub certificate_not_after: Option<String>,
    /// Times changed TLS files could not be used.
    #[serde(default)]
    pub tls_failures: u64,
    /// Why the last stream ended.
    pub last_error: Option<String>,
    /// Attempts to subscribe that have failed since the last whole snapshot.
    #[serde(default)]
    pub failed_attempts: u64,
    /// When the next attempt is made, in RFC 3339; `null` while a stream is open or an attempt is under way.
    #[serde(default)]
    pub next_retry_at: Option<String>,
}

/// A gateway among those that are configured.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct GatewayStanding {
    /// Where it is.
    pub url: String,
    /// Whether this host is subscribed to it.
    pub in_use: bool,
    /// Why it could not be used when it was last tried; `null` where it could.
    pub last_error: Option<String>,
}

impl GatewayStanding {
    /// How it is.
    pub(crate) fn sentence(&self) -> &str {
        if self.in_use { "in use" } else { self.last_error.as_deref().unwrap_or("not in use") }
    }
}

impl GatewayStatus {
    /// When the next attempt to subscribe is made, where the wall clock shows `now`; for a gateway that is not connected.
    pub(crate) fn retry(&self, now: SystemTime) -> String {
        let failed = match self.failed_attempts {
            0 => return "the first attempt is under way".to_owned(),
            1 => "1 attempt failed".to_owned(),
            attempts => format!("{attempts} attempts failed"),
        };
        let at = self.next_retry_at.as_deref().and_then(|at| humantime::parse_rfc3339(at).ok());
        match at.and_then(|at| at.duration_since(now).ok()) {
            Some(rest) => format!("{failed}, the next one is in {} s", rest.as_secs_f64().ceil()),
            None => format!("{failed}, the next one is under way"),
        }
    }
}

/// A start in force.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct InForce {
    /// The network.
    pub prefix: Network,
    /// The window in segments.
    pub cwnd_segments: u32,
}

/// A rule of slow start.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GrowthInForce {
    /// For connections to this network; `null` where it is not by network.
    pub prefix: Option<Network>,
    /// For connections of this address and port of the host; `null` where it is not by service.
    pub service: Option<SocketAddr>,
    /// Its name: `standard`, `dbc` or `burst`.
    pub growth: String,
    /// That of `dbc`; `null` for others.
    pub dbc_dmax: Option<u32>,
    /// That of `burst`; `null` for others.
    pub burst_f: Option<u32>,
}

/// What became of announced starts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Pushes {
    /// Announcements that arrived.
    pub received: u64,
    /// Their start was in force before the handshake could end. That the connection met it, it does not say.
    pub in_time: u64,
    /// It was in force too late: later than the smallest round trip after the packet that announced it.
    pub late: u64,
    /// No start was applied for them.
    pub not_applied: u64,
}

/// Something that a method cannot do.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Limitation {
    /// Its stable name.
    pub name: String,
    /// One sentence.
    pub sentence: String,
}

/// What an agent decides for a destination, and why.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Explained {
    /// The destination.
    pub destination: IpAddr,
    /// The network that the gateway counts it to; absent where nothing is held about it.
    pub prefix: Option<Network>,
    /// The mode.
    pub mode: Mode,
    /// How it applies starts.
    pub method: ApplyMethod,
    /// The decision in one line, for people.
    #[serde(default)]
    pub decision: String,
    /// The window that new connections get now, in segments.
    pub cwnd_segments: u32,
    /// The window that was decided, in segments, applied or not; absent where there is no start.
    #[serde(default)]
    pub start_cwnd_segments: Option<u32>,
    /// Whether new connections start on advice now.
    pub on_advice: bool,
    /// A stable name of the outcome: `in_force`, `would_be`, or why not.
    pub outcome: String,
    /// The decision step by step.
    pub steps: Vec<Step>,
}

/// A step of a decision.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Step {
    /// What was looked at.
    pub name: String,
    /// Whether it prevented the start.
    pub stopped: bool,
    /// Whether the decision would be the same without it; such steps are not printed for people.
    #[serde(default)]
    pub no_effect: bool,
    /// One sentence with the numbers.
    pub text: String,
}

impl Step {
    /// A step that did not prevent the start.
    pub(crate) fn new(name: &str, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), stopped: false, no_effect: false, text: text.into() }
    }

    /// A step that prevented the start.
    pub(crate) fn stop(name: &str, text: impl Into<String>) -> Self {
        Self { stopped: true, ..Self::new(name, text) }
    }

    /// The same, which changed nothing.
    pub(crate) fn without_effect(self) -> Self {
        Self { no_effect: true, ..self }
    }
}
