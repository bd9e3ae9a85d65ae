//! When advised transfers are found to be slower, and when not.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times, clients and ports that are drawn")]

use super::super::tests::at;
use super::*;

const ADVISED: usize = 0;
const CONTROL: usize = 1;

/// Numbers that are the same at every run (`SplitMix64`, Steele, Lea and Flood 2014).
struct Draws(u64);

impl Draws {
    /// Above 0, up to 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((mixed ^ (mixed >> 31)) >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// A time of a transfer of a class: its round trips, and a tail of infinite variance (Pareto's, 1.2).
    fn us(&mut self, class: usize) -> f64 {
        50_000.0 * (class + 1) as f64 * self.part().powf(-1.0 / 1.2)
    }
}

fn network() -> Network {
    "192.0.2.0/24".parse().unwrap()
}

/// A transfer of a client that took this long and began at `at(0)`.
fn transfer(client: u8, port: u16, (class, arm): (usize, usize), us: f64) -> Transfer {
    let ends = [([10, 0, 0, 1], 443).into(), ([192, 0, 2, client], port).into()];
    Transfer { ends, place: Place { class, arm, duration: Micros(us as u64) }, began: at(0) }
}

/// Transfers of one half hour after which advice is taken back, if it is; with this part of controls, and advised ones that take `factor`
/// times as long.
fn until_taken_back(seed: u64, transfers: u32, control: f64, factor: f64) -> Option<u32> {
    let (mut draws, mut comparisons) = (Draws(seed << 32), Comparisons::default());
    (1..=transfers).find(|_| {
        let class = (draws.part() * 4.0) as usize % 4;
        let (arm, factor) = if draws.part() < control { (CONTROL, 1.0) } else { (ADVISED, factor) };
        let us = draws.us(class) * factor;
        let (client, port) = ((draws.part() * 200.0) as u8, (draws.part() * 60_000.0) as u16);
        comparisons.take(network(), &transfer(client, port, (class, arm), us), (at(0), false), at(1_000))
    })
}

/// For the figures of the decision's page 2,000.
const HALF_HOURS: u64 = 200;

/// How often equal arms are taken for harm, and how soon harm is seen: `--nocapture` shows the figures of the decision's page.
#[test]
fn equal_arms_are_hardly_ever_harm_and_a_slower_one_soon_is() {
    for (control, transfers) in [(0.05, 6_000), (0.5, 1_500)] {
        let false_alarms =
            (0..HALF_HOURS).filter(|seed| until_taken_back(*seed, transfers, control, 1.0).is_some()).count();
        println!("{control}: {false_alarms} of {HALF_HOURS} half hours with {transfers} transfers of equal arms");
        assert!(false_alarms <= 1, "{false_alarms}");
        for (factor, most) in [(1.5, 0.6), (2.0, 0.3)] {
            let mut taken: Vec<u32> =
                (0..50).map(|seed| until_taken_back(seed, 20_000, control, factor).unwrap_or(u32::MAX)).collect();
            taken.sort_unstable();
            println!("{control}, {factor}: after {} transfers, median; 90 %: {}", taken[25], taken[45]);
            assert!(f64::from(taken[25]) < most * f64::from(transfers), "{taken:?}");
        }
    }
}

#[test]
fn advice_that_makes_transfers_faster_stays() {
    assert_eq!(until_taken_back(7, 20_000, 0.5, 0.5), None);
}

/// Takes 30 transfers of each of these clients and arms, advised ones of 200 ms and others of 100; how often they lead to a retreat.
fn take_slow(comparisons: &mut Comparisons, clients: &[u8], steady: (Timestamp, bool), now: Timestamp) -> usize {
    let mut draws = Draws(1);
    let mut slower = 0;
    for n in 0..30 {
        for client in clients {
            for (arm, us) in [(ADVISED, 200_000.0), (CONTROL, 100_000.0)] {
                let us = us * (0.9 + 0.2 * draws.part());
                let transfer = Transfer { began: now, ..transfer(*client, 40_000 + n, (2, arm), us) };
                slower += usize::from(comparisons.take(network(), &transfer, steady, now));
            }
        }
    }
    slower
}

