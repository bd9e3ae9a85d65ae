//! The robust rule under each attack it has to stand, beside the plain average that does not.

use super::*;

/// A window under both rules.
fn both() -> [Path; 2] {
    [Path::new(RuleKind::Spand), Path::new(RuleKind::Robust)]
}

fn robust() -> Path {
    Path::new(RuleKind::Robust)
}

/// Adds samples of connections that started by themselves.
fn give(path: &mut Path, samples: &[(SampleReason, f64, u8)]) {
    for (reason, segments, host) in samples {
        let sample = path.sample(*reason, *segments, *host);
        path.add(&WindowSample { advised: false, ..sample });
    }
}

/// Adds samples, the named time apart, of hosts `hosts` in turn.
fn spread(path: &mut Path, reason: SampleReason, values: &[f64], hosts: &[u8], apart: Micros) {
    for (value, host) in values.iter().zip(hosts.iter().cycle()) {
        give(path, &[(reason, *value, *host)]);
        path.wait(apart);
    }
}

/// The relative distance of what a change moved.
fn moved(before: f64, after: f64) -> f64 {
    after / before - 1.0
}

const SECOND: Micros = Micros::from_secs(1);
const HOSTS: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

#[test]
fn one_random_loss_in_a_clean_series_moves_it_by_at_most_a_twentieth() {
    let clean: Vec<f64> = (0..12).map(|n| 30.0 + f64::from(n % 5)).collect();
    let [plain, robust] = both().map(|mut path| {
        spread(&mut path, End, &clean, &HOSTS, SECOND);
        let before = path.share();
        give(&mut path, &[(Loss, 8.0, 11)]);
        moved(before, path.share())
    });
    assert!(plain < -0.05, "the plain average moves by {plain}");
    assert!((-0.05..=0.0).contains(&robust), "{robust}");
}

#[test]
fn few_long_flows_do_not_outvote_many_short_ones() {
    // Behind one address: a client on a slow path that loses every two seconds, and forty that end once each.
    let [plain, robust] = both().map(|mut path| {
        let long = path.sample(Loss, 6.0, 1);
        for n in 0..80 {
            path.add(&WindowSample { at: path.now, ..long });
            if n % 2 == 0 {
                give(&mut path, &[(End, 30.0, 1)]);
            }
            path.wait(Micros::from_secs(2));
        }
        path.share()
    });
    assert!(plain < 15.0, "80 losses at 6 against 40 ends at 30: {plain}");
    assert!(robust > 20.0, "{robust}");
}

#[test]
fn an_address_that_hides_many_clients_does_not_speak_for_the_others() {
    // 60 clients behind one address on a fast path; ten hosts with an address of their own on a slow one.
    let [plain, robust] = both().map(|mut path| {
        for _ in 0..6 {
            give(&mut path, &[(Loss, 90.0, 99); 10]);
            spread(&mut path, Loss, &[10.0; 5], &HOSTS, SECOND);
        }
        path.share()
    });
    assert!(plain > 45.0, "{plain}");
    assert!(robust < 15.0, "{robust}");
}

#[test]
fn lower_bounds_lift_it_by_a_tenth_at_most() {
    let with = |bounds: &[(SampleReason, f64, u8)]| {
        let mut path = robust();
        give(&mut path, &[(End, 10.0, 1), (End, 10.0, 2), (End, 10.0, 3)]);
        give(&mut path, bounds);
        path.share()
    };
    assert_near(with(&[(EndAppLimited, 9.0, 4), (EndReceiverLimited, 8.0, 5)]), 10.0);
    assert_near(with(&[(EndAppLimited, 500.0, 4), (EndReceiverLimited, 10.5, 5)]), 10.5);
    assert_near(with(&[(EndAppLimited, 500.0, 4), (EndAppLimited, 400.0, 5)]), 11.0);
    assert_near(with(&[(EndAppLimited, 500.0, 4), (EndAppLimited, 400.0, 4)]), 10.0);
}

#[test]
fn applications_that_send_little_do_not_lift_a_network() {
    // The mix of cell 7 of the accuracy campaign: ends near 48, bounds up to 176.
    let mut path = robust();
    for n in 0..100_u8 {
        give(&mut path, &[(End, 40.0 + f64::from(n % 17), n % 16), (EndAppLimited, 60.0 + f64::from(n), n % 16)]);
    }
    assert!((45.0..55.0).contains(&path.share()), "{}", path.share());
}

#[test]
fn own_advice_ratchets_it_neither_down_nor_up() {
    let shares = [6.0, 8.0, 15.0, 29.0].map(|share| (share, loop_of_transfers(RuleKind::Robust, share)));
    for (began, ended) in shares {
        assert!(ended > began - 1e-6, "from {began} down to {ended} on a path with room for 31");
        assert!(ended < 33.0, "from {began} up to {ended} on a path with room for 31");
    }
    assert!(loop_of_transfers(RuleKind::Spand, 29.0) < 18.0, "the plain average ratchets down");
}

