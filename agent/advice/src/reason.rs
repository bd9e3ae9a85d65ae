//! Why a connection starts plain.

use serde::{Deserialize, Serialize};
use spand_proto::start::RefusalReason;
use strum::{Display, IntoStaticStr};

/// Why a connection gets no start on advice. Names never change.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, IntoStaticStr, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Reason {
    /// No agent answers at the socket.
    AgentGone,
    /// The agent is asked for this network in the background; the next connection may have a start.
    NotKnownYet,
    /// The connection was drawn for the control group.
    Control,
    /// The whole network is held out in this time slot, to be compared with.
    HeldOut,
    /// First flights to this network were lost: advice is held back for five seconds.
    Retreated,
    /// The network overlaps an excluded prefix of the agent's configuration.
    Excluded,
    /// It is not inside any included prefix.
    NotIncluded,
    /// Advice is paused on this host.
    Paused,
    /// The agent's mode is `observe`.
    Observe,
    /// The lifetime of the advice is over.
    Expired,
    /// The start function gives no start.
    #[strum(transparent)]
    #[serde(untagged)]
    Refused(RefusalReason),
}

impl Reason {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Whether the connection belongs to the control group of the comparison.
    pub(crate) const fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::HeldOut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_read_by_the_name_it_prints() {
        for reason in [Reason::AgentGone, Reason::HeldOut, Reason::Refused(RefusalReason::RttMismatch)] {
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(text, format!("\"{}\"", reason.name()));
            assert_eq!(serde_json::from_str::<Reason>(&text).unwrap(), reason);
        }
        assert_eq!(Reason::Refused(RefusalReason::Stale).name(), "stale");
    }
}
