//! A transfer over a satellite, with a threshold that the connection measures (Aron & Druschel).

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use spand_proto::start::{NO_THRESHOLD, Shape};
use spand_proto::units::BytesPerSecond;

use super::lanes::{Lane, stream};
use crate::advised::Advice;
use crate::lab::path::{PathConfig, Queue};
use crate::papers::ns::Figures;
use crate::papers::row::{Judged, Outcomes, Programs, Row, Setting, Way};

/// 1.5 Mbit/s.
const RATE: BytesPerSecond = BytesPerSecond(187_500);
/// Each way.
const DELAY: Duration = Duration::from_millis(290);
const QUEUE_PACKETS: u32 = 70;
const TIME: Duration = Duration::from_secs(22);
/// Seconds after which bytes and repeats are read.
const MOMENTS: [u32; 4] = [3, 5, 10, 20];
const ARMS: [&str; 4] = ["cubic", "reno", "own_threshold", "own_paced"];
const SETTING: &str = "side-by-side";

/// K4.
pub(super) fn satellite() -> Row {
    Row {
        id: "K4",
        what: "Aron & Druschel, a satellite link: 1.5 Mbit/s, 580 ms, 70 packets of 524 bytes; side by side on paths of their own",
        expected: "measured threshold: at least twice Reno's bytes at 20 s with fewer repeats; paced slow start: more bytes than that at 3 s",
        source: "band of this project; Linux's initial window, SACK and recovery",
        way: Way::Kernel { version: 1, run },
        seeds: 3,
        quick_seeds: 1,
        settings: vec![Setting::new(SETTING, &[])],
        judge: judged,
    }
}

fn run(_setting: &Setting, _seed: u64, _programs: &Programs) -> Result<Figures> {
    let path = PathConfig::bottleneck(RATE, DELAY, Queue::Packets(QUEUE_PACKETS));
    let lane = |arm| {
        let advice = |shape| Some(Advice::shape(shape, path.base_rtt()));
        let (control, advice) = match arm {
            "cubic" => ("cubic", None),
            "reno" => ("reno", None),
            "own_threshold" => ("reno", advice(Shape::OwnThreshold)),
            "own_paced" => ("reno", advice(Shape::OwnPaced)),
            other => bail!("`{other}` is no arm"),
        };
        Ok(Lane { control, advice, path })
    };
    let lanes: Vec<Lane> = ARMS.into_iter().map(lane).collect::<Result<_>>()?;
    let mut figures = Figures::new();
    for (arm, course) in ARMS.into_iter().zip(stream(&lanes, TIME)?) {
        for moment in MOMENTS {
            let bytes = course.bytes(f64::from(moment)).context("bytes")?;
            figures.insert(bytes_at(arm, moment), bytes);
            figures.insert(repeats_at(arm, moment), course.repeats(f64::from(moment)).context("repeats")?);
        }
        figures.extend(course.first_threshold(NO_THRESHOLD.0).map(|value| (threshold_of(arm), value)));
        figures.extend(course.least_offer_bytes().map(|value| (format!("{arm}_least_offer_bytes"), value)));
    }
    Ok(figures)
}

fn bytes_at(arm: &str, second: u32) -> String {
    format!("{arm}_bytes_at_{second}_s")
}

fn repeats_at(arm: &str, second: u32) -> String {
    format!("{arm}_repeats_at_{second}_s")
}

fn threshold_of(arm: &str) -> String {
    format!("{arm}_first_threshold_segments")
}

fn judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    let mean = |figure: String| outcomes.mean(SETTING, &figure).map(|mean| mean.value);
    let ratio =
        |of: &str, to: &str, second| mean(bytes_at(of, second)).zip(mean(bytes_at(to, second))).map(|(of, to)| of / to);
    let found = ratio("own_threshold", "reno", 20).map(|ratio| (format!("{ratio:.2}"), ratio >= 2.0));
    judged.target("measured threshold, bytes at 20 s, times Reno's", "2 or more", found);
    let found = mean(repeats_at("own_threshold", 20)).zip(mean(repeats_at("reno", 20)));
    let found = found.map(|(ours, theirs)| (format!("{ours:.0} of {theirs:.0}"), ours < theirs));
    judged.target("measured threshold, repeats by 20 s, of Reno's", "fewer", found);
    let found = ratio("own_paced", "own_threshold", 3).map(|ratio| (format!("{ratio:.2}"), ratio > 1.0));
    judged.target("paced slow start, bytes at 3 s, times the threshold alone", "above 1", found);
    for arm in ARMS {
        let bytes: Option<Vec<String>> =
            MOMENTS.iter().map(|second| Some(format!("{:.0}", mean(bytes_at(arm, *second))? / 1e3))).collect();
        judged.report(format!("{arm}: kilobytes at 3, 5, 10, 20 s"), "", bytes.map(|bytes| bytes.join(", ")));
        let repeats: Option<Vec<String>> =
            MOMENTS.iter().map(|second| Some(format!("{:.0}", mean(repeats_at(arm, *second))?))).collect();
        judged.report(format!("{arm}: repeats by then"), "", repeats.map(|repeats| repeats.join(", ")));
        let threshold = mean(threshold_of(arm)).map_or("none".to_owned(), |value| format!("{value:.0} segments"));
        judged.report(format!("{arm}: its first threshold (pipe: 207 packets)"), "", Some(threshold));
    }
    judged
}
