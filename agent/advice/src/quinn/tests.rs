use std::time::Duration;

use spand_proto::resume::{Ack, Jump, Phase};
use spand_proto::units::Micros;

use super::resuming::Resuming;
use super::*;

const MTU: u16 = 1_200;
const RTT: Micros = Micros::from_millis(100);

/// A controller that has jumped to forty packets, with ten in flight.
fn jumped(base: Base) -> (Started, Instant) {
    let now = Instant::now();
    let (window, jump) = (10 * u64::from(MTU), Jump { window: 40 * u64::from(MTU), saved_rtt: RTT });
    let mut resuming = Resuming::new(window, jump, 0, MTU);
    let ack = Ack { newest: 1, sent: 1, flight: window, rtt: RTT, min_rtt: RTT, ..Ack::default() };
    resuming.machine.jump(Some(jump), &ack, window).unwrap();
    assert_eq!(resuming.on_sent(0, window), None);
    let started = Started {
        adviser: Adviser::connect("/nonexistent", "test"),
        question: Question::of(([192, 0, 2, 1], 443).into()),
        kind: base,
        handle: Handle::default(),
        asked_bytes: None,
        mtu: MTU,
        stage: Stage::Resume(resuming),
        base: base.build(None, now, MTU),
        connection: None,
        flight: None,
        met: Met::default(),
    };
    (started, now)
}

#[test]
fn the_window_of_a_jump_is_full_as_soon_as_no_other_packet_fits() {
    for base in [Base::Cubic, Base::NewReno] {
        let (mut controller, began) = jumped(base);
        let after = |ms| began + Duration::from_millis(ms);
        controller.on_sent(after(1), 28 * u64::from(MTU), 1);
        assert_eq!(controller.window(), 40 * u64::from(MTU), "{base:?}: held");
        controller.on_sent(after(2), u64::from(MTU), 2);
        assert_eq!(controller.window(), 39 * u64::from(MTU), "{base:?}: what is in flight");
        let Stage::Resume(resuming) = controller.stage else { panic!("{base:?}") };
        assert_eq!(resuming.machine.phase(), Phase::Validating, "{base:?}");
    }
}

#[test]
fn a_packet_may_be_larger_after_the_jump() {
    let (mut controller, began) = jumped(Base::Cubic);
    controller.on_mtu_update(1_452);
    controller.on_sent(began, 29 * u64::from(MTU) - 252, 1);
    assert_eq!(controller.window(), 39 * u64::from(MTU) - 252);
}
