//! Two gateways of a mirror group, whose taps see the same packets, beside one that sees them and does not share; one of the two dies.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::standing::{between_buckets, end_of_bucket};
use super::{Programs, Row, Size};
use crate::cluster::gateway::{Gateway, Known, Setup};
use crate::cluster::site::Site;
use crate::cluster::traffic::{Played, Traffic, everywhere};
use crate::progress::{progress, wait};

/// A share that differs by more is a jump.
const JUMP: f64 = 0.02;
const LINES: &str = "[log]\nfilter = \"warn\"\n";

/// How two gateways' estimates differ.
#[derive(Clone, Copy, Debug, Default)]
struct Difference {
    networks: usize,
    equal: usize,
    /// Networks that one of them has no estimate of.
    one_sided: usize,
    /// The largest difference of two shares, over the smaller.
    largest: f64,
}

/// Runs it.
///
/// # Errors
/// Where a gateway or a server fails.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let (networks, connections, warm, after) = match size {
        Size::Full => (1_000, 300, 45, 45),
        Size::Quick => (40, 60, 12, 12),
    };
    let lines = |_| ("mirror_group = 1\n".to_owned(), LINES.to_owned());
    let Some(mut site) = Site::start_with(programs, 1, 2, lines)? else { return Ok(Vec::new()) };
    let setup = Setup {
        number: 3,
        program: &programs.gateway,
        arguments: vec!["run".to_owned()],
        servers: Vec::new(),
        share: String::new(),
        backend: "auto",
        more: LINES.to_owned(),
    };
    let alone = Gateway::start(&site.namespace, &setup, |_| Ok(()))?;
    let play = |length, seed| -> Result<()> {
        let played = Played { connections, networks, loss: 0.02, place: everywhere, seed };
        let traffic = Traffic::start(&site.namespace, vec![1, 2, 3], played)?;
        wait("group: traffic", Duration::from_secs(length));
        traffic.stop()?;
        end_of_bucket();
        Ok(())
    };
    play(warm, 11)?;
    let mut rows = Vec::new();
    for gateway in &site.gateways {
        rows.push(Difference::of(gateway, &alone)?.row(&format!("both run: gateway {}", gateway.number()))?);
    }
    site.gateways.first_mut().context("a gateway")?.kill()?;
    let second = site.gateways.get(1).context("two gateways")?;
    let (killed, mut worst) = (Instant::now(), Difference::default());
    while killed.elapsed() < Duration::from_secs(after) {
        progress(&format!("group: one of two killed: {} s", killed.elapsed().as_secs()));
        let now = Difference::of(second, &alone)?;
        worst = if now.rank() > worst.rank() { now } else { worst };
        std::thread::sleep(Duration::from_millis(250));
    }
    rows.push(worst.row("one killed, no traffic: the other, at worst")?);
    play(after, 12)?;
    rows.push(Difference::of(second, &alone)?.row("one killed: the other, after more traffic")?);
    Ok(rows)
}

impl Difference {
    fn of(gateway: &Gateway, alone: &Gateway) -> Result<Self> {
        between_buckets();
        Ok(Self::between(&gateway.known()?, &alone.known()?))
    }

    fn between(one: &BTreeMap<String, Known>, other: &BTreeMap<String, Known>) -> Self {
        let mut difference = Self::default();
        let share = |known: &BTreeMap<String, Known>, network| known.get(network).and_then(|known| known.share);
        let only_other = other.keys().filter(|network| !one.contains_key(*network));
        for network in one.keys().chain(only_other) {
            match (share(one, network), share(other, network)) {
                (Some(one), Some(other)) => {
                    difference.networks += 1;
                    difference.equal += usize::from(one.to_bits() == other.to_bits());
                    difference.largest = difference.largest.max((one - other).abs() / one.min(other));
                }
                (None, None) => {}
                _ => difference.one_sided += 1,
            }
        }
        difference
    }

    fn rank(self) -> (usize, u64) {
        (self.one_sided, self.largest.to_bits())
    }

    fn row(self, what: &str) -> Result<Row> {
        let Self { networks, equal, one_sided, largest } = self;
        anyhow::ensure!(networks > 0, "no network has an estimate");
        let figure = format!(
            "{networks} networks, {equal} equal to the last bit, at most {:.4} % apart; {one_sided} with an estimate at one alone",
            100.0 * largest
        );
        let met = one_sided == 0 && largest <= JUMP;
        Ok(Row::judged(format!("{what}, against one that does not share"), "<= 2 % apart", figure, met))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_compared_by_network_and_what_one_lacks_is_counted() {
        let known = |shares: &[(&str, Option<f64>)]| {
            let known =
                shares.iter().map(|(network, share)| ((*network).to_owned(), Known { share: *share, samples: 1 }));
            known.collect::<BTreeMap<_, _>>()
        };
        let one = known(&[("a", Some(100.0)), ("b", Some(200.0)), ("c", None), ("d", Some(1.0)), ("e", None)]);
        let other = known(&[("a", Some(100.0)), ("b", Some(210.0)), ("c", Some(5.0)), ("e", None), ("f", Some(1.0))]);
        let Difference { networks, equal, one_sided, largest } = Difference::between(&one, &other);
        assert_eq!((networks, equal, one_sided), (2, 1, 3));
        assert!((largest - 0.05).abs() < 1e-12);
    }
}
