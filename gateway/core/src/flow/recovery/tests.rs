use super::*;

fn repeat(start: u64, una: u64, ts_value: u32) -> Repeat {
    Repeat {
        start,
        end: start + 1_000,
        una,
        nxt: 20_000,
        sacked: 3_000,
        mss: 1_000,
        unseen: false,
        again: false,
        since_sent: Some(Micros(150_000)),
        since_ack: Some(Micros(10)),
        timeout: Micros(300_000),
        sack_permitted: true,
        ts_value: Some(ts_value),
    }
}

fn advance(una: u64, echo: u32) -> Progress {
    Progress {
        una,
        nxt: 20_000,
        kind: AckKind::Advance,
        dsack: false,
        echo: Some(echo),
        ece: false,
        lost: 0,
        repeated: 0,
    }
}

#[test]
fn an_echo_of_a_repeat_of_the_episode_before_takes_nothing_back() {
    let mut recovery = Recovery::default();
    assert_eq!(recovery.repeated(&Repeat { nxt: 11_000, ..repeat(1_000, 1_000, 100) }), Some(LossKind::FastRetransmit));
    assert_eq!(recovery.repeated(&repeat(13_000, 1_000, 120)), None);
    assert!(recovery.acknowledged(&advance(11_000, 100)).ended);
    assert_eq!(recovery.repeated(&repeat(11_000, 11_000, 150)), Some(LossKind::FastRetransmit));
    assert!(!recovery.acknowledged(&advance(12_000, 120)).undone);
}

#[test]
fn an_echo_older_than_the_only_repeat_takes_it_back() {
    let mut recovery = Recovery::default();
    assert_eq!(recovery.repeated(&repeat(1_000, 1_000, 100)), Some(LossKind::FastRetransmit));
    assert!(recovery.acknowledged(&advance(20_000, 90)).undone);
}

#[test]
fn a_loss_begins_where_the_acknowledgements_show_it() {
    let show = |una: u64, nxt: u64, lost: u64, repeated: u64| Progress { nxt, lost, repeated, ..advance(una, 300) };
    let mut recovery = Recovery::default();
    recovery.acknowledged(&show(1_000, 11_000, 1_000, 0));
    // Pacing holds the repeat back, and more goes out before it; nothing is SACKed any more that would hint at it.
    let paced = Repeat { nxt: 15_000, sacked: 0, ..repeat(1_000, 1_000, 100) };
    assert_eq!(recovery.repeated(&paced), Some(LossKind::FastRetransmit), "no timeout");
    assert!(recovery.acknowledged(&show(11_000, 16_000, 0, 0)).ended, "at what had been sent by the acknowledgement");

    assert_eq!(
        recovery.repeated(&Repeat { nxt: 16_000, ..repeat(12_000, 12_000, 220) }),
        Some(LossKind::FastRetransmit)
    );
    assert!(recovery.acknowledged(&show(16_000, 19_000, 2_000, 0)).began.is_none(), "nothing of it was repeated yet");
    assert_eq!(
        recovery.repeated(&Repeat { nxt: 20_000, ..repeat(17_000, 16_000, 240) }),
        Some(LossKind::FastRetransmit)
    );
    let turn = recovery.acknowledged(&show(19_000, 23_000, 1_000, 1_000));
    assert!(turn.ended && turn.began.is_some() && recovery.is_active(), "its repeat left before the end");
    assert!(recovery.acknowledged(&show(23_000, 24_000, 0, 0)).ended);
}
