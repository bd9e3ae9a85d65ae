//! The kernel's BBR, step by step.

use super::*;

fn ack(bbr: &mut Bbr, pipe: u64, lost: u64, recovering: bool) -> String {
    bbr.on_ack(&delivery(1_000, pipe, lost, recovering));
    bbr.segments.to_string()
}

fn delivery(us: u64, pipe: u64, lost: u64, recovering: bool) -> Delivery {
    Delivery {
        at: Timestamp::from_micros(us),
        newest: None,
        rtt: None,
        least_rtt: None,
        delivered_bytes: 20_000,
        newly_bytes: 1_000,
        pipe_bytes: pipe * 1_000,
        reaction: Micros(0),
        mss: 1_000,
        recovering,
        timed_out: false,
        lost_bytes: lost * 1_000,
        ever_lost_bytes: lost * 1_000,
    }
}

/// A segment of new data, with three others in the network.
const FULL: Departure = Departure {
    bytes: 1_000,
    flight_bytes: 4_000,
    pipe_bytes: 4_000,
    pipe_segments: 4,
    new: true,
    idle: false,
    dry: false,
    pushed: false,
    paced: false,
    named: true,
};

#[test]
fn a_recovery_conserves_and_one_right_after_it_is_not_new() {
    let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(100_000), Timestamp(0))));
    assert_eq!(ack(&mut bbr, 40, 0, false), "41");
    bbr.lose(false);
    let during = [(20, 5), (15, 2), (9, 0)].map(|(pipe, lost)| ack(&mut bbr, pipe, lost, true));
    assert_eq!(during, ["21", "19", "19"], "what is in the network and was just delivered; less what is lost");
    bbr.lose(false);
    assert_eq!(ack(&mut bbr, 9, 0, true), "19", "more losses above the recovery point are the same recovery");
    assert_eq!(ack(&mut bbr, 10, 0, false), "42", "afterwards it is what it was");
}

#[test]
fn a_recovery_within_a_reduction_after_a_mark_gives_back_the_window_before_the_mark() {
    let before = |by_ecn: bool| {
        let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(100_000), Timestamp(0))));
        bbr.lose(by_ecn);
        let grown = [40, 40].map(|pipe| ack(&mut bbr, pipe, 0, false));
        assert_eq!(grown, ["41", "42"]);
        assert_eq!(ack(&mut bbr, 20, 5, true), "21");
        ack(&mut bbr, 10, 0, false)
    };
    assert_eq!((before(true), before(false)), ("41".to_owned(), "43".to_owned()), "and one just acknowledged");
}

#[test]
fn a_recovery_that_follows_a_timeout_conserves_again() {
    let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(100_000), Timestamp(0))));
    bbr.time_out(Timestamp(0), 0);
    assert_eq!(ack(&mut bbr, 6, 0, true), "7", "in the network and just delivered");
    assert_eq!(ack(&mut bbr, 5, 0, true), "7", "once");
}

#[test]
fn what_a_timer_sends_before_its_pace_allows_seems_to_come_back_sooner() {
    let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(100_000), Timestamp(0))));
    ack(&mut bbr, 10, 0, false);
    let left = Timestamp::from_micros(2_000);
    bbr.on_sent(left, &Departure { bytes: 20_000, ..FULL });
    let held = bbr.paced_until.since(left).0;
    assert!(held > 10_000, "{held}");
    let rtt = |bbr: &Bbr, after: u64, rtt: u64| {
        let (at, rtt) = (left.after(Micros(after)), Some(Micros(rtt)));
        bbr.as_stamped(&Delivery { at, rtt, least_rtt: rtt, ..delivery(0, 0, 0, true) }).rtt
    };
    assert_eq!(rtt(&bbr, 120_000, 120_000), Some(Micros(120_000)));
    bbr.time_out(left, 0);
    assert_eq!(
        rtt(&bbr, 120_000, 120_000),
        Some(Micros(120_000 - held)),
        "it carries the time that its pace meant it for"
    );
    assert_eq!(rtt(&bbr, held, held), Some(Micros(1_000)), "times that do not differ");
    assert_eq!(rtt(&bbr, 10_000, 10_000), None, "it comes back before it should have left");
    assert_eq!(rtt(&bbr, 150_000, 120_000), Some(Micros(120_000)), "something else's");
    let (at, whole) = (left.after(Micros(120_000)), Some(Micros(120_000)));
    bbr.on_ack(&Delivery { at, rtt: whole, least_rtt: Some(Micros(100_000)), ..delivery(0, 0, 0, true) });
    assert_eq!(bbr.min_rtt.map(|(rtt, _)| rtt), Some(Micros(120_000 - held)), "and is the smallest");
    bbr.time_out(left.after(Micros(held)), 0);
    assert_eq!(rtt(&bbr, 120_000, 120_000), Some(Micros(120_000)), "nothing held it back");
}

