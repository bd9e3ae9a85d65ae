//! The part of a list of networks that one answer holds, in the order asked for.

use std::cmp::Ordering;
use std::sync::Arc;

use spand_core::networks::view::NetworkView;
use spand_proto::start::DEFAULT_INITIAL_WINDOW;
use spand_proto::units::Timestamp;

/// What a list can be sorted by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sort {
    Prefix,
    Share,
    Rtt,
    Samples,
    Losses,
    Traffic,
    Saving,
    Loss,
    Age,
    Confidence,
}

pub(super) const SORTS: [(&str, Sort); 10] = [
    ("prefix", Sort::Prefix),
    ("wc", Sort::Share),
    ("rtt", Sort::Rtt),
    ("samples", Sort::Samples),
    ("losses", Sort::Losses),
    ("traffic", Sort::Traffic),
    ("saving", Sort::Saving),
    ("loss", Sort::Loss),
    ("age", Sort::Age),
    ("confidence", Sort::Confidence),
];

/// An upper bound of the time in seconds that transfers of the window would save by starting at the share. A transfer saves the round trips in
/// which slow start doubles ten segments up to the share. No more transfers count than the sent bytes fill shares.
pub(super) fn saving_s(view: &NetworkView) -> Option<f64> {
    let (estimate, rtt) = (view.estimate.as_ref()?, view.rtt_mean?);
    let doublings = (estimate.share.bytes() / estimate.mss.0 as f64 / f64::from(DEFAULT_INITIAL_WINDOW.0)).log2();
    let shares = view.traffic.window.outbound.bytes as f64 / estimate.share.bytes();
    Some(rtt.as_secs_f64() * doublings.max(0.0) * f64::from(view.outcomes.seen).min(shares))
}

/// The names of all of them.
pub(crate) fn sorts() -> impl Iterator<Item = &'static str> {
    SORTS.iter().map(|(name, _)| *name)
}

/// Which part of a list, and how it is sorted: those that lack the value come last either way, and equal ones in order of
/// prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) sort: Sort,
    pub(super) descending: bool,
    pub(super) offset: usize,
    pub(super) limit: usize,
}

impl Page {
    /// The page of `views`, which are in order of prefix. Values are looked up once, and only the page itself is sorted: all of
    /// a million networks would take seconds.
    pub(super) fn of(self, views: &[Arc<NetworkView>], now: Timestamp) -> Vec<Arc<NetworkView>> {
        let begin = self.offset.min(views.len());
        let end = begin.saturating_add(self.limit).min(views.len());
        if self.sort == Sort::Prefix {
            let page = begin..end;
            return if self.descending {
                views.iter().rev().skip(begin).take(page.len()).cloned().collect()
            } else {
                views.get(page).unwrap_or_default().to_vec()
            };
        }
        let mut keys: Vec<_> = views.iter().map(|view| self.value(view, now)).zip(0_usize..).collect();
        let order = |a: &Key, b: &Key| self.order(*a, *b);
        // Everything before the end of the page, then of that everything before its beginning, each in any order.
        if end < keys.len() {
            keys.select_nth_unstable_by(end, order);
            keys.truncate(end);
        }
        if begin > 0 && begin < keys.len() {
            keys.select_nth_unstable_by(begin, order);
        }
        let Some(page) = keys.get_mut(begin..) else { return Vec::new() };
        page.sort_unstable_by(order);
        page.iter().filter_map(|(_, index)| views.get(*index).cloned()).collect()
    }

    fn order(self, (a, a_at): Key, (b, b_at): Key) -> Ordering {
        let values = match (a, b) {
            (Some(a), Some(b)) if self.descending => b.total_cmp(&a),
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        values.then(a_at.cmp(&b_at))
    }

    fn value(self, view: &NetworkView, now: Timestamp) -> Option<f64> {
        match self.sort {
            Sort::Prefix => None,
            Sort::Share => view.estimate.as_ref().map(|estimate| estimate.share.bytes()),
            Sort::Rtt => view.rtt_mean.map(|rtt| rtt.0 as f64),
            Sort::Samples => Some(f64::from(view.samples)),
            Sort::Losses => Some(view.losses as f64),
            Sort::Traffic => Some(view.traffic.window.bytes() as f64),
            Sort::Saving => saving_s(view),
            Sort::Loss => view.traffic.window.outbound.loss(),
            Sort::Age => view.age(now).map(|age| age.0 as f64),
            Sort::Confidence => view.estimate.as_ref().map(|estimate| estimate.confidence.value()),
        }
    }
}

/// A network's value, and its place in order of prefix.
type Key = (Option<f64>, usize);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spand_core::estimate::NoEstimate;
    use spand_core::networks::traffic::NetworkTraffic;
    use spand_core::types::LimitCounts;
    use spand_core::types::SampleRate;
    use spand_core::types::{Flow, Flows};
    use spand_proto::estimate::{Confidence, Estimate};
    use spand_proto::made_up;
    use spand_proto::network::Network;
    use spand_proto::no_estimate::Outcomes;
    use spand_proto::units::{Micros, Window};

