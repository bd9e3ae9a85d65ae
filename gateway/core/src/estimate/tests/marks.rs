//! What losses and addresses do not show: the marks that leave an estimate without a threshold.

use super::*;

/// A loss of a connection in congestion avoidance: its window in segments, and how much of its round trip was a queue.
fn lose(path: &mut Path, (connection, host): (u64, u8), window: f64, queue: f64) {
    let sample = path.sample(Loss, window, host);
    let rtt = Micros(RTT.0 + (queue * RTT.0 as f64).round() as u64);
    let rtts = (Some(RTT), Some(rtt));
    let sample = WindowSample { connection: ConnectionId(connection), advised: false, ..sample };
    path.add(&WindowSample { sawtooth: Some(1.0), rtt_min: rtts.0, rtt: rtts.1, ..sample });
}

/// Losses at these windows, of hosts and their connections in turn.
fn losses(windows: &[f64], hosts: u8, queue: f64) -> Path {
    let mut path = Path::new(RuleKind::Robust);
    for (n, window) in (0..).zip(windows) {
        let connection = n % 6;
        lose(&mut path, (connection, connection as u8 % hosts), *window, queue);
    }
    path
}

const SCATTERED: [f64; 12] = [12.0, 40.0, 9.0, 30.0, 80.0, 20.0, 50.0, 7.0, 25.0, 60.0, 14.0, 33.0];

#[test]
fn losses_at_any_window_and_without_a_queue_do_not_bound_the_share() {
    let estimate = losses(&SCATTERED, 3, 0.02).estimate().unwrap();
    assert!(estimate.mark == Some(Mark::RandomLoss) && estimate.is_lower_bound, "{estimate:?}");
    assert_near(estimate.share.segments_f64(MSS), 60.0);
    assert_eq!((estimate.loss_connections, estimate.loss_window, estimate.samples), (0, None, 12));
}

#[test]
fn of_one_address_two_connections_show_what_was_carried() {
    let estimate = losses(&SCATTERED, 1, 0.02).estimate().unwrap();
    assert!(estimate.mark == Some(Mark::RandomLoss), "{estimate:?}");
    assert_near(estimate.share.segments_f64(MSS), 60.0);
}

#[test]
fn a_full_queue_and_a_shallow_one_keep_their_share() {
    let full = losses(&SCATTERED, 3, 0.5).estimate().unwrap();
    assert_eq!((full.mark, full.is_lower_bound, full.loss_connections), (None, false, 6));
    let near: Vec<f64> = SCATTERED.iter().map(|window| 100.0 + window / 2.0).collect();
    let shallow = losses(&near, 3, 0.02).estimate().unwrap();
    assert_eq!((shallow.mark, shallow.is_lower_bound, shallow.loss_connections), (None, false, 6));
}

#[test]
fn two_random_losses_among_those_of_a_queue_change_nothing() {
    let mut path = losses(&[40.0, 42.0, 38.0, 41.0, 39.0, 40.0], 3, 0.5);
    lose(&mut path, (1, 1), 8.0, 0.0);
    lose(&mut path, (2, 2), 10.0, 0.0);
    let estimate = path.estimate().unwrap();
    assert_eq!((estimate.mark, estimate.loss_connections), (None, 6));
    let share = path.rule.share(path.record.slice(path.now, &path.config)).unwrap();
    assert_eq!(estimate.share, share);
}

#[test]
fn fewer_than_three_losses_or_two_connections_show_nothing() {
    let is_random = |path: &Path| path.estimate().is_some_and(|estimate| estimate.mark == Some(Mark::RandomLoss));
    let mut path = losses(&SCATTERED[..2], 2, 0.0);
    path.add_all(&[(End, 30.0, 1), (End, 30.0, 2)]);
    assert!(!is_random(&path));
    lose(&mut path, (1, 1), 90.0, 0.0);
    assert!(is_random(&path));
    let mut alone = Path::new(RuleKind::Robust);
    SCATTERED.iter().for_each(|window| lose(&mut alone, (1, 1), *window, 0.0));
    alone.add_all(&[(End, 30.0, 1), (End, 30.0, 2)]);
    assert!(!is_random(&alone));
}

#[test]
fn one_address_neither_makes_losses_random_nor_takes_the_mark_away() {
    let mut queue = losses(&SCATTERED, 5, 0.5);
    let mut random = losses(&SCATTERED, 5, 0.0);
    for n in 0..60 {
        lose(&mut queue, (100 + n, 66), f64::from(u32::try_from(n).unwrap()) + 2.0, 0.0);
        lose(&mut random, (100 + n, 66), 30.0, 3.0);
    }
    assert_eq!(queue.estimate().unwrap().mark, None);
    assert!(random.estimate().unwrap().mark == Some(Mark::RandomLoss));
    // Nor does it raise what was carried.
    lose(&mut random, (200, 66), 5_000.0, 0.0);
    assert_near(random.estimate().unwrap().share.segments_f64(MSS), 80.0);
}
