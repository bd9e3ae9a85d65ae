//! The covering design: cells in which every pair of levels meets, from a seed.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::factors::{ALL, Cell, FACTORS, Levels, Numbers};

/// Candidates looked at for one cell.
const CANDIDATES: usize = 40;
/// Tries to complete a pair before it counts as one that cannot be.
const TRIES: usize = 400;
/// Factors at the heart of the design: their triples guide what follows once all pairs are there.
const CORE: usize = 6;

/// The plan, and which pairs no cell can have.
#[derive(Debug)]
pub struct Plan {
    /// Cells in order of number.
    pub cells: Vec<Cell>,
    /// Pairs of levels that contradict each other, as text.
    pub impossible: Vec<String>,
    /// How many cells it took to meet every possible pair.
    pub covered_after: usize,
}

/// In cells that no pair asks for, the first levels outside the heart weigh this many times as much: about one difficulty in
/// each, so that a miss can be laid to one.
const CALM: u32 = 4;

/// A level of a factor.
type Level = (usize, u8);

/// Plans at least `least` cells: as many as it takes to meet every pair, then more that meet new triples of the heart.
pub fn plan(seed: u64, least: usize) -> Plan {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut open = pairs();
    let mut impossible = Vec::new();
    let mut chosen: Vec<Levels> = Vec::new();
    while let Some((a, b)) = open.first().copied() {
        let candidates: Vec<Levels> = (0..TRIES).filter_map(|_| draw(&mut dice, &[a, b], 1)).take(CANDIDATES).collect();
        let best = candidates.into_iter().max_by_key(|levels| open.iter().filter(|pair| meets(levels, **pair)).count());
        if let Some(levels) = best {
            open.retain(|pair| !meets(&levels, *pair));
            chosen.push(levels);
        } else {
            impossible.push(format!("{} with {}", name(a), name(b)));
            open.remove(0);
        }
    }
    let covered_after = chosen.len();
    let mut met: std::collections::BTreeSet<_> = chosen.iter().flat_map(triples).collect();
    while chosen.len() < least {
        let candidates = (0..CANDIDATES).filter_map(|_| draw(&mut dice, &[], CALM));
        let fresh = |levels: &Levels| triples(levels).filter(|triple| !met.contains(triple)).count();
        let Some(levels) = candidates.max_by_key(fresh) else { continue };
        met.extend(triples(&levels));
        chosen.push(levels);
    }
    // Those that cover pairs are the difficult ones: mixed, so that a part of the plan is like the whole.
    for last in (1..chosen.len()).rev() {
        chosen.swap(last, dice.random_range(0..=last));
    }
    let cells = (0..).zip(&chosen).map(|(number, levels)| Cell::new(number, dice.random(), levels)).collect();
    Plan { cells, impossible, covered_after }
}