#[test]
fn transfers_that_end_together_do_not_ratchet_it_down() {
    // Only one of them probes.
    let mut path = robust();
    give(&mut path, &[(Loss, 29.0, 1), (Loss, 29.0, 2), (Loss, 29.0, 3)]);
    for _ in 0..60 {
        path.wait(Micros::from_secs(2));
        for host in 4..14 {
            let mut sample = path.sample(End, 16.9, host);
            sample.transfer = Bytes(30_000);
            path.add(&sample);
        }
    }
    assert!((28.0..31.0).contains(&path.share()), "{}", path.share());
}

/// Transfers of `size` segments, started at the advice of the moment, on a path that carries `room` segments without a
/// loss: where one goes beyond, it loses there.
fn loop_on_a_path(kind: RuleKind, share: f64, room: f64, size: u32) -> Vec<f64> {
    let mut path = Path::new(kind);
    give(&mut path, &[(Loss, share, 1), (Loss, share, 2), (Loss, share, 3)]);
    let mut shares = Vec::new();
    for n in 0..600_u32 {
        path.wait(SECOND);
        path.record.bucket_at(path.now, &path.config).unwrap().rtt.add(RTT);
        let advice = path.estimate().unwrap().share_segments(MSS);
        let mut window = f64::from(Epoch::new(advice, LINUX_SEGMENTS_PER_ACK).window_for(Segments(size)).shifted.0);
        let mut lost = window > room;
        for _ in 0..size {
            window += if lost { 0.0 } else { 1.0 / window.floor() };
            lost |= window > room;
        }
        let reason = if lost { Loss } else { End };
        let mut sample = path.sample(reason, if lost { window - 1.0 } else { window }, (n % 40) as u8);
        sample.transfer = Bytes(u64::from(size) * MSS.0);
        path.add(&sample);
        shares.push(path.share());
    }
    shares
}

#[test]
fn on_its_own_advice_it_finds_the_room_of_the_path() {
    for (began, room, size) in [(10.0, 40.0, 300), (80.0, 40.0, 300), (40.0, 20.0, 120), (20.0, 60.0, 1_000)] {
        let shares = loop_on_a_path(RuleKind::Robust, began, room, size);
        let late = shares.iter().skip(400);
        let (least, most) = late.fold((f64::MAX, 0.0_f64), |(least, most), share| (share.min(least), share.max(most)));
        let off = (moved(room, least), moved(room, most));
        assert!(off.0 > -0.15 && off.1 < 0.15, "from {began} with room for {room}: {least} to {most}");
    }
}

/// Samples until the share is within 15 % of 20 segments, on a path that carried 80 for five minutes. Each transfer starts at the whole
/// share; `gives`: the sample of a lost first flight of N segments.
fn samples_after_a_drop(gives: impl Fn(f64) -> (SampleReason, f64)) -> Option<usize> {
    let mut path = robust();
    let next = |path: &mut Path, of: Option<(SampleReason, f64)>, n: usize| {
        path.wait(SECOND);
        path.record.bucket_at(path.now, &path.config).unwrap().rtt.add(RTT);
        let (reason, window) = of.unwrap_or((Loss, 80.0));
        let sample = path.sample(reason, window, u8::try_from(n % 40).unwrap());
        path.add(&sample);
        path.estimate().map(|_| path.share())
    };
    for n in 0..300 {
        next(&mut path, None, n);
    }
    (0..1_200).position(|n| {
        let share = path.estimate().unwrap().share_segments(MSS);
        let window = Epoch::new(share, LINUX_SEGMENTS_PER_ACK).window_for(Segments(300)).shifted.0;
        // From a window that fits, slow growth up to the first loss.
        let sample = if f64::from(window) > 20.0 { gives(f64::from(window)) } else { (Loss, 20.0) };
        next(&mut path, Some(sample), n).is_some_and(|share| moved(20.0, share).abs() <= 0.15)
    })
}

#[test]
fn what_arrived_of_lost_first_flights_brings_a_share_down_to_a_path_that_shrank() {
    assert!(samples_after_a_drop(|_| (FirstFlight, 20.0)).is_some_and(|samples| samples < 60));
    assert!(samples_after_a_drop(|window| (Loss, window - 1.0)).is_none_or(|samples| samples > 120), "its own output");
}

#[test]
fn a_lost_first_flight_was_not_carried() {
    let mut path = robust();
    give(&mut path, &[(End, 20.0, 1), (End, 20.0, 2), (FirstFlight, 30.0, 3), (FirstFlight, 30.0, 4)]);
    let carried = path.rule.carried(path.record.slice(path.now, &path.config), [192, 0, 2, 1].into());
    assert_near(carried.unwrap().segments_f64(MSS), 20.0);
}

