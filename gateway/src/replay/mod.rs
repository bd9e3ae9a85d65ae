//! `replay`: capture files in, estimates and accounts of connections out.
//!
//! Files are merged by time and drive one engine; its only clock is the time of the packets, so the same files give the
//! same bytes of output. What is asked for on the way ([`Moments`]) and at the end goes to a [`Sink`].
//!
//! Does not: interpret a packet, decide what a sample is worth, or keep more than the accounts of connections where
//! those are asked for.

mod command;
mod drive;
mod moments;
mod output;
mod row;
mod summary;
mod traffic;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use spand_capture::{OpenError, Progress, SourceError, SourceStats};
use spand_core::config::WindowConfig;
use spand_core::counters::Counters;
use spand_core::flow::report::DirectionReport;
use spand_core::networks::view::NetworkView;
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

pub use crate::names::Names;
pub use command::{Arguments, Format, TunnelKinds, run};
pub use drive::{Options, replay};
pub use moments::{Moment, Moments, NotAMoment};
pub(crate) use output::fit;
pub use output::{Output, Show, Sort, Width};
pub use row::{FlowRow, NetworkRow};
pub use summary::{SenderRow, Summary};
pub use traffic::{SenderTraffic, Sent, Traffic};

/// Takes what a replay gives while it goes on.
pub trait Sink {
    /// The networks at a moment that was asked for; moments come in order.
    fn state(&mut self, state: &State) -> io::Result<()>;

    /// How far the files have been read; called every few thousand packets.
    fn progress(&mut self, progress: Progress);
}

/// Every network known at one moment, sorted by prefix.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// When the first packet was captured.
    pub began: Timestamp,
    /// The moment, in capture time.
    pub at: Timestamp,
    /// The networks, those without an estimate yet included.
    pub networks: Vec<NetworkView>,
    /// What was sent to them since the first packet; at the end, also to those of which the window holds nothing any more.
    pub traffic: BTreeMap<Network, Traffic>,
}

/// What a replay found by its end.
#[derive(Debug, Default)]
pub struct Report {
    /// The files, in the order they were named.
    pub files: Vec<FileReport>,
    /// First and last packet time; `None` where there was no packet.
    pub span: Option<(Timestamp, Timestamp)>,
    /// The networks at the last packet.
    pub end: State,
    /// Networks that had an estimate on the way but none at the end.
    pub expired: usize,
    /// The senders of most bytes, those first.
    pub largest_senders: Vec<(IpAddr, SenderTraffic)>,
    /// Directions that networks and senders had no room for: there were as many as the limit of networks.
    pub no_room_traffic: u64,
    /// Both ends of each connection are followed: no inside prefix was given.
    pub both_ends_followed: bool,
    /// The window and its minima.
    pub window: WindowConfig,
    /// One account per direction that carried data, in order of first packet; empty unless asked for.
    pub flows: Vec<DirectionReport>,
    /// What the engine saw and ignored.
    pub counters: Counters,
}

/// What became of one file.
#[derive(Debug)]
pub struct FileReport {
    /// Its path, or `standard input`.
    pub name: String,
    /// Packets and faults.
    pub stats: SourceStats,
    /// How it ended.
    pub outcome: Outcome,
}

/// How reading a file ended.
#[derive(Debug)]
pub enum Outcome {
    /// Read to its end.
    Whole,
    /// Damaged: every packet before the damage counts.
    Damaged(SourceError),
    /// Nothing could be read.
    Unreadable(OpenError),
}

impl FileReport {
    /// What went wrong with the file, where something did.
    pub fn fault(&self) -> Option<String> {
        match &self.outcome {
            Outcome::Whole => None,
            Outcome::Damaged(error) => Some(error.to_string()),
            Outcome::Unreadable(error) => Some(error.to_string()),
        }
    }

    /// Whether not one packet came out of a faulty file; an empty but sound capture is fine.
    pub fn gave_nothing(&self) -> bool {
        !matches!(self.outcome, Outcome::Whole) && self.stats.packets == 0
    }
}

#[cfg(test)]
mod tests;
