//! Tail loss probes, which go beyond the window.

use super::*;

/// One more segment of new data than fills the window: times in ms since an acknowledgement, since something was sent, and since
/// the lowest segment was.
#[derive(Clone, Copy, Debug)]
struct Late {
    unheard: u64,
    unsent: u64,
    since_oldest: u64,
}

/// Sends one in congestion avoidance, to a tap so far from the sender. Gives the window before and after it, and what is said at a
/// loss that a SACK then shows.
fn after_late(late: Late, reaction: Micros) -> (u32, u32, u32) {
    let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
    rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
    let _sample = shadow.on_loss(at, LossKind::FastRetransmit, 40 * MSS, 40 * MSS);
    shadow.on_recovery_end(at, 0);
    shadow.clock = AckClock::default();
    shadow.on_reaction(reaction);
    shadow.clock.on_ack(at, delivered, false);
    let window = whole(&shadow);
    let full = u64::from(window) * MSS;
    at = at.after(reaction);
    let sent = Sent { new_bytes: 1_000, full_sized: true, since_ack: Some(reaction), ..Sent::default() };
    for pipe in (1..=u64::from(window)).map(|n| n * MSS) {
        shadow.on_sent(at, &Sent { pipe, flight: pipe, ..sent });
    }
    at = at.after(Micros(late.unsent * 1_000));
    let since_ack = Some(Micros(late.unheard * 1_000));
    let since_oldest = Some(Micros(late.since_oldest * 1_000));
    shadow.on_sent(at, &Sent { pipe: full + MSS, flight: full + MSS, since_ack, since_oldest, ..sent });
    let after = whole(&shadow);
    at = at.after(RTT);
    shadow.on_ack(at, &Acked { pipe: full, flight: full + MSS, delivered_bytes: delivered + MSS, ..Acked::default() });
    let said = shadow.on_loss(at.after(reaction), LossKind::FastRetransmit, full, full + MSS).unwrap();
    (window, after, said.window.segments(Bytes(MSS)).0)
}

#[test]
fn a_tail_loss_probe_goes_beyond_the_window_and_says_nothing_of_it() {
    let late = |unheard, unsent, since_oldest| Late { unheard, unsent, since_oldest };
    for reaction in [Micros(50), Micros(5_000)] {
        // Two round trips; a timeout of 300 ms.
        for probe in [late(250, 250, 200), late(150, 150, 300)] {
            let (before, after, said) = after_late(probe, reaction);
            assert_eq!((after, said), (before, before - 1), "{probe:?}, {reaction:?}");
        }
        // An answer, twice, and the application, in between and in one go after a pause.
        for none in [late(0, 0, 200), late(reaction.0 / 1_000, 150, 300), late(150, 150, 200), late(250, 0, 0)] {
            let (before, after, said) = after_late(none, reaction);
            assert_eq!((after, said), (before + 1, before), "{none:?}, {reaction:?}");
        }
    }
}

#[test]
fn neither_does_one_in_a_reduction() {
    let after = |unheard: u64| {
        let (mut shadow, mut at, mut delivered) = (opened(), Timestamp(0), 0);
        rounds(&mut shadow, &mut at, &mut delivered, &[10, 20]);
        shadow.clock.on_ack(at, delivered, false);
        let _sample = shadow.on_loss(at, LossKind::Ecn, 40 * MSS, 0);
        let sent = Sent { new_bytes: 1_000, full_sized: true, since_ack: Some(Micros(0)), ..Sent::default() };
        shadow.on_sent(at, &Sent { pipe: 20 * MSS, flight: 20 * MSS, ..sent });
        let (pipe, flight, since_ack) = (21 * MSS, 21 * MSS, Some(Micros(unheard * 1_000)));
        shadow.on_sent(at.after(Micros(250_000)), &Sent { pipe, flight, since_ack, ..sent });
        whole(&shadow)
    };
    assert_eq!((after(250), after(0)), (20, 21), "two round trips after the last acknowledgement, and with one");
}
