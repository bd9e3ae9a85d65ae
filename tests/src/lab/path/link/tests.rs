use spand_proto::units::BytesPerSecond;

use super::super::config::{CHANGES_MAX, DelayChange, Hop, Queue, RateChange};
use super::super::impairments::{Burst, Cross, Reorder};
use super::*;

const MS: u64 = 1_000_000;
const FULL: Packet = sized(1_000);

const fn sized(length: u32) -> Packet {
    Packet { length, ecn: false, push: false }
}

/// A megabyte per second and 50 ms: a full packet takes a millisecond.
fn hop(queue: Queue) -> Hop {
    Hop::new(Some(BytesPerSecond(1_000_000)), queue, Duration::from_millis(50))
}

fn link(queue: Queue) -> Link {
    Link::new(&LinkConfig::new(hop(queue)), 1)
}

fn impaired(impairments: &Impairments) -> Link {
    let config =
        LinkConfig { impairments: *impairments, ..LinkConfig::new(Hop { rate: None, ..hop(Queue::Packets(1)) }) };
    Link::new(&config, 1)
}

fn due(link: &mut Link, now_ns: u64, packet: Packet) -> Result<u64, Drop> {
    link.offer(now_ns, packet).map(|arrival| arrival.due_ns)
}

#[test]
fn packets_leave_at_the_rate_and_arrive_after_the_delay() {
    let mut link = link(Queue::Packets(3));
    assert_eq!(due(&mut link, 0, FULL), Ok(51 * MS));
    assert_eq!(due(&mut link, 0, FULL), Ok(52 * MS));
    assert_eq!(due(&mut link, MS / 2, sized(500)), Ok(52 * MS + MS / 2));
    // An idle bottleneck starts afresh.
    assert_eq!(due(&mut link, 9 * MS, FULL), Ok(60 * MS));
}

#[test]
fn the_packet_in_service_counts_against_the_queue() {
    let mut link = link(Queue::Packets(2));
    assert!(link.offer(0, FULL).is_ok());
    assert!(link.offer(0, FULL).is_ok());
    assert_eq!(link.offer(MS - 1, FULL), Err(Drop::Tail));
    assert!(link.offer(MS, FULL).is_ok());
}

#[test]
fn a_queue_in_bytes_counts_bytes() {
    let mut link = link(Queue::Bytes(2_000));
    assert!(link.offer(0, sized(1_500)).is_ok());
    assert_eq!(link.offer(0, sized(501)), Err(Drop::Tail));
    assert!(link.offer(0, sized(500)).is_ok());
}

#[test]
fn bottlenecks_in_a_row_queue_one_after_another() {
    let slower = Hop::new(Some(BytesPerSecond(500_000)), Queue::Packets(2), Duration::from_millis(10));
    let config = LinkConfig::new(hop(Queue::Packets(9))).then([slower]);
    let mut link = Link::new(&config, 1);
    // 1 ms and 50 ms, then 2 ms and 10 ms.
    assert_eq!(due(&mut link, 0, FULL), Ok(63 * MS));
    assert_eq!(due(&mut link, 0, FULL), Ok(65 * MS));
    // Until 53 ms the first is in service there; the third comes at 53 ms, the fourth at 54 ms finds two.
    assert_eq!(due(&mut link, 0, FULL), Ok(67 * MS));
    assert_eq!(due(&mut link, 0, FULL), Err(Drop::Tail));
    assert_eq!(config.delay(), Duration::from_millis(60));
}

#[test]
fn random_losses_come_at_their_chance_and_take_no_room() {
    let impairments = Impairments { loss: 0.1, ..Impairments::default() };
    let config = LinkConfig { impairments, ..LinkConfig::new(hop(Queue::Packets(1))) };
    let mut link = Link::new(&config, 1);
    let outcomes: Vec<_> = (0..10_000).map(|n| link.offer(n * MS, FULL)).collect();
    let lost = outcomes.iter().filter(|outcome| **outcome == Err(Drop::Random)).count();
    assert!((900..1_100).contains(&lost), "{lost} of 10,000 lost, a tenth was set");
    assert!(!outcomes.contains(&Err(Drop::Tail)), "a lost packet took room");
    let mut again = Link::new(&config, 1);
    assert!(outcomes.iter().zip(0..).all(|(outcome, n)| *outcome == again.offer(n * MS, FULL)), "another seed's dice");
}

