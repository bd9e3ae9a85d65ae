//! Senders that space their segments by themselves, and paths that answer by a queue or a loss.

use std::collections::VecDeque;

use super::*;
use crate::flow::shadow::observation::Newest;

/// The tap is beside the sender.
const REACTION: Micros = Micros(50);
/// Bursts leave so long after an acknowledgement that none of them answers it.
const AFTER_ACK_US: u64 = 1_500;

/// A sender whose segments leave at fixed times, with the samples and the names that it got.
struct Spaced {
    shadow: Shadow,
    now_us: u64,
    next_us: u64,
    outstanding: VecDeque<(u64, u64)>,
    sent: u64,
    delivered: u64,
    acked_us: u64,
    samples: Vec<SampleReason>,
    named: Vec<Flavour>,
}

impl Spaced {
    fn new() -> Self {
        let mut shadow = opened();
        shadow.on_reaction(REACTION);
        Self {
            shadow,
            now_us: 0,
            next_us: 10_000,
            outstanding: VecDeque::new(),
            sent: 0,
            delivered: 0,
            acked_us: 0,
            samples: Vec::new(),
            named: Vec::new(),
        }
    }

    /// Bursts of `segments` every `gap_us` for `bursts` of them; they come back after `rtt_us`. `stamp`: the sender's clock at a time.
    fn send(&mut self, bursts: u64, segments: u64, gap_us: u64, rtt_us: u64, stamp: impl Fn(u64) -> Option<u32>) {
        for _ in 0..bursts {
            // Acknowledgements come in between, never right before a burst.
            while let Some((sent_us, count)) =
                self.outstanding.front().copied().filter(|(sent_us, _)| sent_us + rtt_us + AFTER_ACK_US <= self.next_us)
            {
                self.outstanding.pop_front();
                self.acknowledge(sent_us, (sent_us + rtt_us).max(self.now_us), count);
            }
            self.now_us = self.next_us;
            self.next_us += gap_us;
            self.outstanding.push_back((self.now_us, segments));
            for _ in 0..segments {
                self.sent += 1;
                let pipe = (self.sent - self.delivered) * MSS;
                let sent = Sent {
                    new_bytes: 1_000,
                    full_sized: true,
                    more: true,
                    pipe,
                    flight: pipe,
                    since_ack: Some(Micros(self.now_us - self.acked_us)),
                    stamp: stamp(self.now_us),
                    ..Sent::default()
                };
                self.shadow.on_sent(Timestamp::from_micros(self.now_us), &sent);
            }
        }
    }

    fn acknowledge(&mut self, sent_us: u64, at_us: u64, segments: u64) {
        (self.now_us, self.acked_us) = (at_us, at_us);
        self.delivered += segments;
        let pipe = (self.sent - self.delivered) * MSS;
        let acked = Acked {
            acked_bytes: segments * MSS,
            pipe,
            flight: pipe,
            rtt: Some(Micros(at_us - sent_us)),
            newest: Some(Newest { sent_at: Timestamp::from_micros(sent_us), again: false }),
            delivered_bytes: self.delivered * MSS,
            ..Acked::default()
        };
        let at = Timestamp::from_micros(at_us);
        self.shadow.on_ack(at, &acked);
        self.samples.extend(self.shadow.take_sample(at).map(|sample| sample.reason));
        if self.named.last() != Some(&self.shadow.flavour()) {
            self.named.push(self.shadow.flavour());
        }
    }

    /// As BBR starts: twice the pace each round trip, until all round trips are longer by a third.
    fn starts(mut self, segments: u64) -> Self {
        for (gap_us, rtt_us) in START {
            self.send(200_000 / gap_us, segments, gap_us, rtt_us, NO_CLOCK);
        }
        self
    }
}

/// Gaps and round trips of two of these each: it grows until it fills the path.
const START: [(u64, u64); 4] = [(16_000, 100_000), (8_000, 100_000), (4_000, 100_000), (4_000, 135_000)];
const NO_CLOCK: fn(u64) -> Option<u32> = |_| None;

#[test]
fn a_pace_that_leaves_the_path_room_names_nobody_and_gives_no_share() {
    let mut steady = Spaced::new();
    steady.send(2_000, 2, 5_000, 100_000, NO_CLOCK);
    assert_eq!((steady.shadow.flavour(), &steady.samples), (Flavour::Unknown, &Vec::new()));
    assert_eq!(Spaced::new().starts(2).shadow.flavour(), Flavour::Bbr, "one that grows until it fills the path");
}

#[test]
fn bursts_larger_than_those_of_a_pace_are_the_applications() {
    assert_eq!(Spaced::new().starts(12).named, [Flavour::Unknown]);
}

#[test]
fn a_pace_that_does_not_change_in_a_cycle_of_gains_is_a_limit() {
    let mut limited = Spaced::new().starts(2);
    limited.send(600, 2, 4_000, 135_000, NO_CLOCK);
    assert_eq!(limited.shadow.flavour(), Flavour::Unknown, "others fill the path");
    limited.send(100, 2, 3_000, 135_000, NO_CLOCK);
    assert_eq!(limited.shadow.flavour(), Flavour::Bbr, "faster than that: it was none");
    let mut probing = Spaced::new().starts(2);
    for _ in 0..8 {
        probing.send(40, 2, 4_000, 135_000, NO_CLOCK);
        probing.send(8, 2, 3_200, 135_000, NO_CLOCK);
    }
    assert_eq!(probing.shadow.flavour(), Flavour::Bbr);
}