#[test]
fn ends_within_the_sawtooth_say_little_against_its_peaks() {
    // Peaks at 40, and transfers that end anywhere between the half of it and there.
    let [plain, robust] = both().map(|mut path| {
        for n in 0..50_u8 {
            give(&mut path, &[(Loss, 40.0, n % 10), (End, 20.0 + f64::from(n % 20), 10 + n % 10)]);
            path.wait(SECOND);
        }
        path.share()
    });
    assert!(plain < 36.0, "{plain}");
    assert!((36.0..=40.0).contains(&robust), "{robust}");
}

#[test]
fn what_ended_without_loss_is_a_lower_bound_until_two_addresses_lost() {
    let mut path = robust();
    give(&mut path, &[(End, 20.0, 1), (End, 22.0, 2), (End, 24.0, 3)]);
    let bound = |path: &Path| {
        let estimate = path.estimate().unwrap();
        assert_eq!(estimate.is_lower_bound, estimate.loss_connections == 0 && estimate.loss_window.is_none());
        (estimate.is_lower_bound, path.share())
    };
    assert_eq!(bound(&path), (true, 22.0));
    give(&mut path, &[(Loss, 40.0, 1), (Loss, 40.0, 1)]);
    assert!(bound(&path).0, "one address may have lost for reasons of its own");
    give(&mut path, &[(Loss, 44.0, 2)]);
    assert_eq!(bound(&path), (false, 42.0));
    let mut paced = robust();
    give(&mut paced, &[(Rate, 30.0, 1), (End, 10.0, 1), (Rate, 32.0, 2)]);
    assert!(!paced.estimate().unwrap().is_lower_bound);
    assert_near(paced.share(), 31.0);
}

#[test]
fn in_a_network_of_one_address_two_connections_show_a_full_path() {
    let mut path = robust();
    let own = path.sample(Loss, 40.0, 1);
    (0..3).for_each(|_| _ = path.add(&own));
    give(&mut path, &[(End, 20.0, 1)]);
    assert!(path.estimate().unwrap().is_lower_bound);
    give(&mut path, &[(Loss, 44.0, 1)]);
    assert!(!path.estimate().unwrap().is_lower_bound);
    assert_near(path.share(), 42.0);
}

#[test]
fn an_address_that_lost_a_first_flight_counts_as_its_losses_do() {
    let mut path = robust();
    give(
        &mut path,
        &[(Loss, 300.0, 1), (Loss, 320.0, 2), (Loss, 310.0, 3), (FirstFlight, 5.0, 3), (FirstFlight, 5.0, 4)],
    );
    assert_near(path.share(), 310.0);
}

#[test]
fn two_losses_among_many_transfers_without_one_do_not_bring_it_down() {
    let mut path = robust();
    for host in HOSTS {
        give(&mut path, &[(End, 30.0, host); 2]);
    }
    give(&mut path, &[(Loss, 8.0, 1), (Loss, 9.0, 2)]);
    assert!((25.0..=30.0).contains(&path.share()), "{}", path.share());
}

#[test]
fn ends_raise_a_share_of_losses_only_where_they_outnumber_them() {
    let share = |ends: usize| {
        let mut path = robust();
        for host in [1, 2, 3] {
            give(&mut path, &[(Loss, 20.0, host); 4]);
            give(&mut path, &vec![(End, 30.0, host); ends]);
        }
        path.share()
    };
    assert_near(share(4), 20.0);
    assert_near(share(6), 20.0 + 0.5 * 6.0);
    assert_near(share(8), 20.0 + 8.0 / 12.0 * 10.0);
}

#[test]
fn what_bbr_lost_while_it_started_up_does_not_count() {
    let share = |lost: f64| {
        let mut path = robust();
        for host in [1, 2] {
            let sample = path.sample(Loss, lost, host);
            path.add(&sample);
            path.add(&WindowSample { reason: Rate, window: segments_window(20.0), ..sample });
        }
        path.share()
    };
    assert_near(share(26.0), 23.0);
    assert_near(share(80.0), 20.0);
}

#[test]
fn rates_of_several_buckets_count_where_losses_of_the_newest_are_enough() {
    let share = |reason| {
        let mut path = robust();
        for window in [40.0, 20.0] {
            give(&mut path, &[[(reason, window, 1); 20], [(reason, window, 2); 20]].concat());
            path.wait(Micros::from_secs(10));
        }
        path.share()
    };
    assert_near(share(Loss), 20.0);
    assert_near(share(Rate), 30.0);
}