/// Of clients with an odd and an even number of bits.
const ODD: u8 = 1;
const EVEN: u8 = 3;

#[test]
fn one_client_takes_its_neighbours_no_advice_and_alone_its_own() {
    for (clients, is_alone, expected) in
        [(&[ODD, EVEN][..], false, 1), (&[ODD], false, 0), (&[EVEN], false, 0), (&[ODD, ODD], true, 1)]
    {
        let slower = take_slow(&mut Comparisons::default(), clients, (at(0), is_alone), at(0));
        assert_eq!(slower, expected, "{clients:?} {is_alone}");
    }
    let mut comparisons = Comparisons::default();
    let mut draws = Draws(2);
    for arm in [ADVISED, CONTROL].repeat(30) {
        let neighbour = transfer(EVEN, 1, (2, arm), 100_000.0 + 20_000.0 * draws.part());
        assert!(!comparisons.take(network(), &neighbour, (at(0), false), at(0)));
    }
    assert_eq!(take_slow(&mut comparisons, &[ODD], (at(0), false), at(0)), 0, "its neighbour's are no slower");
}

#[test]
fn harm_is_more_than_a_twentieth() {
    for (percent, expected) in [(3.0, false), (8.0, true)] {
        let (mut comparisons, mut draws) = (Comparisons::default(), Draws(3));
        let of_all = [(ODD, ADVISED), (ODD, CONTROL), (EVEN, ADVISED), (EVEN, CONTROL)].repeat(100);
        let is_slower = of_all.into_iter().any(|(client, arm)| {
            let percent = if arm == ADVISED { percent } else { 0.0 };
            let us = 1_000.0 * (99.0 + percent + 2.0 * draws.part());
            comparisons.take(network(), &transfer(client, 1, (2, arm), us), (at(0), false), at(0))
        });
        assert_eq!(is_slower, expected, "{percent} %");
    }
}

#[test]
fn a_comparison_ends_with_the_half_hour_and_with_the_advice_that_it_is_of() {
    let steady = (at(0), false);
    // A half hour of the clock begins 800 s after `at(0)`.
    for (then, now, expected) in
        [(steady, at(799_999), 1), (steady, at(800_000), 0), ((at(1), false), at(1), 0), ((at(1), false), at(0), 0)]
    {
        let mut comparisons = Comparisons::default();
        assert_eq!(take_slow(&mut comparisons, &[ODD], steady, at(0)), 0);
        assert_eq!(take_slow(&mut comparisons, &[EVEN], then, now), expected, "{then:?} {now:?}");
    }
    let mut comparisons = Comparisons::default();
    take_slow(&mut comparisons, &[ODD], steady, at(0));
    comparisons.take(network(), &transfer(ODD, 1, (0, CONTROL), 1.0), (at(0), true), at(0));
    assert_eq!(take_slow(&mut comparisons, &[EVEN], steady, at(0)), 0, "it was alone in between");
}

#[test]
fn networks_that_are_compared_are_bounded_and_begin_with_a_control() {
    let mut comparisons = Comparisons::default();
    let mut take = |n: u32, arm, now| {
        let network = Network::of(std::net::Ipv4Addr::from_bits(n << 8).into());
        comparisons.take(network, &Transfer { began: now, ..transfer(1, 1, (0, arm), 1.0) }, (at(0), false), now);
        comparisons.networks.len()
    };
    assert_eq!([take(1, ADVISED, at(0)), take(1, CONTROL, at(0)), take(2, ADVISED, at(0))], [0, 1, 1]);
    for n in 0..5_000 {
        take(n, CONTROL, at(0));
    }
    assert_eq!([take(9_000, CONTROL, at(0)), take(9_000, CONTROL, at(800_000))], [NETWORKS, 1]);
}
