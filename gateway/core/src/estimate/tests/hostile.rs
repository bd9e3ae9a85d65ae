//! One client that lies to its network: what it moves is held against the same window without it.

use super::*;

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
fn a_lying_client_moves_a_network_of_five_others_by_at_most_a_tenth() {
    let mut furthest = Furthest::default();
    liars(0, |_| true, |_, moved, _, by| furthest.take(moved, by));
    println!("furthest moved: {furthest:?}");
    assert!(furthest.moved.abs() <= 0.1, "{furthest:?}");
}

#[test]
fn losses_on_our_advice_are_witnesses_as_good_as_others() {
    let mut furthest = Furthest::default();
    for part in [2, 3] {
        liars(part, |clients| matches!(clients.kind, Kind::Losses), |_, moved, _, by| furthest.take(moved, by));
    }
    println!("furthest moved: {furthest:?}");
    assert!(furthest.moved.abs() <= 0.1, "{furthest:?}");
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
