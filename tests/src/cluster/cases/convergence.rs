//! How long what one gateway sees takes to the estimates of the others.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::standing::{end_of_bucket, restarted};
use super::{Programs, Row, Size};
use crate::cluster::gateway::Gateway;
use crate::cluster::listener::{Advertised, Listener};
use crate::cluster::site::Site;
use crate::cluster::traffic::{Played, Traffic, by_network};
use crate::ending::wait;
use crate::starts::at_per_mille;

/// A change of the share that is advertised at once, as by default.
const CHANGE: f64 = 0.1;
/// A moment of a host is known to so much: the age of an estimate is of when it was written.
const ALIKE: Duration = Duration::from_millis(5);
/// What has not come by then is missing.
const MOST: Duration = Duration::from_secs(6);

/// Runs it.
///
/// # Errors
/// Where a gateway or a server fails.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let (gateways, networks, connections, warm, measured) = match size {
        Size::Full => (4, 5_000, 1_000, 30, 60),
        Size::Quick => (2, 120, 120, 12, 15),
    };
    let Some(mut site) =
        Site::start(programs, if size == Size::Full { 3 } else { 1 }, gateways, "[log]\nfilter = \"warn\"\n")?
    else {
        return Ok(Vec::new());
    };
    let played = Played { connections, networks, loss: 0.01, place: by_network, seed: 11 };
    let traffic = Traffic::start(&site.namespace, (1..=gateways).collect(), played)?;
    let listeners: Vec<_> =
        (1..=gateways).map(|number| Listener::start(&site.namespace, number)).collect::<Result<_>>()?;
    wait("convergence: the window fills", Duration::from_secs(warm));
    listeners.iter().for_each(Listener::begin);
    wait("convergence: measured", Duration::from_secs(measured));
    let lag = site.gateways.iter().map(Gateway::metrics).collect::<Result<Vec<_>>>()?;
    // The last ones have their time, too.
    wait("convergence: the last ones", MOST);
    let counts = traffic.stop()?;
    end_of_bucket();

    let found = moved(&listeners);
    let of = |per_mille| at_per_mille(&found.delays, per_mille).as_secs_f64();
    ensure!(!found.delays.is_empty(), "no estimate moved");
    let figure = format!(
        "p50 {:.2} s, p99 {:.2} s, most {:.2} s; {} moves, {} more that needed none, {} missing; {} packets, the latest {:.0} ms late",
        of(500),
        of(990),
        of(1_000),
        found.delays.len(),
        found.needless,
        found.missing,
        counts.packets,
        counts.latest.as_secs_f64() * 1e3
    );
    let in_time = of(500) <= 0.8 && of(990) <= 1.5 && found.missing == 0;
    let what = format!("moved estimate, A's sample to B's published one, {networks} networks, {gateways} gateways");
    let (within, all, sum) = lag.iter().fold((0.0, 0.0, 0.0), |(within, all, sum), metrics| {
        (
            within + metrics.get("spand_share_lag_seconds_bucket{le=\"3.0\",topic=\"closed\"}"),
            all + metrics.get("spand_share_lag_seconds_count{topic=\"closed\"}"),
            sum + metrics.get("spand_share_lag_seconds_sum{topic=\"closed\"}"),
        )
    });
    ensure!(all > 0.0, "no closed cell came");
    let closed = format!(
        "{:.3} % of {all:.0} cells within 3 s of the bucket's end, mean {:.2} s",
        100.0 * within / all,
        sum / all
    );
    let example = found.example.map_or_else(String::new, |example| format!("; one: {example}"));
    let missing = format!("{}{example}", found.missing);
    Ok(vec![
        Row::timed(size, what, "p50 <= 0.8 s, p99 <= 1.5 s", figure, in_time),
        Row::timed(size, "a closed bucket", "p99 <= 3 s", closed, within / all >= 0.99),
        Row::judged("moves that did not arrive", "none", missing, found.missing == 0),
        restarted(&mut site.gateways, size)?,
    ])
}

/// Moves of one gateway's published estimates and when the others published them.
#[derive(Debug, Default)]
struct Found {
    /// Sorted.
    delays: Vec<Duration>,
    /// Where the other's published estimate was within [`CHANGE`] anyway.
    needless: usize,
    missing: usize,
    /// What the first missing one was like.
    example: Option<String>,
}

/// Each network is seen by one gateway. Of each of its moves: when each other gateway published an estimate with that sample or a newer one.
fn moved(listeners: &[Listener]) -> Found {
    let mut found = Found::default();
    for (place, own) in listeners.iter().enumerate() {
        let moves = own.look(|log| {
            let moves = log.estimates.iter().filter(|(network, _)| is_of(network, listeners.len()) == Some(place));
            moves.map(|(network, advertised)| (network.clone(), advertised.clone())).collect::<Vec<_>>()
        });
        for other in listeners.iter().enumerate().filter(|(number, _)| *number != place).map(|(_, other)| other) {
            for (network, advertised) in &moves {
                let there = other.look(|log| log.estimates.get(network).cloned().unwrap_or_default());
                for (place, before) in advertised.iter().enumerate() {
                    let since = advertised.get(place + 1..).unwrap_or_default();
                    if since.first().is_some_and(|after| (after.share / before.share - 1.0).abs() >= CHANGE) {
                        found.take(since, &there);
                    }
                }
            }
        }
    }
    found.delays.sort_unstable();
    found
}

impl Found {
    /// A move, which is the first of what its gateway advertised from then on, and what another one did.
    fn take(&mut self, here: &[Advertised], there: &[Advertised]) {
        let Some(moved) = here.first() else { return };
        let came = there
            .iter()
            .find(|advertised| advertised.sampled + ALIKE >= moved.sampled && advertised.at + ALIKE >= moved.sampled);
        // A bound can move a share without a new sample.
        let until = moved.at + MOST;
        let held = there.iter().rev().find(|advertised| advertised.at <= until);
        // As the other judges it: by what it published last. Where this gateway's own moved again meanwhile, that counts.
        let is_alike = |held: &Advertised| {
            let since = here.iter().take_while(|advertised| advertised.at <= until);
            since.into_iter().any(|now| (now.share / held.share - 1.0).abs() < CHANGE)
        };
        match came.map(|advertised| advertised.at.saturating_duration_since(moved.sampled)) {
            Some(delay) if delay <= MOST => self.delays.push(delay),
            _ if held.is_some_and(is_alike) => self.needless += 1,
            _ => {
                self.missing += 1;
                self.example.get_or_insert_with(|| {
                    let held = held.map_or_else(|| "nothing".to_owned(), |held| format!("{:.0} bytes", held.share));
                    let own: Vec<String> = here
                        .iter()
                        .map(|one| {
                            format!(
                                "{:.0} after {:.1} s",
                                one.share,
                                one.at.duration_since(moved.sampled).as_secs_f64()
                            )
                        })
                        .collect();
                    format!("{} bytes there, then; another held {held}", own.join(", "))
                });
            }
        }
    }
}

/// At which place a network of the played traffic is seen.
fn is_of(network: &str, gateways: usize) -> Option<usize> {
    let address = network.split('/').next()?.parse().ok()?;
    Some(usize::try_from(crate::cluster::traffic::number(address)).ok()? % gateways)
}
