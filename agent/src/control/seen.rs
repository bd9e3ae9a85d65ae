//! Announced starts against connections seen, as `status` shows it, and what may be the cause where none is seen.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::Status;

/// Whether connections whose starts are announced are seen on this host.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ConnectionsSeen {
    /// What the numbers say.
    pub state: SeenState,
    /// Since when connections are unseen, in RFC 3339; `null` where they are not.
    pub unseen_since: Option<String>,
    /// How far back `announced` and `seen` look, in seconds.
    pub span_s: u64,
    /// Connections that this host accepts.
    pub accepted: DirectionSeen,
    /// Connections that it opens.
    pub opened: DirectionSeen,
}

/// What the numbers say.
#[derive(Clone, Copy, Debug, Deserialize, Eq, IntoStaticStr, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum SeenState {
    /// Connections are seen as they are announced.
    Ok,
    /// Starts are announced, and the programs see next to none of their connections.
    Unseen,
    /// Too few were announced to say.
    TooFew,
    /// This method sees no connections.
    CannotBeSeen,
}

/// Connections of one direction, to networks with advice.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct DirectionSeen {
    /// Whether next to none of those announced are seen.
    pub unseen: bool,
    /// Announced in the span, but for its last seconds.
    pub announced: u64,
    /// Seen in the span.
    pub seen: u64,
    /// Announced since the agent started.
    pub announced_total: u64,
    /// Seen since then.
    pub seen_total: u64,
}

impl SeenState {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl ConnectionsSeen {
    /// Both directions by name.
    pub(crate) const fn directions(&self) -> [(&'static str, DirectionSeen); 2] {
        [("accepted", self.accepted), ("opened", self.opened)]
    }

    /// One sentence with the numbers.
    pub(crate) fn sentence(&self) -> String {
        let numbers = |what: &str, of: DirectionSeen| format!("{what} {} announced, {} seen", of.announced, of.seen);
        let both = format!("{}; {}", numbers("accepted", self.accepted), numbers("opened", self.opened));
        match self.state {
            SeenState::CannotBeSeen => {
                "cannot be seen by this apply method: whether they meet the start is not known".to_owned()
            }
            SeenState::TooFew => format!("too few announced in the last {} s to say ({both})", self.span_s),
            SeenState::Ok => format!("seen in the last {} s ({both})", self.span_s),
            SeenState::Unseen => {
                let since = self.unseen_since.as_ref().map_or_else(String::new, |since| format!(" since {since}"));
                format!(
                    "UNSEEN{since}: the programs do not meet the announced connections ({both} in {} s)",
                    self.span_s
                )
            }
        }
    }
}

impl Status {
    /// What may be the cause where connections are unseen, the likeliest first; none where they are not.
    pub(crate) fn causes_unseen(&self) -> Vec<&'static str> {
        let Some(seen) = self.connections_seen.as_ref().filter(|seen| seen.state == SeenState::Unseen) else {
            return Vec::new();
        };
        let met = |event: &str| self.method_events.get(event).copied().unwrap_or(0);
        if met("cgroup_gone") > 0 {
            return vec![
                "the cgroup of the programs was removed: make it again, or name another one in bpf.cgroup and start the agent again",
            ];
        }
        let mut causes = Vec::new();
        if met("mptcp") > 0 {
            causes.push("the service's sockets are MPTCP, which is left alone: have it listen on plain TCP");
        }
        if met("other_namespace") > 0 {
            causes.push(
                "the service runs in another network namespace, such as a container's: run the agent there, or set bpf.namespaces to \
                 \"all\" if no addresses overlap",
            );
        }
        if seen.accepted.unseen {
            causes.push(
                "the service's listening sockets were made before it was moved into bpf.cgroup, and a socket stays in the cgroup \
                 that it was made in: restart the service",
            );
        }
        causes.extend([
            "the service runs in another cgroup than bpf.cgroup: name one that holds it, or leave bpf.cgroup out",
            "the connections end elsewhere, in a virtual machine, behind address translation or at a load balancer: run the agent \
             where they end, and correct `addresses` here",
            "their handshakes do not complete, as in a scan or a SYN flood",
        ]);
        causes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: SeenState, accepted: bool, events: &[(&str, u64)]) -> Status {
        let direction = |unseen| DirectionSeen { unseen, announced: 20, seen: 0, announced_total: 20, seen_total: 0 };
        let seen = ConnectionsSeen {
            state,
            unseen_since: None,
            span_s: 120,
            accepted: direction(accepted),
            opened: direction(!accepted),
        };
        Status { connections_seen: Some(seen), ..crate::control::made_up("bpf", events) }
    }

    #[test]
    fn causes_are_named_where_connections_are_unseen_and_only_there() {
        for state in [SeenState::Ok, SeenState::TooFew, SeenState::CannotBeSeen] {
            assert!(status(state, true, &[]).causes_unseen().is_empty(), "{state:?}");
        }
        let first = |accepted, events: &[(&str, u64)]| {
            status(SeenState::Unseen, accepted, events).causes_unseen().first().copied().unwrap_or_default()
        };
        assert!(first(true, &[]).contains("restart the service"), "{}", first(true, &[]));
        assert!(first(false, &[]).contains("another cgroup"), "what it opens has no listening socket");
        assert!(first(true, &[("mptcp", 12)]).contains("MPTCP"));
        assert!(first(true, &[("other_namespace", 9)]).contains("another network namespace"));
        assert!(first(true, &[("cgroup_gone", 1)]).contains("make it again"));
    }
}
