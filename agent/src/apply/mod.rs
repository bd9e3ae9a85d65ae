//! How a decided start gets into the kernel, behind one trait.
//!
//! Knows nothing about estimates or modes: it is told which networks shall start with which window, and until when.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use spand_proto::network::Network;
use spand_proto::start::{Limit, Mode};
use spand_proto::units::{Segments, Timestamp};

use crate::config::Way;

mod dry_run;
mod lack;
pub mod route;

pub use dry_run::DryRun;
pub use lack::Lack;

/// A start that shall be in force for all connections to a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wish {
    /// The window.
    pub window: Segments,
    /// Why, for the ledger and the log.
    pub reason: Grounds,
    /// End of the advice behind it.
    pub expires: Timestamp,
    /// When a start to this network was last announced; those go first where room is short.
    pub announced: Option<Timestamp>,
}

/// What a wish rests on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grounds {
    /// The mode.
    pub mode: Mode,
    /// The share `Wc`.
    pub share: Segments,
    /// The limit that decided, where one did.
    pub clipped_by: Option<Limit>,
}

/// Starts that shall be in force.
pub type Wishes = BTreeMap<Network, Wish>;

/// What became of a wish.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Outcome {
    /// It is in force.
    InForce {
        /// With this window.
        window: Segments,
        /// How, for people.
        how: String,
    },
    /// It would be in force; nothing was changed.
    WouldBe {
        /// With this window.
        window: Segments,
    },
    /// It is not.
    NotApplied {
        /// A stable name for counters.
        reason: &'static str,
        /// One sentence for people.
        sentence: String,
    },
}

/// What an applier did since the start, by stable name.
pub type ApplyCounts = BTreeMap<&'static str, u64>;

/// A way to start connections differently.
pub trait Applier: Send {
    /// Which way it is.
    fn way(&self) -> Way;

    /// What this way cannot do.
    fn lacks(&self) -> &'static [Lack];

    /// Brings what is in force in line with `wishes`; what is no longer wished is undone first. Whether anything changed.
    fn reconcile(&mut self, wishes: &Wishes, now: Timestamp) -> impl Future<Output = bool> + Send;

    /// Undoes everything.
    fn clear(&mut self) -> impl Future<Output = ()> + Send;

    /// Waits until the host changed in a way that calls for [`Applier::reconcile`].
    fn disturbed(&mut self) -> impl Future<Output = ()> + Send;

    /// What became of the wish for `network`.
    fn outcome(&self, network: Network) -> Option<Outcome>;

    /// What is in force, by network.
    fn in_force(&self) -> Vec<(Network, Segments)>;

    /// What it did.
    fn counts(&self) -> ApplyCounts;
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce { window, how } => write!(f, "in force with a window of {window}: {how}"),
            Self::WouldBe { window } => write!(f, "dry run: it would start with a window of {window}"),
            Self::NotApplied { sentence, .. } => write!(f, "not applied: {sentence}"),
        }
    }
}

impl fmt::Display for Grounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: share {}", self.mode, self.share.0)?;
        self.clipped_by.map_or(Ok(()), |limit| write!(f, ", clipped by {limit}"))
    }
}
