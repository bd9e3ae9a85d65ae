//! Thirty made-up days of the gateway: more by day than by night, without drops, and with two hours in which it did not run.

use spand_gateway::totals::{Counts, Differences, Gauges, Point, Step};
use spand_proto::units::Timestamp;
use strum::VariantArray;

const DAY_S: f64 = 86_400.0;
/// When it did not run, in seconds before the present.
const OFF_S: std::ops::Range<f64> = 3.0 * 3_600.0..5.0 * 3_600.0;

/// The steps before this moment, of every resolution.
pub(super) fn before(now: Timestamp) -> Vec<(Step, Point)> {
    let steps = |step: Step| {
        let first = step.beginning(now.before(step.span()));
        (1..step.points() as u64)
            .map(move |n| Timestamp(first.0 + n * step.length().0 * 1_000))
            .map(move |at| (step, at))
    };
    let all = Step::VARIANTS.iter().copied().flat_map(steps);
    let ran = all.filter(|(_, at)| !OFF_S.contains(&now.since(*at).as_secs_f64()));
    ran.filter(|(step, at)| step.beginning(now) > *at).map(|(step, at)| (step, point(step, at, now))).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few million, and not below zero")]
fn point(step: Step, at: Timestamp, now: Timestamp) -> Point {
    let days = at.as_secs_f64() / DAY_S;
    // From 0 at night to 1 by day, and different from one day to the next.
    let busy = (1.0 - (days * std::f64::consts::TAU).cos()) / 2.0 * (1.0 + 0.2 * (days.floor() * 2.4).sin());
    let growth = 1.0 - now.since(at).as_secs_f64() / DAY_S / 60.0;
    let seconds = step.length().as_secs_f64();
    let count = |per_s: f64| (per_s * seconds * growth) as u64;
    let packets = count(400.0 + 1_600.0 * busy);
    let networks = (300.0 * growth) as u64;
    let mut differences = Differences::default();
    differences[2] = Some([-18.0, -18.0 - 10.0 / growth, -18.0 + 10.0 / growth]);
    Point {
        at,
        observed: step.length(),
        counts: Counts {
            packets,
            wire_bytes: packets * 900,
            connections_ended: count(4.0),
            connections_one_sided: count(0.1),
            window_samples: count(2.0),
            losses: count(0.6),
            starts_pushed: count(3.0),
            transfers_advised: count(2.0 + busy),
            transfers_control: count(0.2 + 0.1 * busy),
            ..Counts::default()
        },
        gauges: Gauges { networks, estimates: networks * 4 / 5, agents: 4 },
        differences,
    }
}
