//! What of `apply = "bpf"` this machine does not take, and why. A part that is lacking takes no other with it.

use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr, VariantArray};

/// A part of `apply = "bpf"`.
#[derive(Clone, Copy, Debug, Deserialize, Display, Eq, IntoStaticStr, PartialEq, Serialize, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Part {
    /// All programs.
    Programs,
    /// Congestion controls of ours.
    CongestionControls,
    /// A congestion control of ours that a connection stays on: `bpf.variant = "stay"`.
    Stay,
    /// Starts on BBR with rate and estimate: `bpf.bbr = "full"`.
    Bbr,
}

impl Part {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What connections get without it.
    const fn consequence(self) -> &'static str {
        match self {
            Self::Programs => "no connection starts on advice by apply = \"bpf\"",
            Self::CongestionControls => {
                "starts are set by socket options, without a slow-start threshold, and after idle times not at all"
            }
            Self::Stay => {
                "connections go on with the host's own congestion control after their start (bpf.variant hand_over)"
            }
            Self::Bbr => "connections on BBR get a window alone",
        }
    }
}

/// A part that this machine does not take.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Lack {
    /// Which.
    pub part: Part,
    /// Why, and what would give it.
    pub reason: String,
}

impl Lack {
    /// What follows from it, and why it is so.
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.part.consequence(), self.reason)
    }
}
