//! One client that lies to its network: what it moves is held against the same window without it.

use super::*;

/// Where a liar's windows stand against the honest ones. Acknowledgements that come early let a window grow without end;
/// forged losses keep it at two segments; a careful liar stays near.
const LIES: [f64; 8] = [0.02, 0.4, 0.6, 1.3, 1.45, 1.6, 4.0, 1e4];

/// Clients of a network, and their liar.
#[derive(Clone, Copy, Debug)]
struct Clients {
    /// Honest clients, each with an address of its own.
    honest: u8,
    /// Samples of each, all of one connection.
    samples: u32,
    /// Honest samples that losses gave.
    losses: bool,
    /// The liar's connections, each with the same number of samples.
    lying: u32,
    /// And how many that is.
    lies: u32,
    /// Whether it is there first in every bucket.
    first: bool,
}

/// The share over a minute, with a liar that reaches so far, or none.
fn share(clients: Clients, lie: Option<f64>) -> f64 {
    let mut path = Path::new(RuleKind::Robust);
    for bucket in 0..6 {
        let lies = |path: &mut Path| {
            for connection in 0..lie.map_or(0, |_| clients.lying) {
                for _ in 0..clients.lies {
                    let value = 20.0 * lie.unwrap_or_default();
                    let sample = path.sample(if value > 20.0 { End } else { Loss }, value, 250);
                    path.add(&WindowSample {
                        connection: ConnectionId(u64::from(connection) + 1_000_000),
                        advised: false,
                        ..sample
                    });
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
                    let sample = path.sample(if clients.losses { Loss } else { End }, value, host);
                    path.add(&WindowSample { connection: ConnectionId(host.into()), advised: false, ..sample });
                }
            }
        }
        if !clients.first {
            lies(&mut path);
        }
        path.wait(Micros::from_secs(10));
    }
    path.share()
}

#[test]
fn a_lying_client_moves_a_network_of_five_others_by_at_most_a_tenth() {
    let mut worst = (0.0_f64, None);
    for (honest, samples) in [(5, 1), (5, 6), (6, 1), (8, 2), (20, 6), (40, 2), (100, 1)] {
        for (lying, lies) in [(1, 1), (1, 20), (50, 2)] {
            for (losses, first) in [(false, false), (false, true), (true, false), (true, true)] {
                let clients = Clients { honest, samples, losses, lying, lies, first };
                let before = share(clients, None);
                for lie in LIES {
                    let moved = share(clients, Some(lie)) / before - 1.0;
                    if moved.abs() > worst.0.abs() {
                        worst = (moved, Some((lie, clients)));
                    }
                }
            }
        }
    }
    println!("furthest moved: {worst:?}");
    assert!(worst.0.abs() <= 0.1, "{worst:?}");
}
