//! Reports of QUIC connections on their way from the API to an estimate that is published.

use spand_core::networks::reported::ReportRefused;
use spand_proto::report::{ConnectionReport, LimitedBy, Transport};
use spand_proto::units::Segments;

use super::*;
use crate::publisher::Client;

const NETWORK: &str = "203.0.113.0/24";
const MSS: u64 = 1_252;

/// A connection that lost at this window in congestion avoidance and ended just now.
fn quic(remote: u8, window_segments: f64) -> ConnectionReport {
    ConnectionReport {
        host: (HOST, 443).into(),
        remote: ([203, 0, 113, remote], 50_000).into(),
        ended_ago: Micros(200_000),
        duration: Some(Micros(3_000_000)),
        end_window: Some(Bytes(20 * MSS)),
        mss: Some(Bytes(MSS)),
        srtt: Some(Micros(50_000)),
        rtt_min: Some(Micros(40_000)),
        acknowledged: Bytes(4_000_000),
        retransmitted: Segments(3),
        first_flight_loss: Some(false),
        first_flight: None,
        limited_by: Some(LimitedBy::Window),
        arm: None,
        advised: None,
        refusal: None,
        paused: false,
        transport: Transport::Quic,
        loss_window: Some(Bytes(Window::from_bytes(window_segments * MSS as f64).unwrap().half_bytes() / 2)),
        congestion_events: 3,
        ended_in_slow_start: Some(false),
        careful_resume: None,
    }
}

/// Waits a second, and has a host report.
fn pass(bench: &mut Bench, host: &str, reports: &[ConnectionReport]) -> Vec<bool> {
    bench.clock.0.fetch_add(1_000_000_000, Ordering::SeqCst);
    let client = Client::Certificate(host.to_owned());
    let passed = bench.published.pass_reports(&client, reports.iter()).collect();
    bench.worker.take_reported();
    bench.worker.publish_state();
    passed
}

#[test]
fn a_network_with_quic_alone_has_a_share_within_15_percent_of_its_path() {
    let network: Network = NETWORK.parse().unwrap();
    for path in [12.0, 37.0, 400.0] {
        let mut bench = bench();
        // Peaks of the sawtooth lie between 0.9 and 1.1 of the path's share, a segment above it.
        for n in 0..60_u8 {
            let around = path * (0.9 + 0.02 * f64::from(n % 11)) + 1.0;
            let host = format!("web-{}", n % 3);
            assert_eq!(pass(&mut bench, &host, &[quic(n % 20, around)]), [true]);
        }
        let estimate = bench.published.estimate(network).expect("it is published");
        let share = estimate.share.segments_f64(estimate.mss);
        assert!((share / path - 1.0).abs() < 0.15, "{share} of {path}");
        assert_eq!((estimate.mss, estimate.rtt_mean), (Bytes(MSS), Some(Micros(50_000))));
        let view = bench.published.network(network).unwrap();
        let reported = view.reported.unwrap();
        assert_eq!((reported.samples, reported.hosts, reported.in_force, view.samples), (60, 3, true, 0));
        assert_eq!(bench.published.engine().reports.taken, 60);
        let engine = bench.published.engine().counters;
        assert_eq!((engine.window_samples, engine.rtt_samples), (0, 0), "of the wire is nothing");
    }
}

#[test]
fn what_is_refused_is_counted_by_its_reason_and_the_queue_is_bounded() {
    let mut bench = bench();
    let tcp = ConnectionReport { transport: Transport::Tcp, ..quic(1, 30.0) };
    let old = ConnectionReport { ended_ago: Micros::from_secs(61), ..quic(1, 30.0) };
    let known = ConnectionReport { remote: (REMOTE, 50_000).into(), ..quic(1, 30.0) };
    pass(&mut bench, "web-1", &[tcp, old, known]);
    let counts = bench.published.engine().reports;
    let refused: Vec<_> = counts.refused().filter(|(_, count)| *count > 0).collect();
    assert_eq!(refused, [(ReportRefused::Tcp, 1), (ReportRefused::Old, 1), (ReportRefused::Wire, 1)]);
    assert_eq!(counts.taken, 0);

    let passed = pass(&mut bench, "web-1", &vec![quic(1, 30.0); 5_000]);
    assert_eq!(passed.iter().filter(|passed| **passed).count(), 4_096);
    let refused = |bench: &Bench| bench.published.engine().reports.refused().map(|(_, count)| count).sum::<u64>();
    assert!(refused(&bench) < 100 && bench.worker.more_waits, "packets wait for a few of them at a time");
    while std::mem::take(&mut bench.worker.more_waits) {
        bench.worker.take_reported();
    }
    bench.worker.publish_state();
    assert_eq!((refused(&bench), bench.published.engine().reports.taken), (3 + 4_092, 4), "of one host four count");
}
