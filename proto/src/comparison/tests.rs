//! The comparison with transfers of which the truth is known.

#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes and times of transfers")]

use super::*;
use crate::report::Transport;
use crate::units::Segments;

/// Numbers that are the same at every run (`SplitMix64`, Steele, Lea and Flood 2014).
struct Draws(u64);

impl Draws {
    /// Between 0 and 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A time around 1: of one round trip or several, now and then of a timeout.
    fn noise(&mut self) -> f64 {
        let late = if self.part() < 0.02 { 3.0 } else { 0.0 };
        0.6 + 0.8 * self.part() + late
    }

    fn size(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.part())
    }
}

fn transfer(arm: Arm, size: f64, ms: f64) -> ConnectionReport {
    ConnectionReport {
        host: ([10, 0, 0, 1], 443).into(),
        remote: ([192, 0, 2, 1], 50_000).into(),
        ended_ago: Micros(0),
        duration: Some(Micros((ms * 1_000.0) as u64)),
        end_window: None,
        mss: None,
        srtt: None,
        rtt_min: None,
        acknowledged: Bytes(size as u64),
        retransmitted: Segments(0),
        first_flight_loss: None,
        first_flight: None,
        limited_by: None,
        arm: Some(arm),
        advised: None,
        refusal: None,
        paused: false,
        transport: Transport::Tcp,
        loss_window: None,
        congestion_events: 0,
        ended_in_slow_start: None,
        careful_resume: None,
    }
}

/// Its time: 50 ms and 1 Mbit/s.
fn plain_ms(size: f64) -> f64 {
    50.0 + size * 8.0 / 1_000.0
}

/// The class of 1.2 MB to 12 MB, the widest, with sizes all over it; advised transfers take `factor` of the time.
fn experiment(seed: u64, control: f64, factor: f64) -> ClassSummary {
    let mut draws = Draws(seed);
    let mut comparison = Comparison::default();
    for _ in 0..1_500 {
        let size = draws.size(1_200_001.0, 12_000_000.0);
        let held_out = draws.part() < control;
        let (arm, factor) = if held_out { (Arm::Control, 1.0) } else { (Arm::Advised, factor) };
        comparison.take(&transfer(arm, size, plain_ms(size) * draws.noise() * factor));
    }
    comparison.classes().remove(5)
}

const SEEDS: u64 = 600;

#[test]
fn the_interval_holds_the_truth_as_often_as_it_says() {
    for (control, percent) in [(0.5, 0.0), (0.1, 0.0), (0.5, -20.0), (0.1, -20.0)] {
        let factor = 1.0 + percent / 100.0;
        let intervals = (0..SEEDS).map(|seed| {
            let class = experiment(seed, control, factor);
            assert!(class.not_compared < 400, "{}", class.not_compared);
            class.difference.completion_ms.unwrap().percent.unwrap()
        });
        let missed: Vec<[f64; 3]> = intervals.filter(|[_, low, high]| *low > percent || *high < percent).collect();
        let below = missed.iter().filter(|[_, _, high]| *high < percent).count();
        // 5 % of 600 are 30, with a standard deviation of 5.3.
        assert!(missed.len() <= 46, "{control} {factor}: {} of {SEEDS}", missed.len());
        assert!(below <= 30, "{control} {factor}: a benefit that is too large, {below} of {SEEDS}");
        if percent > -1.0 {
            assert!(missed.len() >= 14, "{control}: an interval that is too wide is wrong, too: {}", missed.len());
        }
    }
}

#[test]
fn a_benefit_is_seen_that_the_spread_of_sizes_would_hide() {
    let seen = (0..100).filter(|seed| {
        let difference = experiment(*seed, 0.3, 0.8).difference.completion_ms.unwrap();
        difference.high < 0.0
    });
    assert_eq!(seen.count(), 100);
}

#[test]
fn other_sizes_in_each_arm_make_no_benefit() {
    let mut benefits = 0;
    let mut mean = 0.0;
    for seed in 0..200 {
        let mut draws = Draws(seed);
        let mut comparison = Comparison::default();
        // Files of two sizes; the advised arm has two small for a large one, the control group the other way round.
        for n in 0..600 {
            let (arm, small) = if n % 2 == 0 { (Arm::Advised, 0.67) } else { (Arm::Control, 0.33) };
            let size = if draws.part() < small { 130_000.0 } else { 350_000.0 };
            comparison.take(&transfer(arm, size, plain_ms(size) * draws.noise()));
        }
        let class = comparison.classes().remove(3);
        assert_eq!(class.size, "300kB");
        assert!(class.advised.completion_mean_ms < class.control.completion_mean_ms.map(|ms| ms * 0.9));
        let difference = class.difference.completion_ms.unwrap();
        benefits += u32::from(difference.high < 0.0);
        mean += difference.percent.unwrap()[0] / 200.0;
    }
    assert!(benefits <= 12 && mean.abs() < 1.0, "{benefits} of 200, {mean} %");
}

#[test]
fn strata_with_too_few_are_counted_and_left_out() {
    let mut comparison = Comparison::default();
    for n in 0..5 {
        comparison.take(&transfer(Arm::Advised, 100_000.0, 200.0 + f64::from(n)));
        comparison.take(&transfer(Arm::Control, 100_000.0, 300.0 + f64::from(n)));
        comparison.take(&transfer(Arm::Control, 50_000.0, 5_000.0));
    }
    let class = comparison.classes().remove(2);
    assert_eq!((class.not_compared, class.control.transfers), (5, 10));
    let mean = class.difference.completion_ms.unwrap().mean;
    assert!((mean + 100.0).abs() < 0.001, "{mean}");
    assert_eq!(class.control.completion_mean_ms, Some(2_651.0), "of all");
}
