//! How sharing is, for metrics and people.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spand_cells::GatewayId;
use spand_proto::units::Micros;

use super::exchange::{LinkState, SiteStream, Topic};
use super::format::Member;
use super::measure::ShareMeasures;
use super::members::MemberView;

/// What is to be known of sharing, for people.
#[derive(Clone, Debug, Default)]
pub struct ShareView {
    /// Whether messages get through, and since when.
    pub link: LinkState,
    /// The streams that a gateway reads when it starts.
    pub streams: Arc<Mutex<Vec<SiteStream>>>,
    /// When the link changed last.
    pub since: Option<Instant>,
    /// When they got through for the first time.
    pub first_up: Option<Instant>,
    /// The end of the last time; `None` before one ended.
    pub up_until: Option<Instant>,
    /// The other gateways.
    pub members: Vec<MemberView>,
    /// Who this gateway is; `None` before it shares.
    pub own: Option<Member>,
    /// The gateways that share with each other, by name, and the servers of this one.
    pub cluster: String,
    /// The site of its servers.
    pub site: String,
    /// Cells of each other gateway that came since it was heard first, or again.
    pub cells_received: BTreeMap<GatewayId, u64>,
    /// The largest time that cells took that counted, of about the last second in which some came, by topic.
    pub lag: BTreeMap<Topic, Micros>,
    /// Since when those are shown.
    pub lag_since: BTreeMap<Topic, Instant>,
}

/// How sharing is, for metrics and people; clones share it.
#[derive(Clone, Debug, Default)]
pub struct ShareStatus {
    pub(super) measures: ShareMeasures,
    pub(super) view: Arc<Mutex<ShareView>>,
}

impl From<ShareView> for ShareStatus {
    fn from(view: ShareView) -> Self {
        Self { measures: ShareMeasures::default(), view: Arc::new(Mutex::new(view)) }
    }
}

impl ShareStatus {
    /// Takes the names under which it shares.
    pub fn set_names(&self, cluster: &str, site: &str) {
        let mut view = self.view.lock();
        (view.cluster, view.site) = (cluster.to_owned(), site.to_owned());
    }

    /// Counters and histograms.
    pub fn measures(&self) -> &ShareMeasures {
        &self.measures
    }

    /// Whether this gateway has known what others see for this long: messages first got through before that, and do or did within it, and cells
    /// of others have come.
    pub fn knows_others(&self, for_this: Duration) -> bool {
        let view = self.view.lock();
        let is_old = view.first_up.is_some_and(|at| at.elapsed() >= for_this);
        let is_up = view.link.carries() || view.up_until.is_some_and(|at| at.elapsed() < for_this);
        is_old && is_up && self.measures.cells_taken.get() > 0
    }

    /// Shows other things, as for someone who looks at them without sharing.
    pub fn change(&self, change: impl FnOnce(&mut ShareView)) {
        change(&mut self.view.lock());
    }

    /// The link and the members now.
    pub fn view(&self) -> ShareView {
        self.view.lock().clone()
    }
}