    use super::*;

    const NOW_S: u32 = 1_000;

    fn at(s: u32) -> Timestamp {
        Timestamp::default().after(Micros::from_secs(s.into()))
    }

    /// A network with a value or none in each respect, few of them so that many are equal.
    fn view(n: u8, value: Option<u32>) -> NetworkView {
        let network = Network::of([198, 51, n, 1].into());
        let newest = value.map(|value| at(NOW_S - value));
        let estimate = value.map(|value| {
            let share = Window::from_bytes(f64::from(value + 1) * 1_448.0).unwrap();
            let confidence = Confidence::new(f64::from(value) / 10.0);
            Estimate { confidence, ..made_up::estimate(network, share, at(NOW_S)) }
        });
        NetworkView {
            network,
            why_not: value.is_none().then_some(NoEstimate::TooFewSamples),
            estimate,
            rtt_min: None,
            rtt_mean: value.map(|value| Micros(value.into())),
            samples: value.unwrap_or(0),
            lower_bounds: 0,
            connections: 1,
            losses: value.unwrap_or(0).into(),
            limits: LimitCounts::default(),
            outcomes: Outcomes::new(value.unwrap_or(0), &[]),
            traffic: NetworkTraffic {
                window: Flows {
                    outbound: Flow { bytes: 10, retransmitted_bytes: value.unwrap_or(0).into(), ..Flow::default() },
                    inbound: Flow { bytes: value.unwrap_or(0).into(), ..Flow::default() },
                },
                ..NetworkTraffic::default()
            },
            needed: (3, 2),
            compared: Vec::new(),
            addresses: Vec::new(),
            parallel: 1,
            parallel_at_samples: 1,
            parallel_here: 1,
            reported: None,
            followed: SampleRate::ALL,
            newest,
        }
    }

    /// As [`Page::of`], but everything is sorted, with the values looked up at each comparison.
    fn naive(page: Page, mut views: Vec<Arc<NetworkView>>) -> Vec<Arc<NetworkView>> {
        let value = |view: &NetworkView| page.value(view, at(NOW_S));
        views.sort_by(|a, b| {
            let prefix = a.network.cmp(&b.network);
            match (value(a), value(b)) {
                _ if page.sort == Sort::Prefix => {
                    if page.descending {
                        prefix.reverse()
                    } else {
                        prefix
                    }
                }
                (Some(a), Some(b)) if page.descending => b.total_cmp(&a).then(prefix),
                (Some(a), Some(b)) => a.total_cmp(&b).then(prefix),
                (a, b) => b.is_some().cmp(&a.is_some()).then(prefix),
            }
        });
        views.into_iter().skip(page.offset).take(page.limit).collect()
    }

    #[test]
    fn a_start_at_the_share_saves_the_doublings_up_to_it_for_each_transfer_that_can_fill_it() {
        let saving = |shares: f64, transfers, segments: u32| {
            let mut view = view(1, Some(segments - 1));
            view.rtt_mean = Some(Micros::from_millis(100));
            view.outcomes = Outcomes::new(transfers, &[]);
            let share = f64::from(segments) * 1_448.0;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few shares")]
            let bytes = (shares * share) as u64;
            view.traffic.window.outbound.bytes = bytes;
            saving_s(&view).unwrap()
        };
        for (given, expected) in [((9.0, 3, 40), 0.6), ((2.5, 3, 40), 0.5), ((9.0, 3, 10), 0.0), ((9.0, 3, 4), 0.0)] {
            let (shares, transfers, segments) = given;
            let saved = saving(shares, transfers, segments);
            assert!((saved - expected).abs() < 1e-6, "{given:?}: {saved} s");
        }
        assert_eq!(saving_s(&view(1, None)), None, "there is no estimate");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn a_page_is_what_it_is_of_the_whole_list_sorted(
            values in prop::collection::vec(prop::option::of(0u32..6), 0..40),
            sort in prop::sample::select(SORTS.map(|(_, sort)| sort).to_vec()),
            descending in any::<bool>(),
            offset in prop_oneof![9 => 0usize..45, 1 => Just(usize::MAX)],
            limit in 1usize..45,
        ) {
            let views: Vec<_> = (0..).zip(values).map(|(n, value)| Arc::new(view(n, value))).collect();
            let page = Page { sort, descending, offset, limit };
            prop_assert_eq!(page.of(&views, at(NOW_S)), naive(page, views));
        }
    }
}