#[test]
fn losses_in_bursts_come_together() {
    let burst = Some(Burst { begin: 0.01, end: 0.25, loss: 1.0 });
    let mut link = impaired(&Impairments { burst, ..Impairments::default() });
    let lost: Vec<bool> = (0..100_000).map(|n| link.offer(n * MS, FULL).is_err()).collect();
    let count = lost.iter().filter(|lost| **lost).count() as f64;
    let bursts = lost.windows(2).filter(|pair| *pair == [false, true]).count() as f64;
    // In the bad state 0.01 / 0.26 of the time, four packets long on average.
    assert!((3_000.0..4_700.0).contains(&count), "{count} lost");
    assert!((3.5..4.5).contains(&(count / bursts)), "bursts of {}", count / bursts);
}

#[test]
fn tail_loss_hits_segments_with_push_only() {
    let mut link = impaired(&Impairments { tail_loss: 1.0, ..Impairments::default() });
    assert!(link.offer(0, FULL).is_ok());
    assert_eq!(link.offer(0, Packet { push: true, ..FULL }), Err(Drop::Random));
}

const EPISODES: Episodes =
    Episodes { first: Duration::from_millis(100), every: Duration::from_secs(1), lasting: Duration::from_millis(30) };

#[test]
fn an_outage_loses_all_of_its_time_and_comes_again() {
    let mut link = impaired(&Impairments { outage: Some(EPISODES), ..Impairments::default() });
    let begin = 7_000 * MS;
    for (at, lost) in [(0, false), (99, false), (100, true), (129, true), (130, false), (1_100, true), (1_130, false)] {
        assert_eq!(link.offer(begin + at * MS, FULL) == Err(Drop::Outage), lost, "at {at} ms");
    }
}

#[test]
fn a_stall_delays_all_of_its_time_to_its_end() {
    let mut link = impaired(&Impairments { stall: Some(EPISODES), ..Impairments::default() });
    for (at, arrives) in [(0, 50), (100, 180), (129, 180), (130, 180), (131, 181)] {
        assert_eq!(due(&mut link, at * MS, FULL), Ok(arrives * MS), "at {at} ms");
    }
}

#[test]
fn jitter_adds_delay_and_keeps_the_order() {
    let mut link = impaired(&Impairments { jitter: Duration::from_millis(10), ..Impairments::default() });
    let delays: Vec<u64> = (0..1_000).map(|n| due(&mut link, n * 20 * MS, FULL).unwrap() - n * 20 * MS).collect();
    assert!(delays.iter().all(|delay| (50 * MS..=60 * MS).contains(delay)));
    let mean = delays.iter().sum::<u64>() / 1_000;
    assert!((54 * MS..56 * MS).contains(&mean), "a mean of {mean} ns");
    let close: Vec<u64> = (0..1_000).map(|n| due(&mut link, 30_000 * MS + n, FULL).unwrap()).collect();
    assert!(close.is_sorted(), "jitter let packets overtake");
}

#[test]
fn reordered_packets_come_later_by_what_was_set_and_hold_nobody_up() {
    let reorder = Some(Reorder { chance: 0.05, by: Duration::from_millis(7) });
    let mut link = impaired(&Impairments { reorder, ..Impairments::default() });
    let mut overtaken = 0;
    for n in 0..10_000 {
        let arrival = link.offer(n * MS, FULL).unwrap();
        assert_eq!(arrival.due_ns, n * MS + if arrival.overtaken { 57 * MS } else { 50 * MS });
        overtaken += u32::from(arrival.overtaken);
    }
    assert!((400..600).contains(&overtaken), "{overtaken} of 10,000 overtaken, a twentieth was set");
}

#[test]
fn duplicates_come_at_their_chance() {
    let mut link = impaired(&Impairments { duplicate: 0.02, ..Impairments::default() });
    let twice = (0..10_000).filter(|n| link.offer(n * MS, FULL).unwrap().duplicated).count();
    assert!((150..250).contains(&twice), "{twice} of 10,000 twice, a fiftieth was set");
}

#[test]
fn marks_are_for_those_who_understand_them_behind_a_long_queue() {
    let config = LinkConfig::new(Hop { mark_above: Some(2), ..hop(Queue::Packets(9)) });
    let mut link = Link::new(&config, 1);
    let able = Packet { ecn: true, ..FULL };
    let marked: Vec<bool> = [able, able, able, FULL, able].map(|p| link.offer(0, p).unwrap().marked).to_vec();
    assert_eq!(marked, [false, false, true, false, true]);
    // The queue has drained.
    assert!(!link.offer(9 * MS, able).unwrap().marked);
}

