//! The bottleneck's buffer by losses, and lower bounds where too few samples show a share.

use super::*;
use crate::types::SampleReason::Carried;

/// Adds a loss of a connection to `host`. It shows `queued` segments in the queue of a path with a round trip of 20 ms.
fn shown(path: &mut Path, connection: u64, host: u8, queued: f64) {
    let (least, rtt) = (20_000.0, 40_000.0);
    let sample = path.sample(Loss, queued / (1.0 - least / rtt), host);
    path.add(&WindowSample {
        connection: ConnectionId(connection),
        reduced_before: true,
        rtt_min: Some(Micros(20_000)),
        rtt: Some(Micros(40_000)),
        ..sample
    });
}

fn buffer_of(shows: &[(u64, u8, f64)]) -> Option<f64> {
    let mut path = Path::new(RuleKind::Robust);
    for (connection, host, queued) in shows {
        shown(&mut path, *connection, *host, *queued);
    }
    path.estimate()?.buffer.map(|buffer| (buffer.segments_f64(MSS) * 1e6).round() / 1e6)
}

#[test]
fn three_connections_that_agree_show_a_buffer_and_fewer_do_not() {
    assert_eq!(buffer_of(&[(1, 1, 20.0), (2, 2, 20.0), (3, 3, 22.0)]), Some(20.0));
    assert_eq!(buffer_of(&[(1, 1, 20.0), (2, 2, 20.0), (2, 2, 20.0), (1, 1, 20.0)]), None);
    assert_eq!(buffer_of(&[(1, 1, 20.0), (2, 1, 20.0), (3, 1, 22.0)]), Some(20.0), "of one host");
}

#[test]
fn losses_at_any_length_of_the_queue_show_none() {
    assert_eq!(buffer_of(&[(1, 1, 27.0), (2, 2, 10.0), (3, 3, 2.0), (4, 4, 1.0), (5, 5, 1.0), (6, 6, 3.0)]), None);
    let mut of_each = Vec::new();
    for connection in 1..5 {
        for queued in [27.0, 3.0, 2.0, 1.0] {
            of_each.push((connection, u8::try_from(connection).unwrap(), queued));
        }
    }
    assert_eq!(buffer_of(&of_each), None);
}

#[test]
fn one_address_decides_nothing() {
    let honest = [(1, 1, 20.0), (2, 2, 21.0), (3, 3, 22.0), (4, 4, 19.0)];
    for lie in [0.001, 1.0, 1e6, 1e9] {
        let lies = (10..14).map(|connection| (connection, 9, lie));
        let found = buffer_of(&honest.into_iter().chain(lies).collect::<Vec<_>>()).unwrap();
        assert!((20.0..=21.0).contains(&found), "{lie}: {found}");
        // Of two addresses the larger counts: a lie cannot make the buffer smaller.
        let two = [(1, 1, 20.0), (2, 1, 20.0), (3, 2, lie)];
        assert!(buffer_of(&two).is_none_or(|found| found >= 20.0), "{lie}");
    }
}

#[test]
fn senders_at_a_time_share_the_queue() {
    let mut path = Path::new(RuleKind::Robust);
    for connection in 1..5 {
        shown(&mut path, connection, u8::try_from(connection).unwrap(), 10.0);
    }
    // 400 round trips of 100 ms within 10 s.
    path.record.bucket_at(path.now, &path.config).unwrap().window_limited = 400;
    let buffer = path.estimate().unwrap().buffer.unwrap().segments_f64(MSS);
    assert!((buffer - 40.0).abs() < 1e-9, "{buffer}");
}

#[test]
fn what_cannot_be_a_loss_in_a_full_queue_shows_nothing() {
    let not = |change: fn(&mut WindowSample)| {
        let mut path = Path::new(RuleKind::Robust);
        for connection in 1..5 {
            let mut sample = path.sample(Loss, 40.0, 1);
            sample.connection = ConnectionId(connection);
            (sample.reduced_before, sample.rtt_min, sample.rtt) = (true, Some(Micros(20_000)), Some(Micros(40_000)));
            change(&mut sample);
            path.add(&sample);
        }
        path.estimate().unwrap().buffer
    };
    assert!(not(|_| ()).is_some());
    assert_eq!(not(|sample| sample.reason = SampleReason::Ecn), None);
    assert_eq!(not(|sample| sample.reason = End), None);
    assert_eq!(not(|sample| sample.reduced_before = false), None, "the first loss");
    assert_eq!(not(|sample| sample.rtt = None), None);
    assert_eq!(not(|sample| sample.rtt = sample.rtt_min), None, "no queue");
    assert_eq!(not(|sample| sample.rtt = Some(Micros(1))), None, "shorter than the smallest");
    assert_eq!(not(|sample| sample.rtt_min = Some(Micros(0))), None);
}

// Lower bounds where too few samples show a share.

fn robust(samples: &[(SampleReason, f64, u8)]) -> Path {
    let mut path = Path::new(RuleKind::Robust);
    path.add_all(samples);
    path
}

#[test]
fn lower_bounds_alone_give_the_largest_that_two_addresses_attest() {
    let path = robust(&[(EndSlowStart, 40.0, 1), (EndSlowStart, 16.0, 1), (EndSlowStart, 38.0, 2), (Carried, 90.0, 3)]);
    let estimate = path.estimate().unwrap();
    assert!(estimate.is_lower_bound);
    assert_near(estimate.share.segments_f64(MSS), 40.0);
    assert_eq!((estimate.samples, estimate.connections, estimate.loss_connections), (4, 4, 0));
    assert!(estimate.confidence.value() < 0.5);
    assert!(
        robust(&[(EndSlowStart, 40.0, 1), (EndSlowStart, 16.0, 2)]).estimate().is_none(),
        "fewer than samples are wanted"
    );
}

#[test]
fn what_every_start_has_shows_nothing() {
    assert!(robust(&[(EndSlowStart, 10.0, 1), (EndAppLimited, 2.0, 2), (EndSlowStart, 10.0, 3)]).estimate().is_none());
}

#[test]
fn enough_samples_show_the_share_whatever_ended_below_it() {
    let mut path =
        robust(&[(EndSlowStart, 16.0, 1), (EndSlowStart, 16.0, 2), (EndSlowStart, 16.0, 3), (Loss, 80.0, 1)]);
    assert!(path.estimate().unwrap().is_lower_bound);
    path.add_all(&[(Loss, 80.0, 2), (Loss, 80.0, 3)]);
    let estimate = path.estimate().unwrap();
    assert_eq!((estimate.is_lower_bound, estimate.share.segments(MSS).0), (false, 80));
}

#[test]
fn a_bound_counts_each_connection_and_each_address_once() {
    let mut path = robust(&[(EndSlowStart, 40.0, 1), (EndSlowStart, 40.0, 2)]);
    let again = path.sample(EndSlowStart, 40.0, 2);
    for _ in 0..3 {
        path.wait(Micros::from_secs(10));
        path.add(&WindowSample { at: path.now, ..again });
    }
    let estimate = path.estimate().unwrap();
    assert_eq!((estimate.samples, estimate.connections), (5, 3));
    assert_near((estimate.confidence.value() * 100.0).round(), 36.0);
}