#[test]
fn a_path_that_changed_by_half_and_more_is_followed_within_a_quarter_of_a_minute() {
    for (before, after) in [(150.0, 65.0), (80.0, 250.0), (40.0, 60.0)] {
        let mut path = robust();
        let hosts = &HOSTS[..5];
        spread(&mut path, Loss, &[before; 240], hosts, Micros::from_millis(500));
        spread(&mut path, Loss, &[after; 30], hosts, Micros::from_millis(500));
        let off = moved(after, path.share());
        assert!(off.abs() < 0.15, "from {before} to {after}: {off}");
    }
}

#[test]
fn a_lying_receiver_moves_it_little() {
    let honest: Vec<f64> = (0..40).map(|n| 18.0 + f64::from(n * 7 % 9)).collect();
    for reason in [End, Loss] {
        let [plain, robust] = both().map(|mut path| {
            spread(&mut path, reason, &honest, &HOSTS, SECOND);
            let before = path.share();
            for n in 0..20 {
                give(&mut path, &[(End, 5_000.0, 66), (Loss, 5_000.0, 66), (EndReceiverLimited, 9_000.0, 66)]);
                spread(&mut path, reason, &honest[2 * n..2 * n + 2], &HOSTS[2 * n % 10..], SECOND);
            }
            moved(before, path.share())
        });
        assert!(plain > 10.0, "the plain average goes up {plain} times");
        assert!((-0.05..0.2).contains(&robust), "{reason:?}: {robust}");
    }
}

#[test]
fn a_liar_alone_for_a_while_does_not_push_the_others_out_of_sight() {
    let mut path = robust();
    spread(&mut path, Loss, &[20.0; 60], &HOSTS, SECOND);
    for _ in 0..60 {
        give(&mut path, &[(End, 5_000.0, 66); 16]);
        path.wait(SECOND);
    }
    assert!(path.share() < 24.0, "{}", path.share());
}

#[test]
fn a_liar_does_not_raise_what_counts_as_carried() {
    let mut path = robust();
    give(&mut path, &[(Loss, 20.0, 1), (Loss, 20.0, 2), (Loss, 20.0, 3), (End, 5_000.0, 66)]);
    let carried = path.rule.carried(path.record.slice(path.now, &path.config), [192, 0, 2, 1].into()).unwrap();
    assert_near(carried.segments_f64(MSS), 20.0);
}

#[test]
fn what_one_address_says_alone_holds_nobody_else_s_ends_up() {
    // Who comes first, with connections enough for an estimate, is all that is known of the network.
    let mut path = robust();
    give(&mut path, &[(End, 5_000.0, 66); 3]);
    let (other, own) = (path.sample(End, 20.0, 1), path.sample(End, 20.0, 66));
    let carried = |of: u8| path.rule.carried(path.record.slice(path.now, &path.config), [192, 0, 2, of].into());
    assert_eq!(carried(1), None);
    assert_near(carried(66).unwrap().segments_f64(MSS), 5_000.0);
    assert!(path.add(&other) <= 21.0 + 1e-9, "a probe's segment at most");
    assert_near(robust_alone(&own), 5_000.0);
}

/// What an address alone in its network holds its own end at, after larger ones.
fn robust_alone(sample: &WindowSample) -> f64 {
    let mut path = robust();
    give(&mut path, &[(End, 5_000.0, 66); 3]);
    path.record.raised = Some(path.now);
    path.add(sample)
}

#[test]
fn a_path_that_changed_is_followed_within_a_minute() {
    for factor in [0.5, 2.0] {
        let [plain, robust] = both().map(|mut path| {
            spread(&mut path, Loss, &[40.0; 240], &HOSTS, SECOND);
            spread(&mut path, Loss, &[40.0 * factor; 60], &HOSTS, SECOND);
            moved(40.0 * factor, path.share()).abs()
        });
        assert!(plain > 0.15, "{plain}");
        assert!(robust < 0.15, "{robust}");
    }
}

#[test]
fn one_sample_more_never_swaps_a_whole_bucket() {
    // 40 samples at 10 long ago, 47 at 30 since: what the 48th still takes of the old bucket is one sample, not all.
    let mut path = robust();
    for host in 0..10 {
        give(&mut path, &[(Loss, 10.0, host); 4]);
    }
    path.wait(Micros::from_secs(200));
    spread(&mut path, Loss, &[30.0; 47], &HOSTS, SECOND);
    let share = path.share();
    assert!((29.0..30.0).contains(&share), "{share}");
}

#[test]
fn rules_that_differ_in_the_opening_share_as_robust() {
    let mut path = Path::new(RuleKind::Robust);
    path.add_all(&[1, 2, 3, 4, 5].map(|n| (Loss, 10.0 + f64::from(n), n)));
    let robust = path.estimate().unwrap();
    for kind in [RuleKind::Liss, RuleKind::Iss, RuleKind::Miss, RuleKind::Cached, RuleKind::Averaged] {
        path.rule = rule(kind);
        assert_eq!(path.estimate().unwrap(), robust, "also its name: agents of older releases know it");
    }
}