/// A kind of network as most users have them: its name, rate in Mbit/s, round trip in ms, queue in packets, and what else the path does.
type Kind = (&'static str, u32, u32, u32, Option<(&'static str, &'static str)>);

const KINDS: [Kind; 6] = [
    ("office", 20, 40, 100, None),
    ("fibre", 100, 30, 250, None),
    ("wifi", 40, 30, 300, Some(("jitter", "8ms-bunches"))),
    ("dsl", 16, 50, 60, None),
    ("lte", 30, 60, 350, Some(("change", "rate"))),
    ("deep", 10, 40, 500, None),
];

/// Networks with the traffic that a site's customers have: keep-alive connections of several addresses, in every second one beside a long
/// transfer. Kinds and congestion controls take turns; rates, round trips and queues are drawn within a third of the kind's.
pub fn mixed(seed: u64, networks: usize) -> Plan {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut cell = |number: usize| {
        let (kind, rate, rtt, queue, more) = KINDS[number % KINDS.len()];
        let mut near = |value: u32| f64::from(value) * 1.33_f64.powf(dice.random_range(-1.0..1.0));
        let (rate, rtt, queue) = (near(rate), near(rtt), near(queue));
        let turn = number / KINDS.len();
        let mut levels: BTreeMap<String, String> = [
            ("kind", kind.to_owned()),
            ("cc", ["cubic", "bbr", "cubic", "bbr", "reno", "bbr"][turn % 6].to_owned()),
            ("rate", format!("{rate:.1}mbit")),
            ("rtt", format!("{rtt:.0}ms")),
            ("buffer", format!("{queue:.0}pkt")),
            ("work", if (turn / 2 + number).is_multiple_of(2) { "mixed" } else { "web" }.to_owned()),
            ("flows", dice.random_range(3..6).to_string()),
            ("seconds", "20".to_owned()),
        ]
        .map(|(factor, level)| (factor.to_owned(), level))
        .into();
        levels.extend(more.map(|(factor, level)| (factor.to_owned(), level.to_owned())));
        Cell { number: u32::try_from(number).unwrap_or(u32::MAX), seed: dice.random(), levels }
    };
    Plan { cells: (0..networks).map(&mut cell).collect(), impossible: Vec::new(), covered_after: 0 }
}

fn pairs() -> Vec<(Level, Level)> {
    let mut pairs = Vec::new();
    for (i, first) in ALL.iter().enumerate() {
        for (j, second) in ALL.iter().enumerate().skip(i + 1) {
            for a in (0..).take(first.levels.len()) {
                pairs.extend((0..).take(second.levels.len()).map(|b| ((i, a), (j, b))));
            }
        }
    }
    pairs
}

fn has(levels: &Levels, (factor, level): Level) -> bool {
    levels.get(factor) == Some(&level)
}

fn meets(levels: &Levels, (a, b): (Level, Level)) -> bool {
    has(levels, a) && has(levels, b)
}

/// Levels by weight, those given forced; `None` where they contradict each other. Outside the heart the first level weighs
/// `calm` times as much as it says.
fn draw(dice: &mut StdRng, forced: &[Level], calm: u32) -> Option<Levels> {
    let mut levels = [0; FACTORS];
    for ((index, factor), level) in ALL.iter().enumerate().zip(&mut levels) {
        *level = match forced.iter().find(|(forced, _)| *forced == index) {
            Some((_, level)) => *level,
            None => weighted(dice, factor.levels, if index < CORE { 1 } else { calm }),
        };
    }
    Numbers::of_levels(&levels).seconds.map(|_| levels)
}

fn weighted(dice: &mut StdRng, levels: &[(&str, u32)], first: u32) -> u8 {
    let weight = |index: u8, weight: u32| if index == 0 { weight * first } else { weight };
    let weights = || (0..).zip(levels).map(|(index, (_, w))| (index, weight(index, *w)));
    let mut left = dice.random_range(0..weights().map(|(_, weight)| weight).sum());
    for (index, weight) in weights() {
        if left < weight {
            return index;
        }
        left -= weight;
    }
    0
}

fn triples(levels: &Levels) -> impl Iterator<Item = [Level; 3]> {
    let at = |index: usize| (index, levels.get(index).copied().unwrap_or(0));
    let mut triples = Vec::new();
    for i in 0..CORE {
        for j in i + 1..CORE {
            triples.extend((j + 1..CORE).map(|k| [at(i), at(j), at(k)]));
        }
    }
    triples.into_iter()
}

fn name((factor, level): Level) -> String {
    let factor = ALL.get(factor);
    let level = factor.and_then(|factor| factor.levels.get(usize::from(level)));
    format!("{} {}", factor.map_or("?", |factor| factor.name), level.map_or("?", |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_meets_or_is_named() {
        let plan = plan(1, 300);
        assert!(plan.cells.len() >= 300 && plan.covered_after < 300, "{} for all pairs", plan.covered_after);
        let named =
            |cell: &Cell, (factor, level): Level| cell.is(ALL[factor].name, ALL[factor].levels[usize::from(level)].0);
        let missing: Vec<String> = pairs()
            .into_iter()
            .filter(|(a, b)| !plan.cells.iter().any(|cell| named(cell, *a) && named(cell, *b)))
            .map(|(a, b)| format!("{} with {}", name(a), name(b)))
            .collect();
        assert_eq!(missing, plan.impossible);
        assert!(missing.len() < 12, "{missing:?}");
        let seconds: Option<Vec<f64>> = plan.cells.iter().map(|cell| cell.numbers().seconds).collect();
        assert!(seconds.is_some(), "a cell that cannot be");
    }

    #[test]
    fn a_seed_gives_one_plan() {
        assert_eq!(plan(7, 300).cells, plan(7, 300).cells);
        assert_ne!(plan(7, 300).cells, plan(8, 300).cells);
    }

    #[test]
    fn mixed_networks_have_every_kind_with_both_families_of_congestion_control() {
        let cells = mixed(1, 66).cells;
        assert_eq!(cells, mixed(1, 66).cells);
        assert_ne!(cells, mixed(2, 66).cells);
        for (kind, ..) in KINDS {
            for (work, bbr) in [("mixed", true), ("mixed", false), ("web", true), ("web", false)] {
                let is = |cell: &&Cell| cell.is("kind", kind) && cell.is("work", work) && cell.is("cc", "bbr") == bbr;
                assert!(cells.iter().any(|cell| is(&cell)), "{kind}, {work}, BBR: {bbr}");
            }
        }
        assert!(cells.iter().all(|cell| cell.numbers().rate.0 <= 20_000_000 && cell.numbers().seconds == Some(20.0)));
    }
}