#[test]
fn a_pipe_that_one_phase_of_its_gains_explains_was_no_mistake() {
    let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, None);
    assert_eq!((bbr.raise(42).to_string(), bbr.segments().to_string()), ("0".to_owned(), "42".to_owned()));
    assert!(bbr.raise(45) > 0.0);
}

#[test]
fn what_was_sent_before_a_loss_was_known_raises_no_window_in_recovery() {
    let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(100_000), Timestamp(0))));
    assert_eq!(ack(&mut bbr, 20, 5, true), "21");
    bbr.raise(40);
    assert_eq!(
        bbr.segments().to_string(),
        "21",
        "the retransmission, which shows the loss, follows its acknowledgement"
    );
}

#[test]
fn the_handshake_gives_the_smallest_round_trip_and_the_first_pace() {
    let mut bbr = Bbr::new(Timestamp(0), 0, 10.0, None);
    bbr.open(Some((Micros(100_000), Timestamp(0))));
    bbr.open(Some((Micros(50_000), Timestamp(0))));
    assert_eq!(bbr.min_rtt.map(|(rtt, _)| rtt), Some(Micros(100_000)), "what is known stays");
    assert_eq!(rate::paced(bbr.paced, 1_000, EVEN_GAIN) / 1_000, 285, "ten segments in 100 ms, times gain and margin");
}

#[test]
fn what_is_sent_after_an_idle_time_measures_the_round_trip_without_a_probe() {
    let probes = |idle_restart: bool| {
        let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(100_000), Timestamp(0))));
        bbr.idle_restart = idle_restart;
        bbr.on_ack(&delivery(10_100_000, 40, 0, false));
        bbr.probing()
    };
    assert!(probes(false));
    assert!(!probes(true));
}

#[test]
fn a_probe_that_never_was_leaves_the_window_of_a_recovery_as_it_was() {
    let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(100_000), Timestamp(0))));
    (bbr.mode, bbr.is_full, bbr.mss) = (Mode::ProbeBandwidth, true, 1_000);
    assert_eq!(ack(&mut bbr, 20, 1, true), "21");
    let before = [bbr.segments, bbr.prior_segments];
    bbr.on_ack(&delivery(10_100_000, 20, 0, true));
    assert!(bbr.probing() && bbr.segments < before[0], "the replica empties the pipe");
    bbr.contest_probe(Timestamp::from_micros(10_103_000), 20);
    assert!(!bbr.probing(), "its sender does not");
    assert_eq!([bbr.segments, bbr.prior_segments], before);
}

/// Bursts of two segments every `gap_us` for 200 ms from `from_us` on.
fn send(bbr: &mut Bbr, from_us: u64, gap_us: u64, paced: bool) {
    let sent = Departure { paced, ..FULL };
    for n in 0..200_000 / gap_us {
        for within_us in [0, 10] {
            bbr.on_sent(Timestamp::from_micros(from_us + n * gap_us + within_us), &sent);
        }
    }
}

#[test]
fn the_observed_pace_overrides_its_rate() {
    // Two segments of 1,000 bytes in 4 ms, by its own account; the pipe is full.
    let mut bbr = Bbr::new(Timestamp(0), 0, 40.0, Some((Micros(10_000), Timestamp(0))));
    (bbr.mode, bbr.is_full, bbr.mss) = (Mode::ProbeBandwidth, true, 1_000);
    let own = rate::of(2_000, 1_000, 4_000);
    bbr.rate.add(delivery::Sample { rate: own, new_round: true, app_limited: false });
    let about = |bbr: &Bbr, rate: u32| pace::same(bbr.rate(), rate, 20);
    send(&mut bbr, 1_000_000, 4_040, true);
    assert_eq!(bbr.rate(), own);
    send(&mut bbr, 2_000_000, 6_000, false);
    assert_eq!(bbr.rate(), own, "something else held it back");
    send(&mut bbr, 3_000_000, 4_040 * 4 / 5, true);
    assert_eq!(bbr.rate(), own, "a gain of its cycle");
    send(&mut bbr, 4_000_000, 6_060, true);
    assert!(about(&bbr, own / 3 * 2), "it uses another one");
    send(&mut bbr, 5_000_000, 4_040, true);
    assert_eq!(bbr.rate(), own);
    bbr.segments = 4;
    send(&mut bbr, 6_000_000, 6_060, true);
    assert!(about(&bbr, own / 3 * 2), "a window that is too small hides no pace");
}
