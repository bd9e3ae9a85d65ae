//! A transfer over a satellite, with a threshold that the connection measures (Aron & Druschel).

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use spand_proto::start::{NO_THRESHOLD, Shape};
use spand_proto::units::BytesPerSecond;

use super::lanes::{Lane, stream};
use crate::advised::Advice;
use crate::lab::path::{PathConfig, Queue};
use crate::papers::ns::Figures;
use crate::papers::row::{Programs, Setting};

/// 1.5 Mbit/s.
const RATE: BytesPerSecond = BytesPerSecond(187_500);
/// Each way.
const DELAY: Duration = Duration::from_millis(290);
const QUEUE_PACKETS: u32 = 70;
const TIME: Duration = Duration::from_secs(22);
/// Seconds after which bytes and repeats are read.
const MOMENTS: [u32; 4] = [3, 5, 10, 20];
const ARMS: [&str; 4] = ["cubic", "reno", "own_threshold", "own_paced"];

pub(super) fn run(_setting: &Setting, _seed: u64, _programs: &Programs) -> Result<Figures> {
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
