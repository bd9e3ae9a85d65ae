//! When each row is met: with each target just held, short with any of them just missed, and incomplete without results.

use crate::papers::ns::Figures;
use crate::papers::row::{Outcomes, Row, Verdict};
use crate::papers::rows;

type Changed<'a> = (&'a str, &'a str, f64);

/// The figures of a row's first seed, by setting.
struct Base {
    row: Row,
    settings: Vec<(String, Figures)>,
}

impl Base {
    fn new(id: &str, figures: impl Fn(&str) -> Figures) -> Self {
        let row = rows::all().expect("rows").into_iter().find(|row| row.id == id).expect("a row");
        let settings = row.settings.iter().map(|setting| (setting.name.clone(), figures(&setting.name))).collect();
        Self { row, settings }
    }

    fn verdict_of(&self, outcomes: &Outcomes) -> Verdict {
        self.row.judge(outcomes).expect("queries").verdict()
    }

    fn verdict(&self, changed: &[Changed<'_>]) -> Verdict {
        let mut outcomes = Outcomes::default();
        for (setting, figures) in &self.settings {
            let mut figures = figures.clone();
            for (.., figure, value) in changed.iter().filter(|(of, ..)| of == setting) {
                assert!(figures.contains_key(*figure), "{setting} has no {figure}");
                figures.insert((*figure).to_owned(), *value);
            }
            outcomes.0.entry(setting.clone()).or_default().insert(1, figures);
        }
        self.verdict_of(&outcomes)
    }

    /// Met as it is and with each of `held`, short with each of `missed`.
    fn check(&self, held: &[Changed<'_>], missed: &[Changed<'_>]) {
        assert_eq!(self.verdict(&[]), Verdict::Met, "{}", self.row.id);
        for change in held {
            assert_eq!(self.verdict(&[*change]), Verdict::Met, "{}: {change:?}", self.row.id);
        }
        for change in missed {
            assert_eq!(self.verdict(&[*change]), Verdict::Short, "{}: {change:?}", self.row.id);
        }
        assert_eq!(self.verdict_of(&Outcomes::default()), Verdict::Incomplete, "{}", self.row.id);
    }
}

fn of(names: &[&str], figures: &[(&str, f64)]) -> Figures {
    let each = |name| figures.iter().map(move |(figure, value)| (format!("{name}_{figure}"), *value));
    names.iter().flat_map(each).collect()
}

const CROWD: [&str; 6] = ["reno1", "reno", "liss", "iss", "miss", "js"];

fn crowd(_setting: &str) -> Figures {
    of(
        &CROWD,
        &[("first_5_s_packets", 100.0), ("total_packets", 1_000.0), ("starts_on_advice", 9.0), ("connections", 9.0)],
    )
}

#[test]
fn long_lives_are_judged_by_liss_and_by_jump_start() {
    let base = Base::new("K2", |setting| {
        let mut figures = crowd(setting);
        figures.insert("liss_first_5_s_packets".to_owned(), 121.0);
        figures.insert("js_first_5_s_packets".to_owned(), 161.0);
        figures
    });
    let (long, short) = ("minutes-20", "minutes-4");
    base.check(
        &[(long, "miss_first_5_s_packets", 50.0), (short, "liss_first_5_s_packets", 50.0)],
        &[(long, "liss_first_5_s_packets", 119.0), (long, "js_first_5_s_packets", 159.0)],
    );
}

#[test]
fn short_lives_are_judged_with_and_without_others() {
    for setting in ["life-5", "life-5-others"] {
        Base::new("K3", crowd).check(
            &[(setting, "js_total_packets", 931.0), (setting, "miss_first_5_s_packets", 99.0)],
            &[(setting, "js_total_packets", 929.0), (setting, "miss_first_5_s_packets", 101.0)],
        );
    }
}

#[test]
fn a_measured_threshold_is_judged_by_bytes_and_by_repeats() {
    let base = Base::new("K4", |_| {
        let mut figures = Figures::new();
        for second in [3, 5, 10, 20] {
            let at = |what: &str| format!("{what}_at_{second}_s");
            figures.extend(of(&["cubic", "reno"], &[(&at("bytes"), 1_000.0), (&at("repeats"), 10.0)]));
            figures.extend(of(&["own_threshold"], &[(&at("bytes"), 2_010.0), (&at("repeats"), 9.0)]));
            figures.extend(of(&["own_paced"], &[(&at("bytes"), 2_020.0), (&at("repeats"), 9.0)]));
        }
        figures
    });
    let setting = "side-by-side";
    base.check(
        &[(setting, "own_paced_repeats_at_20_s", 50.0), (setting, "own_threshold_bytes_at_10_s", 1.0)],
        &[
            (setting, "own_threshold_bytes_at_20_s", 1_990.0),
            (setting, "own_threshold_repeats_at_20_s", 10.0),
            (setting, "own_paced_bytes_at_3_s", 2_010.0),
        ],
    );
}

#[test]
fn every_window_must_follow_and_enough_of_them() {
    let figures = [("acknowledgements", 1_430.0), ("connections", 24.0), ("connections_that_differ", 0.0)];
    let base = Base::new("K5", |_| figures.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect());
    base.check(
        &[("dbc-2", "acknowledgements", 1_420.0)],
        &[("burst-16", "connections_that_differ", 1.0), ("dbc-2", "acknowledgements", 1_419.0)],
    );
}

#[test]
fn an_overflow_is_judged_by_the_window_and_by_when_it_came() {
    // Twice the buffer, which is below what the path and the buffer hold.
    let windows = [("buffer20", 41.0), ("buffer50", 101.0), ("buffer100", 201.0)];
    let base = Base::new("K6", |setting| {
        let window = windows.into_iter().find(|(name, _)| *name == setting).expect("a setting").1;
        let rest = [("bytes", 1_000.0), ("repeats", 1.0)];
        let mut figures = of(&["reno", "cubic", "dbc_2", "buffer", "dbc_enough"], &rest);
        figures.extend(of(
            &["reno", "cubic", "dbc_2"],
            &[("in_slow_start", 1.0), ("window_at_first_loss_segments", window)],
        ));
        figures.extend(of(&["buffer", "dbc_enough"], &[("in_slow_start", 0.0)]));
        figures
    });
    let window = "reno_window_at_first_loss_segments";
    base.check(
        &[("buffer20", window, 57.0), ("buffer50", window, 144.0), ("buffer20", "dbc_2_in_slow_start", 0.0)],
        &[
            ("buffer20", window, 39.0),
            ("buffer20", window, 59.0),
            ("buffer50", "reno_in_slow_start", 0.0),
            ("buffer100", "buffer_in_slow_start", 1.0),
            ("buffer100", "dbc_enough_in_slow_start", 1.0),
        ],
    );
}

#[test]
fn burst_tcp_is_judged_by_time_from_one_segment_and_by_repeats_from_ten() {
    let kinds = ["burst4-from1", "burst8-from1", "burst4-from10", "burst8-from10", "reno1", "reno10", "cubic"];
    let base = Base::new("K7", |_| {
        let mut figures =
            of(&kinds, &[("ms", 1_000.0), ("median_ms", 900.0), ("repeats", 2.0), ("first_flight", 10.0)]);
        figures.insert("burst8-from1_ms".to_owned(), 899.0);
        figures.insert("burst8-from10_repeats".to_owned(), 1.9);
        figures
    });
    for setting in ["flows-250", "flows-1250"] {
        base.check(
            &[(setting, "burst4-from1_ms", 2_000.0), (setting, "burst8-from10_ms", 2_000.0)],
            &[(setting, "burst8-from1_ms", 901.0), (setting, "burst8-from10_repeats", 2.0)],
        );
    }
}

#[test]
fn estimates_of_a_buffer_are_judged_by_median_and_ninth_decile_and_by_those_that_are_missing() {
    const QUEUES: [f64; 9] = [10.0, 20.0, 40.0, 20.0, 30.0, 100.0, 50.0, 40.0, 150.0];
    // The first paths of both settings, as many as `off`, are wrong by this part.
    let with = |off: usize, error: f64, missing: bool| {
        Base::new("K8", |setting| {
            let mut figures = Figures::new();
            for (n, queue) in QUEUES.into_iter().enumerate() {
                figures.insert(format!("path{n}_losses"), 20.0);
                let error = if n < off { error } else { 0.0 };
                if !(missing && n == 8 && setting == "four") {
                    figures.insert(format!("path{n}_buffer_segments"), queue * (1.0 + error));
                }
            }
            figures
        })
    };
    with(0, 0.0, false).check(&[], &[]);
    assert_eq!(with(4, 0.3, false).verdict(&[]), Verdict::Met);
    assert_eq!(with(5, 0.14, false).verdict(&[]), Verdict::Met);
    assert_eq!(with(5, 0.16, false).verdict(&[]), Verdict::Short, "the median");
    assert_eq!(with(2, 0.5, false).verdict(&[]), Verdict::Short, "one in ten");
    assert_eq!(with(2, -0.5, false).verdict(&[]), Verdict::Short, "too small is no better");
    assert_eq!(with(0, 0.0, true).verdict(&[]), Verdict::Short, "one without an estimate");
}

#[test]
fn bottlenecks_are_judged_by_six_senders_and_by_the_losers() {
    let (light, heavy) = ("udp-12", "udp-48");
    let base = Base::new("K1", |setting| {
        let mut figures = Figures::new();
        for senders in [1, 6, 15, 30] {
            for kind in ["product", "cubic", "reno3"] {
                let (loser, gainer) = (setting == "udp-48", senders == 6 && setting == "udp-12");
                let ms = if kind != "product" {
                    100.0
                } else if loser {
                    101.0
                } else if gainer {
                    79.0
                } else {
                    150.0
                };
                let name = format!("{senders}_{kind}");
                figures.extend(of(&[&name], &[("ms", ms), ("repeats", 0.0)]));
            }
        }
        figures
    });
    let missed = [(light, "6_product_ms", 81.0), (heavy, "1_product_ms", 103.0), (heavy, "30_product_ms", 103.0)];
    base.check(&[(light, "1_product_ms", 200.0)], &missed);
}
