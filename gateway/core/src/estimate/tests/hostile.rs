//! One client that lies to its network: what it moves is held against the same window without it.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use proptest::prelude::*;

use super::*;
use crate::window::record::CONTRIBUTIONS_PER_BUCKET;

/// Where a liar's windows stand against the honest ones. Acknowledgements that come early let a window grow without end;
/// forged losses keep it at two segments; a careful liar stays near.
const LIES: [f64; 8] = [0.02, 0.4, 0.6, 1.3, 1.45, 1.6, 4.0, 1e4];

/// The liar's address.
const LIAR: u8 = 250;

/// How the samples of a client came about.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Ends of transfers without a loss.
    Ends,
    /// Losses.
    Losses,
    /// One after the other.
    Both,
    /// Ends, and with each a lower bound of as much.
    Bounds,
}

impl Kind {
    fn reasons(self, n: u32) -> &'static [SampleReason] {
        match self {
            Self::Losses => &[Loss],
            Self::Both if n.is_multiple_of(2) => &[Loss],
            Self::Ends | Self::Both => &[End],
            Self::Bounds => &[EndAppLimited, End],
        }
    }
}

/// Clients of a network, and their liar.
#[derive(Clone, Copy, Debug)]
struct Clients {
    /// Honest clients, each with an address of its own.
    honest: u8,
    /// Samples of each, all of one connection.
    samples: u32,
    /// What they are.
    kind: Kind,
    /// How many of the honest ones started on our advice.
    advised: u8,
    /// The liar's connections, each with the same number of samples.
    lying: u32,
    /// And how many that is.
    lies: u32,
    /// What they are.
    lie: Kind,
    /// Whether the liar's started on our advice.
    on_advice: bool,
    /// Whether it is there first in every bucket.
    first: bool,
}

/// The share over a minute, with a liar that reaches so far, or none.
fn share(clients: Clients, lie: Option<f64>) -> f64 {
    let mut path = Path::new(RuleKind::Robust);
    let add = |path: &mut Path, kind: Kind, n: u32, value: f64, who: (u8, u64), advised: bool| {
        for reason in kind.reasons(n) {
            let sample = path.sample(*reason, value, who.0);
            let sample = WindowSample { connection: ConnectionId(who.1), advised, ..sample };
            if advised {
                if who.0 != LIAR {
                    // Far enough apart that each may probe.
                    path.wait(RTT);
                }
                path.add(&WindowSample { at: path.now, ..sample });
            } else {
                // Counts as measured: there is no need to ask for the share first.
                path.record.add(&sample, sample.window, &path.config);
            }
        }
    };
    let begin = path.now;
    for bucket in 0..6 {
        let lies = |path: &mut Path| {
            let Some(lie) = lie else { return };
            for connection in 0..clients.lying {
                for n in 0..clients.lies {
                    let who = (LIAR, u64::from(connection) + 1_000_000);
                    add(path, clients.lie, n, 20.0 * lie, who, clients.on_advice);
                }
            }
        };
        if clients.first {
            lies(&mut path);
        }
        for n in 0..clients.samples {
            // Samples of a connection come one after another, not all in one bucket.
            for host in 0..clients.honest {
                if (n + u32::from(host)) % 6 == bucket {
                    // A sawtooth's scatter: 15 to 25 segments.
                    let value = 15.0 + f64::from((u32::from(host) * 7 + n * 3) % 11);
                    add(&mut path, clients.kind, n, value, (host, host.into()), host < clients.advised);
                }
            }
        }
        if !clients.first {
            lies(&mut path);
        }
        path.now = begin.after(Micros::from_secs(10 * u64::from(bucket + 1)));
    }
    path.share()
}

const KINDS: [Kind; 4] = [Kind::Ends, Kind::Losses, Kind::Both, Kind::Bounds];

/// Networks of `part` advised clients of three, with every kind of liar; what each lie moves, and where it leads in segments.
fn liars(part: u8, takes: impl Fn(Clients) -> bool, mut judge: impl FnMut(Clients, f64, f64, &str)) {
    for (honest, samples) in [(5, 1), (5, 6), (20, 6), (100, 1)] {
        let advised = honest / 3 * part + honest % 3 * (part / 3);
        for (kind, lie) in KINDS.into_iter().flat_map(|kind| KINDS.map(|lie| (kind, lie))) {
            for (lying, lies) in [(1, 1), (50, 2)] {
                for (on_advice, first) in [(false, true), (true, false)] {
                    let clients = Clients { honest, samples, kind, advised, lying, lies, lie, on_advice, first };
                    if !takes(clients) {
                        continue;
                    }
                    let before = share(clients, None);
                    for lie in LIES {
                        let after = share(clients, Some(lie));
                        judge(clients, after / before - 1.0, after, &format!("{lie} {clients:?}"));
                    }
                }
            }
        }
    }
}

/// The furthest that a lie moved.
#[derive(Debug, Default)]
struct Furthest {
    moved: f64,
    by: String,
    of: u32,
}

impl Furthest {
    fn take(&mut self, moved: f64, by: &str) {
        self.of += 1;
        if moved.abs() > self.moved.abs() {
            (self.moved, self.by) = (moved, by.to_owned());
        }
    }
}

#[test]
fn a_lying_client_moves_a_network_of_five_others_by_at_most_a_fifth() {
    let mut furthest = Furthest::default();
    liars(0, |_| true, |_, moved, _, by| furthest.take(moved, by));
    println!("furthest moved: {furthest:?}");
    assert!(furthest.moved.abs() <= 0.2, "{furthest:?}");
}