#[test]
fn cross_traffic_takes_its_share_of_a_bottleneck() {
    // On two thirds of the time with all of the bottleneck's rate, in packets of 210 bytes.
    let (on, off) = (Duration::from_millis(200), Duration::from_millis(100));
    let cross = Cross { on, off, shape: 1.5, ..Cross::paper(1, BytesPerSecond(1_000_000)) };
    let shared = LinkConfig::new(Hop { cross: Some(cross), ..hop(Queue::Packets(50)) });
    let mut link = Link::new(&shared, 3);
    // Half of the rate for a minute: alone it would never wait.
    let mut waited = 0;
    let mut lost = 0;
    for n in 0..30_000_u64 {
        match link.offer(n * 2 * MS, FULL) {
            Ok(arrival) => waited += u64::from(arrival.due_ns > n * 2 * MS + 51 * MS),
            Err(_) => lost += 1,
        }
    }
    assert!((9_000..27_000).contains(&waited), "{waited} of 30,000 waited");
    assert!(lost > 100, "{lost} lost although both together offer more than the rate for stretches");
}

#[test]
fn a_bottleneck_changes_its_rate_at_the_configured_times() {
    let mut changes = [None; CHANGES_MAX];
    for (change, (after, rate)) in changes.iter_mut().zip([(1, 500_000), (2, 2_000_000)]) {
        *change = Some(RateChange { after: Duration::from_secs(after), rate: BytesPerSecond(rate) });
    }
    let mut link = Link::new(&LinkConfig::new(Hop { changes, ..hop(Queue::Packets(9)) }), 1);
    // Counted from the first packet.
    for (at, service) in [(7_000, MS), (7_998, MS), (8_000, 2 * MS), (8_997, 2 * MS), (9_000, MS / 2)] {
        assert_eq!(due(&mut link, at * MS, FULL), Ok(at * MS + service + 50 * MS), "{at} ms");
    }
}

#[test]
fn a_single_loss_takes_one_full_packet() {
    let mut link = impaired(&Impairments { single: Some(Duration::from_millis(10)), ..Impairments::default() });
    let lost: Vec<u64> =
        (0..30).filter(|n| link.offer(n * MS, sized(if n % 2 == 0 { 60 } else { 1_000 })).is_err()).collect();
    assert_eq!(lost, [11]);
}

#[test]
fn a_delay_changes_at_the_configured_time_and_nothing_is_overtaken() {
    let changed = |ms| Some(DelayChange { after: Duration::from_secs(1), delay: Duration::from_millis(ms) });
    let mut longer = Link::new(&LinkConfig::new(Hop { delay_change: changed(80), ..hop(Queue::Packets(9)) }), 1);
    let mut shorter = Link::new(&LinkConfig::new(Hop { delay_change: changed(10), ..hop(Queue::Packets(9)) }), 1);
    for (at, later, sooner) in [(0, 51, 51), (999, 51, 51), (1_000, 81, 50), (1_100, 81, 11)] {
        assert_eq!(due(&mut longer, at * MS, FULL), Ok((at + later) * MS), "{at} ms");
        assert_eq!(due(&mut shorter, at * MS, FULL), Ok((at + sooner) * MS), "{at} ms");
    }
}

#[test]
fn what_arrives_within_a_bunch_is_delivered_together_at_its_end() {
    let mut link = impaired(&Impairments { bunched: Duration::from_millis(10), ..Impairments::default() });
    let dues: Vec<u64> =
        [1, 4, 9, 11].into_iter().map(|ms| due(&mut link, ms * MS, FULL).unwrap() % (10 * MS)).collect();
    assert_eq!(dues, [0; 4]);
    let apart = due(&mut link, 21 * MS, FULL).unwrap() - due(&mut link, 22 * MS, FULL).unwrap();
    assert_eq!(apart, 0);
}

#[test]
fn a_policer_passes_its_burst_and_then_its_rate_without_delay() {
    // A packet of 1,000 bytes a millisecond, and five at once.
    let policer = Some(Policer { rate: BytesPerSecond(1_000_000), burst_bytes: 5_000 });
    let mut link = impaired(&Impairments { policer, ..Impairments::default() });
    let passed = |link: &mut Link, now_ns: u64| (0..10).filter(|_| due(link, now_ns, sized(1_000)).is_ok()).count();
    assert_eq!(passed(&mut link, 0), 5);
    assert_eq!(passed(&mut link, 3 * MS), 3);
    assert_eq!(passed(&mut link, 100 * MS), 5, "no more than the burst, however long the pause");
}
