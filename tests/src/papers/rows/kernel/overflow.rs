//! Where slow start overflows a buffer (Barakat & Altman).

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, Result};
use spand_proto::growth::Growth;
use spand_proto::growth::threshold::{fastest_growth, first_overflow};
use spand_proto::start::Shape;
use spand_proto::units::BytesPerSecond;

use super::lanes::{Lane, PACKET_BYTES, SEGMENT_BYTES, stream};
use crate::advised::Advice;
use crate::lab::path::{PathConfig, Queue};
use crate::papers::ns::Figures;
use crate::papers::row::{Judged, Outcomes, Programs, Setting};

/// 1.5 Mbit/s.
const RATE: BytesPerSecond = BytesPerSecond(187_500);
/// Each way.
const DELAY: Duration = Duration::from_millis(280);
const TIME: Duration = Duration::from_secs(12);
const BUFFERS: [u32; 3] = [20, 50, 100];
/// The host's own window.
const INITIAL: u32 = 10;

/// As the paper has it: a threshold of the pipe, and `d` rising to 2.
const DBC: &str = "dbc_2";
/// A threshold at all that the path holds, and `d` rising to what the buffer then needs.
const DBC_ENOUGH: &str = "dbc_enough";
const BUFFER: &str = "buffer";
const ARMS: [&str; 5] = ["reno", "cubic", BUFFER, DBC, DBC_ENOUGH];

/// Rate times empty round trip, in packets.
fn pipe() -> f64 {
    RATE.0 as f64 * 2.0 * DELAY.as_secs_f64() / PACKET_BYTES as f64
}

/// One arm of a path with this buffer. Its advice: the buffer, and all that the path holds as the window at losses.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "packets of a path")]
fn lane(arm: &str, buffer: u32) -> Result<Lane> {
    let path = PathConfig::bottleneck(RATE, DELAY, Queue::Packets(buffer));
    let (b, rtt) = (f64::from(buffer), path.base_rtt());
    let most = b + pipe();
    let growing = |threshold: f64, dmax: f64| {
        let dmax = NonZeroU32::new(dmax as u32).context("growth of no segment")?;
        let start = Advice::start(INITIAL, threshold as u32, SEGMENT_BYTES, rtt);
        anyhow::Ok(Some(start.growing(Growth::Dbc { dmax })))
    };
    let advice = match arm {
        BUFFER => {
            let mut advice = Advice::shape(Shape::Threshold, rtt);
            advice.inputs.opening_half_bytes = (2.0 * most) as u64 * SEGMENT_BYTES;
            advice.inputs.overflow_bytes = first_overflow(b, pipe(), 1.0) as u64 * SEGMENT_BYTES;
            Some(advice)
        }
        DBC => growing(pipe(), 2.0)?,
        DBC_ENOUGH => growing(most, fastest_growth(b, pipe(), most, 0.0).ceil().max(1.0))?,
        _ => None,
    };
    Ok(Lane { control: if arm == "cubic" { "cubic" } else { "reno" }, advice, path })
}

pub(super) fn run(setting: &Setting, _seed: u64, _programs: &Programs) -> Result<Figures> {
    let buffer: u32 = setting.option("buffer")?;
    let lanes: Vec<Lane> = ARMS.into_iter().map(|arm| lane(arm, buffer)).collect::<Result<_>>()?;
    let mut figures = Figures::new();
    for (arm, course) in ARMS.into_iter().zip(stream(&lanes, TIME)?) {
        let loss = course.first_loss();
        let in_slow_start = loss.as_ref().is_some_and(|loss| loss.in_slow_start);
        figures.insert(in_slow_start_of(arm), f64::from(u8::from(in_slow_start)));
        if let Some(loss) = loss {
            figures.insert(window_of(arm), f64::from(loss.window));
            figures.insert(format!("{arm}_seconds_to_first_loss"), loss.seconds);
        }
        let end = TIME.as_secs_f64();
        figures.insert(bytes_of(arm), course.bytes(end).context("bytes")?);
        figures.insert(repeats_of(arm), course.repeats(end).context("repeats")?);
        figures.extend(course.least_offer_bytes().map(|value| (format!("{arm}_least_offer_bytes"), value)));
    }
    Ok(figures)
}

fn window_of(arm: &str) -> String {
    format!("{arm}_window_at_first_loss_segments")
}

/// 1 where the first loss came in slow start, 0 where later or not at all.
fn in_slow_start_of(arm: &str) -> String {
    format!("{arm}_in_slow_start")
}

fn bytes_of(arm: &str) -> String {
    format!("{arm}_bytes")
}

fn repeats_of(arm: &str) -> String {
    format!("{arm}_repeats")
}

pub(super) fn judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for buffer in BUFFERS {
        let setting = format!("buffer{buffer}");
        let one = |figure: String| outcomes.one(&setting, &figure);
        let model = first_overflow(f64::from(buffer), pipe(), 1.0);
        let lost_in_slow_start = |arm| one(in_slow_start_of(arm)).map(|lost| lost > 0.0);
        let in_words = |arm| {
            let window = one(window_of(arm)).map_or("no loss".to_owned(), |window| {
                let when = if lost_in_slow_start(arm) == Some(true) { "in slow start" } else { "later" };
                format!("{window:.0} ({:.2} x), {when}", window / model)
            });
            let (bytes, repeats) = (one(bytes_of(arm))? / 1e3, one(repeats_of(arm))?);
            Some(format!("{window}; {bytes:.0} kB and {repeats:.0} repeats in {} s", TIME.as_secs()))
        };
        let is_near = one(window_of("reno")).is_some_and(|window| (1.0..=1.45).contains(&(window / model)));
        let is_near = is_near && lost_in_slow_start("reno") == Some(true);
        let what = |arm: &str| format!("B = {buffer}, {arm}: window of the first loss");
        judged.target(
            what("reno"),
            format!("{model:.0} to {:.0}", 1.45 * model),
            in_words("reno").map(|found| (found, is_near)),
        );
        for arm in [BUFFER, DBC_ENOUGH] {
            let is_met = lost_in_slow_start(arm) == Some(false);
            judged.target(what(arm), "none in slow start", in_words(arm).map(|found| (found, is_met)));
        }
        for arm in [DBC, "cubic"] {
            judged.report(what(arm), "", in_words(arm));
        }
    }
    judged
}