#[test]
fn losses_on_our_advice_are_witnesses_as_good_as_others() {
    let mut furthest = Furthest::default();
    for part in [2, 3] {
        liars(part, |clients| matches!(clients.kind, Kind::Losses), |_, moved, _, by| furthest.take(moved, by));
    }
    println!("furthest moved: {furthest:?}");
    assert!(furthest.moved.abs() <= 0.2, "{furthest:?}");
}

/// Where advised transfers lose nothing they hold the share and probe, and with it what a liar added or took: between a tenth
/// below what they measured and a tenth above what they carried.
#[test]
fn a_liar_moves_a_network_on_our_advice_within_what_others_measured_and_carried() {
    // The largest that honest clients have, and a probe's segment.
    let carried = 25.0 + 1.0;
    let (mut down, mut beyond, mut with_it) = (Furthest::default(), Furthest::default(), Furthest::default());
    for part in [2, 3] {
        let loses_nothing = |clients: Clients| !matches!(clients.kind, Kind::Losses);
        liars(part, loses_nothing, |clients, moved, after, by| {
            if moved < -0.1 {
                let measured = share(Clients { advised: 0, ..clients }, None);
                down.take((after / measured - 1.0).min(0.0), by);
            }
            beyond.take((after / carried - 1.0).max(0.0), by);
            with_it.take(moved, by);
        });
    }
    println!("below what was measured: {down:?}, above what was carried: {beyond:?}, against no liar: {with_it:?}");
    assert!(down.moved >= -0.1, "{down:?}");
    assert!(beyond.moved <= 0.1, "{beyond:?}");
}

// What holds for the robust rule on any window.

#[derive(Clone, Debug)]
struct Drawn {
    reason: SampleReason,
    segments: f64,
    host: u8,
    bucket: u8,
    connection: u64,
}

prop_compose! {
    fn drawn()(
        reason in prop::sample::select(&[End, Loss, EndAppLimited, EndReceiverLimited][..]),
        segments in 1.0..2_000.0_f64,
        host in 0_u8..12,
        bucket in 0_u8..30,
        connection in 0_u64..40,
    ) -> Drawn {
        Drawn { reason, segments, host, bucket, connection }
    }
}

/// Makes a window with these samples, which keep their order within each bucket.
fn window(mut drawn: Vec<Drawn>) -> Path {
    drawn.sort_by_key(|one| one.bucket);
    let mut path = Path::new(RuleKind::Robust);
    let begin = path.now;
    for one in drawn {
        path.now = begin.after(Micros::from_secs(10 * u64::from(one.bucket)));
        let sample = path.sample(one.reason, one.segments, one.host);
        path.add(&WindowSample { connection: ConnectionId(one.connection), advised: false, ..sample });
    }
    path.now = begin.after(Micros::from_secs(290));
    path
}

fn share_of(path: &Path) -> Option<f64> {
    path.rule.share(path.record.slice(path.now, &path.config)).map(|share| share.segments_f64(MSS))
}

proptest! {
    #[test]
    fn it_lies_within_its_samples_and_a_tenth_above_with_evidence(drawn in prop::collection::vec(drawn(), 1..120)) {
        let path = window(drawn.clone());
        let values = || drawn.iter().filter(|one| !one.reason.is_lower_bound()).map(|one| one.segments);
        let (least, most) = (values().fold(f64::MAX, f64::min), values().fold(0.0, f64::max));
        let bound = drawn.iter().filter(|one| one.reason.is_lower_bound()).map(|one| one.segments).fold(0.0, f64::max);
        if let Some(share) = share_of(&path) {
            prop_assert!(share >= least - 1e-6, "{share} is below {least}");
            prop_assert!(share <= most.max(bound.min(most * 1.1)) + 1e-6, "{share} is above {most} and {bound}");
        } else {
            prop_assert!(values().next().is_none());
        }
    }

    #[test]
    fn which_connection_came_first_in_a_bucket_says_nothing(drawn in prop::collection::vec(drawn(), 1..200), seed: u64) {
        let source = |one: &Drawn| (one.bucket, one.host, one.connection);
        let mut sources: Vec<_> = drawn.iter().map(source).collect();
        sources.sort_unstable();
        sources.dedup();
        // No more in a bucket than it keeps apart.
        prop_assume!(sources.chunk_by(|one, next| one.0 == next.0).all(|bucket| bucket.len() <= CONTRIBUTIONS_PER_BUCKET));
        // Each connection's own samples stay in order.
        let mut other = drawn.clone();
        other.sort_by_cached_key(|one| BuildHasherDefault::<DefaultHasher>::default().hash_one((seed, source(one))));
        let [one, other] = [drawn, other].map(window);
        prop_assert_eq!(&one.record, &other.record);
        let bits = |path: &Path| share_of(path).map(f64::to_bits);
        prop_assert_eq!(bits(&one), bits(&other));
    }

    #[test]
    fn no_single_address_moves_it_beyond_its_weight(
        honest in prop::collection::vec((15.0..25.0_f64, 0_u8..10, 0_u8..30, any::<bool>()), 40..120),
        lies in prop::collection::vec(drawn(), 1..200),
    ) {
        let mut drawn: Vec<_> = (0..).zip(honest).map(|(connection, (segments, host, bucket, lost))| {
            let reason = if lost { Loss } else { End };
            Drawn { reason, segments, host, bucket, connection }
        }).collect();
        // Nobody is silent at last, and every host is there.
        drawn.extend((0..10).flat_map(|host| [25, 29].map(|bucket| {
            Drawn { reason: Loss, segments: 20.0, host, bucket, connection: 500 + u64::from(host) }
        })));
        drawn.extend(lies.into_iter().map(|lie| Drawn { host: 66, connection: 1_000 + lie.connection, ..lie }));
        let share = share_of(&window(drawn)).unwrap();
        prop_assert!((11.0..34.0).contains(&share), "{share} although all others lie between 15 and 25");
    }
}
