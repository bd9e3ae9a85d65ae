//! Openings, and what rules say that are compared with the one in force, as both the API and `replay` show them.

use serde::Serialize;
use spand_core::estimate::Compared;
use spand_core::networks::view::NetworkView;
use spand_proto::opening::Opening;
use spand_proto::units::{Bytes, Micros, Timestamp, rounded};

/// What one more connection may open with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpeningDocument {
    rule: &'static str,
    /// In whole segments of the estimate's size; the size is not known where there is no estimate.
    ssthresh_segments: Option<u32>,
    ssthresh_bytes: f64,
    /// The smoothed interval between losses of all senders.
    loss_interval_ms: Option<f64>,
    /// The same of the oldest sender.
    oldest_loss_interval_ms: Option<f64>,
    /// Time since the last loss.
    loss_age_s: Option<f64>,
}

/// What a rule says that is not in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedDocument {
    rule: &'static str,
    wc_segments: Option<u32>,
    wc_bytes: Option<f64>,
    opening: Option<OpeningDocument>,
}

impl OpeningDocument {
    /// The opening in force, counted in segments of `mss`.
    pub fn in_force(view: &NetworkView, mss: Option<Bytes>, now: Timestamp) -> Option<Self> {
        Some(Self::new(view.estimate.as_ref()?.opening?, mss, now))
    }

    fn new(opening: Opening, mss: Option<Bytes>, now: Timestamp) -> Self {
        let losses = opening.losses;
        Self {
            rule: opening.rule.name(),
            ssthresh_segments: mss.map(|mss| opening.threshold.segments(mss).0),
            ssthresh_bytes: rounded(opening.threshold.bytes(), 1),
            loss_interval_ms: losses.map(|losses| losses.interval.as_millis_f64()),
            oldest_loss_interval_ms: losses.map(|losses| losses.oldest_interval.as_millis_f64()),
            loss_age_s: losses.map(|losses| now.since(losses.last)).map(Micros::as_secs_f64),
        }
    }

    /// For a table: rule and segments.
    pub fn in_short(&self) -> String {
        short(self.rule, Some(self))
    }
}

impl ComparedDocument {
    /// What each rule says, in the order of the configuration, counted in segments of `mss`.
    pub fn all(view: &NetworkView, mss: Option<Bytes>, now: Timestamp) -> Vec<Self> {
        view.compared.iter().map(|compared| Self::new(compared, mss, now)).collect()
    }

    fn new(compared: &Compared, mss: Option<Bytes>, now: Timestamp) -> Self {
        Self {
            rule: compared.rule.name(),
            wc_segments: compared.share.zip(mss).map(|(share, mss)| share.segments(mss).0),
            wc_bytes: compared.share.map(|share| rounded(share.bytes(), 1)),
            opening: compared.opening.map(|opening| OpeningDocument::new(opening, mss, now)),
        }
    }

    /// For a table: rule and segments of its opening.
    pub fn in_short(&self) -> String {
        short(self.rule, self.opening.as_ref())
    }
}

fn short(rule: &str, opening: Option<&OpeningDocument>) -> String {
    let segments = opening.and_then(|opening| opening.ssthresh_segments);
    segments.map_or_else(|| format!("{rule} –"), |segments| format!("{rule} {segments}"))
}
