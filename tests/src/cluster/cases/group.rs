//! Two gateways of a mirror group, whose taps see the same packets, beside one that sees them and does not share; one of the two dies.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::standing::{between_buckets, end_of_bucket};
use super::{Programs, Row, Size};
use crate::cluster::gateway::{Gateway, Known, Setup};
use crate::cluster::site::Site;
use crate::cluster::traffic::{Played, Traffic, everywhere};
use crate::ending::{progress, wait};

/// A share that differs by more is a jump.
const JUMP: f64 = 0.02;
const LINES: &str = "[log]\nfilter = \"warn\"\n";

/// Each tap gives a packet a time of its own, microseconds apart, and a player that is late sends packets close together: where a sample
/// depends on that, taps take different ones. `shards` shows that one alone and a group know the same of packets with the same times.
const AGAINST_ALONE: &str = "the group against a gateway alone, each with times of its own";

/// What a difference is held against.
#[derive(Clone, Copy, Debug)]
enum Judged {
    Not,
    Exactly,
    Jump,
}

/// How two gateways' estimates differ.
#[derive(Clone, Debug, Default)]
struct Difference {
    networks: usize,
    equal: usize,
    /// Networks that one of them has no estimate of.
    one_sided: usize,
    /// The largest difference of two shares, over the smaller.
    largest: f64,
    /// Where that is.
    example: String,
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
    let mut taps = Vec::new();
    for gateway in site.gateways.iter().chain([&alone]) {
        let metrics = gateway.metrics()?;
        let [segments, dropped, samples] =
            ["spand_engine_segments_total", "spand_capture_packets_dropped_total", "spand_engine_window_samples_total"]
                .map(|name| metrics.sum(name));
        taps.push(format!("{segments}, {dropped}, {samples}"));
    }
    let mut rows = vec![Row::stated("segments, packets dropped and window samples of each tap", taps.join("; "))];
    let [first, second] = site.gateways.as_mut_slice() else { bail!("a group of two") };
    rows.push(Difference::of(first, second)?.row("both run: one against the other", Judged::Exactly)?);
    rows.push(Difference::of(second, &alone)?.row(AGAINST_ALONE, Judged::Not)?);
    between_buckets();
    let before = second.known()?;
    first.kill()?;
    let (killed, mut worst) = (Instant::now(), Difference::default());
    while killed.elapsed() < Duration::from_secs(after) {
        progress(&format!("group: one of two killed: {} s", killed.elapsed().as_secs()));
        between_buckets();
        let now = Difference::between(&second.known()?, &before);
        worst = if now.rank() >= worst.rank() { now } else { worst };
        std::thread::sleep(Duration::from_millis(250));
    }
    rows.push(worst.row("one killed: what the other knows, at worst, against what it had before", Judged::Jump)?);
    play(after, 12)?;
    let Some(second) = site.gateways.get(1) else { bail!("a group of two") };
    rows.push(Difference::of(second, &alone)?.row(AGAINST_ALONE, Judged::Not)?);
    Ok(rows)
}

impl Difference {
    fn of(gateway: &Gateway, alone: &Gateway) -> Result<Self> {
        between_buckets();
        Ok(Self::between(&gateway.known()?, &alone.known()?))
    }

    fn between(one: &BTreeMap<String, Known>, other: &BTreeMap<String, Known>) -> Self {
        let mut difference = Self::default();
        let share_of = |known: &BTreeMap<String, Known>, network| known.get(network).and_then(|known| known.share);
        let only_other = other.keys().filter(|network| !one.contains_key(*network));
        for network in one.keys().chain(only_other) {
            match (share_of(one, network), share_of(other, network)) {
                (Some(share), Some(other_share)) => {
                    difference.networks += 1;
                    difference.equal += usize::from(share.to_bits() == other_share.to_bits());
                    let apart = (share - other_share).abs() / share.min(other_share);
                    if apart > difference.largest {
                        difference.largest = apart;
                        let known = [one.get(network), other.get(network)].map(|known| known.map(Known::to_string));
                        difference.example =
                            format!(" ({network}: {})", known.map(Option::unwrap_or_default).join("; "));
                    }
                }
                (None, None) => {}
                _ => difference.one_sided += 1,
            }
        }
        difference
    }

    fn rank(&self) -> (usize, u64) {
        (self.one_sided, self.largest.to_bits())
    }

    fn row(&self, what: &str, judged: Judged) -> Result<Row> {
        let Self { networks, equal, one_sided, largest, example } = self;
        ensure!(*networks > 0, "no network has an estimate");
        let figure = format!(
            "{networks} networks, {equal} equal to the last bit, at most {:.4} % apart{example}; {one_sided} with an estimate at one alone",
            100.0 * largest
        );
        Ok(match judged {
            Judged::Not => Row::stated(what, figure),
            Judged::Exactly => Row::judged(what, "equal to the last bit", figure, *one_sided == 0 && equal == networks),
            Judged::Jump => Row::judged(what, "no jump above 2 %", figure, *one_sided == 0 && *largest <= JUMP),
        })
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
        let Difference { networks, equal, one_sided, largest, .. } = Difference::between(&one, &other);
        assert_eq!((networks, equal, one_sided), (2, 1, 3));
        assert!((largest - 0.05).abs() < 1e-12);
    }
}