#[test]
fn a_rate_of_which_the_path_carried_all_is_a_bound() {
    let reasons = |rtts_us: [u64; 2], lossy: bool| {
        let mut bbr = Spaced::new();
        bbr.shadow.presume(Timestamp(0), Prior::Bbr);
        for rtt_us in rtts_us {
            for _ in 0..10 {
                // No pace is kept for long.
                bbr.send(40, 2, 4_000, rtt_us, NO_CLOCK);
                bbr.send(8, 2, 3_200, rtt_us, NO_CLOCK);
            }
            if lossy {
                let (at, pipe) = (Timestamp::from_micros(bbr.now_us), 50 * MSS);
                let _sample = bbr.shadow.on_loss(at, LossKind::FastRetransmit, pipe, pipe);
                bbr.shadow.on_recovery_end(at, pipe);
            }
        }
        bbr.samples
    };
    let room = reasons([100_000, 100_000], false);
    assert!(room.len() > 1 && room.iter().all(|reason| *reason == SampleReason::Carried), "{room:?}");
    let filled = reasons([100_000, 120_000], false);
    assert!(filled.first() == Some(&SampleReason::Carried) && filled.last() == Some(&SampleReason::Rate), "{filled:?}");
    assert!(reasons([100_000, 100_000], true).contains(&SampleReason::Rate));
}

#[test]
fn a_limits_rate_is_a_bound_though_others_fill_the_path() {
    let mut limited = Spaced::new();
    limited.shadow.presume(Timestamp(0), Prior::Bbr);
    limited.send(450, 2, 4_000, 100_000, NO_CLOCK);
    limited.samples.clear();
    limited.send(450, 2, 4_000, 120_000, NO_CLOCK);
    assert!(!limited.samples.is_empty());
    assert!(limited.samples.iter().all(|reason| *reason == SampleReason::Carried), "{:?}", limited.samples);
}

#[test]
fn even_gaps_of_a_queue_before_the_tap_are_no_pace() {
    let named = |stamp: fn(u64) -> Option<u32>| {
        let mut queued = Spaced::new();
        for (gap_us, rtt_us) in START {
            queued.send(200_000 / gap_us, 2, gap_us, rtt_us, stamp);
        }
        queued.named
    };
    let clock = |us: u64| u32::try_from(us / 1_000).ok();
    assert!(named(clock).contains(&Flavour::Bbr), "they left as they passed");
    // Windows that leave every 100 ms, and take as long to pass.
    let in_windows = |us: u64| u32::try_from(us / 100_000 * 100).ok();
    assert_eq!(named(in_windows), [Flavour::Unknown]);
}

#[test]
fn a_pipe_behind_a_queue_before_the_tap_is_that_of_the_answer() {
    let window = |queued_us: u64| {
        let mut shadow = opened();
        shadow.on_reaction(REACTION);
        let (mut delivered, clock) = (0, |us: u64| u32::try_from(us / 1_000).ok());
        // One acknowledgement a millisecond, each released a segment that passes `queued_us` later.
        for ms in 0..1_000_u64 {
            let at = Timestamp::from_micros(ms * 1_000);
            let acked_by = ms.saturating_sub(100).min(ms) * MSS;
            let newly = acked_by - delivered;
            delivered = acked_by;
            if newly > 0 {
                let pipe = (ms * MSS).saturating_sub(delivered);
                shadow.on_ack(at, &Acked { pipe, flight: pipe, ..acked(newly, delivered) });
            }
            let pipe = (ms + 1) * MSS - delivered;
            let left_us = (ms * 1_000).saturating_sub(if ms > 200 { queued_us } else { 0 });
            let sent = Sent {
                new_bytes: 1_000,
                full_sized: true,
                pipe,
                flight: pipe,
                since_ack: Some(REACTION),
                stamp: clock(left_us),
                ..Sent::default()
            };
            shadow.on_sent(at.after(REACTION), &sent);
        }
        whole(&shadow)
    };
    assert!((100..115).contains(&window(0)), "{}", window(0));
    assert!((125..150).contains(&window(30_000)), "thirty more wait there: {}", window(30_000));
}

#[test]
fn what_is_in_flight_counts_in_the_size_it_was_sent_with() {
    let pipe_after = |size: u64| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
        let _sample = shadow.on_loss(at, LossKind::FastRetransmit, 40 * MSS, 40 * MSS);
        shadow.on_recovery_end(at, 0);
        let window = u64::from(whole(&shadow));
        for n in 1..=window {
            let pipe = n * MSS;
            shadow.on_sent(at, &Sent { new_bytes: 1_000, full_sized: true, pipe, flight: pipe, ..Sent::default() });
        }
        shadow.on_open(at, Bytes(size), None);
        // One leaves in the new size for each that arrives.
        at = at.after(RTT);
        let flight = (window - 1) * MSS;
        shadow.on_ack(at, &Acked { pipe: flight, flight, ..acked(MSS, delivered + MSS) });
        let (new_bytes, pipe) = (u32::try_from(size).unwrap(), flight + size);
        shadow.on_sent(at, &Sent { new_bytes, full_sized: true, pipe, flight: pipe, ..Sent::default() });
        (window, shadow.window().unwrap().segments(Bytes(size)).0)
    };
    let (window, after) = pipe_after(750);
    assert!(u64::from(after) <= window + 1, "{after} of {window}");
}
