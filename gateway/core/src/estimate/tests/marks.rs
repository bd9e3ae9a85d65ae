//! Marks: estimates without a threshold although losses gave samples. Paths that fall and loads that are gone.

use super::*;

/// A loss of a connection in congestion avoidance: its window in segments, and how much of its round trip was a queue.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a round trip")]
fn lose(path: &mut Path, (connection, host): (u64, u8), window: f64, queue: f64) {
    let sample = path.sample(Loss, window, host);
    let rtt = Micros(RTT.0 + (queue * RTT.0 as f64).round() as u64);
    let rtts = (Some(RTT), Some(rtt));
    let sample = WindowSample { connection: ConnectionId(connection), advised: false, ..sample };
    path.add(&WindowSample { reduced_before: true, rtt_min: rtts.0, rtt: rtts.1, ..sample });
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
    for window in SCATTERED {
        lose(&mut alone, (1, 1), window, 0.0);
    }
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

// Addresses that differ.

/// Losses at these windows of hosts 0 to N, three each.
fn of_hosts(windows: &[f64]) -> Path {
    let mut path = Path::new(RuleKind::Robust);
    for n in 0..3_u64 {
        for (host, window) in (0_u8..).zip(windows) {
            lose(&mut path, (10 * u64::from(host) + n, host), *window, 0.5);
        }
        path.wait(Micros::from_secs(4));
    }
    path
}

fn differing(windows: &[f64]) -> Option<f64> {
    let estimate = of_hosts(windows).estimate().unwrap();
    assert!(estimate.mark.is_none_or(|mark| mark == Mark::AddressesDiffer));
    assert_eq!(estimate.loss_connections == 0 && estimate.loss_window.is_none(), estimate.mark.is_some());
    estimate.mark.map(|_| estimate.share.segments_f64(MSS))
}

#[test]
fn addresses_with_shares_far_apart_give_that_of_the_lower_ones_and_no_threshold() {
    assert_near(differing(&[6.0, 60.0]).unwrap(), 6.0);
    assert_near(differing(&[6.0, 6.0, 60.0]).unwrap(), 6.0);
    assert_near(differing(&[6.0, 60.0, 8.0, 66.0]).unwrap(), 8.0);
    assert_near(differing(&[6.0, 60.0, 6.0, 62.0, 7.0, 64.0, 6.0, 66.0]).unwrap(), 6.0);
}

#[test]
fn addresses_that_agree_keep_their_threshold() {
    assert_eq!(differing(&[20.0, 45.0]), None);
    assert_eq!(differing(&[20.0, 30.0, 40.0, 35.0]), None);
    // An address with two samples has no share.
    let mut path = of_hosts(&[20.0, 22.0]);
    lose(&mut path, (50, 5), 90.0, 0.5);
    lose(&mut path, (51, 5), 90.0, 0.5);
    assert_eq!(path.estimate().unwrap().mark, None);
}

#[test]
fn one_address_of_six_makes_no_others_differ_and_of_three_it_lowers_them_by_half_at_most() {
    for lie in [0.1, 0.5, 2.0, 10.0, 1e4] {
        assert_eq!(differing(&[20.0, 24.0, 18.0, 22.0, 20.0, 20.0 * lie]), None, "{lie}");
        assert!(differing(&[20.0, 20.0, 20.0 * lie]).is_none_or(|share| share >= 10.0), "{lie}");
        assert!(differing(&[20.0, 20.0, 20.0, 20.0 * lie]).is_none_or(|share| share >= 10.0), "{lie}");
    }
}

// A path that fell.

/// A path that carried 60 for two minutes, then what `since` gives of hosts at these windows, one each two seconds.
fn fell(since: &[(u8, f64)]) -> Path {
    let mut path = Path::new(RuleKind::Robust);
    for n in 0..120 {
        lose(&mut path, (n, (n % 5) as u8), 60.0, 0.5);
        path.wait(Micros::from_secs(1));
    }
    path.wait(Micros::from_secs(10));
    for (n, (host, window)) in (200..).zip(since) {
        lose(&mut path, (n, *host), *window, 0.5);
        path.wait(Micros::from_secs(2));
    }
    path
}

#[test]
fn the_first_losses_of_two_addresses_bring_down_a_share_whose_path_fell() {
    let estimate = fell(&[(1, 12.0), (2, 14.0)]).estimate().unwrap();
    assert_near(estimate.share.segments_f64(MSS), 14.0);
    assert_near(estimate.loss_window.unwrap().segments_f64(MSS), 13.0);
    assert_eq!((estimate.loss_connections, estimate.mark), (2, None));
    // And stay so while the samples before it age.
    let mut path = fell(&[(1, 12.0), (2, 14.0)]);
    path.wait(Micros::from_secs(40));
    lose(&mut path, (300, 1), 12.0, 0.5);
    assert!(path.share() < 15.0, "{}", path.share());
}

#[test]
fn one_address_of_several_does_not_bring_it_down() {
    for since in [&[(1, 12.0)][..], &[(1, 12.0), (1, 12.0), (1, 2.0), (1, 2.0)], &[(1, 12.0), (2, 40.0)]] {
        let share = fell(since).share();
        assert!(share > 50.0, "{since:?}: {share}");
    }
    let lied = fell(&[(1, 12.0), (2, 14.0), (66, 1.0)]).share();
    assert!((12.0..=14.0).contains(&lied), "{lied}");
    let lied = fell(&[(1, 12.0), (2, 14.0), (66, 5_000.0)]).share();
    assert!((12.0..=14.0).contains(&lied), "one that carried more does not hold it up: {lied}");
}

#[test]
fn what_two_addresses_carried_since_is_no_fall() {
    let mut path = fell(&[(1, 12.0), (2, 14.0)]);
    path.add_all(&[(EndSlowStart, 44.0, 3), (EndSlowStart, 50.0, 4)]);
    assert!(path.share() > 50.0, "{}", path.share());
}

// Samples of a load that is gone.

/// Senders that their windows limit for the whole of the current bucket.
fn crowd(path: &mut Path, senders: u32) {
    // 100 round trips of 100 ms in 10 s.
    let bucket = path.record.bucket_at(path.now, &path.config).unwrap();
    bucket.rtt.add(RTT);
    bucket.window_limited = 100 * senders;
}

/// Lone transfers lose at 50 segments before and after a burst, whose `senders` lose at 12.
fn around_a_burst(before: u64, senders: u32, after: u64) -> Path {
    let mut path = Path::new(RuleKind::Robust);
    let lone = |path: &mut Path, first: u64, count: u64| {
        for n in first..first + count {
            lose(path, (n, (n % 5) as u8), 50.0, 0.5);
            crowd(path, 1);
            path.wait(Micros::from_secs(10));
        }
    };
    lone(&mut path, 0, before);
    for n in 100..130 {
        lose(&mut path, (n, (n % 5) as u8), 12.0, 0.5);
    }
    crowd(&mut path, senders);
    path.wait(Micros::from_secs(20));
    lone(&mut path, 200, after);
    path
}

#[test]
fn samples_of_a_burst_do_not_set_the_share_of_lone_transfers_after_it() {
    for (before, after) in [(5, 0), (0, 5), (3, 3)] {
        let estimate = around_a_burst(before, 40, after).estimate().unwrap();
        assert_near(estimate.share.segments_f64(MSS), 50.0);
        assert_eq!((estimate.mark, u64::from(estimate.samples)), (None, before + after));
    }
    let as_many = around_a_burst(5, 3, 0).estimate().unwrap();
    assert!(as_many.share.segments_f64(MSS) < 20.0, "three senders are no crowd: {as_many:?}");
}

#[test]
fn a_burst_alone_is_marked_once_it_is_gone_and_not_while_it_lasts() {
    let gone = around_a_burst(0, 40, 0);
    let estimate = gone.estimate().unwrap();
    assert_eq!((estimate.mark, estimate.loss_connections, estimate.loss_window), (Some(Mark::PastLoad), 0, None));
    assert_near(estimate.share.segments_f64(MSS), 12.0);
    let mut lasts = gone;
    crowd(&mut lasts, 20);
    assert_eq!(lasts.estimate().unwrap().mark, None);
}

#[test]
fn the_addresses_that_differ_are_named_with_their_shares() {
    let path = of_hosts(&[6.0, 60.0, 8.0, 66.0]);
    let estimate = path.estimate().unwrap();
    let shares = address_shares(path.record.slice(path.now, &path.config), estimate.share);
    let shares: Vec<_> = shares.iter().map(|one| (one.share.segments(MSS).0, one.samples, one.is_lower)).collect();
    assert_eq!(shares, [(66, 3, false), (60, 3, false), (8, 3, true), (6, 3, true)]);
}
