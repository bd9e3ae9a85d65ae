//! Tables that share against one that sees everything.

use std::net::IpAddr;
use std::num::NonZeroUsize;

use proptest::prelude::*;
use spand_core::config::WindowConfig;
use spand_core::networks::{NetworkTable, Seen as AtOnce};
use spand_core::types::{ConnectionId, LimitCounts, RttSum, SampleRate, SampleReason, SenderId, WindowSample};
use spand_core::window::bucket::{Bucket, Contribution, FullSum, QueueSum, RemoteRtt, Source};
use spand_core::window::record::NetworkRecord;
use spand_proto::estimate::{Estimate, RuleKind};
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use self::made::{START, merged_record, network, sample};
use super::*;
use crate::foreign::{Foreign, GATEWAYS_PER_BUCKET, Taken};

mod forged;
mod life;
mod made;

const SECOND: Micros = Micros::from_secs(1);

fn table(gateway: u16, tap: u32, networks: usize) -> NetworkTable {
    let sharing = Sharing { gateway: GatewayId(gateway), tap: TapId(tap), pseudonyms: Pseudonyms::new([3; 16]) };
    let limit = NonZeroUsize::new(networks).unwrap();
    NetworkTable::new(WindowConfig::default(), limit, RuleKind::Robust, 7).sharing(Some(sharing))
}

fn seconds(s: u64) -> Timestamp {
    START.after(Micros::from_secs(s))
}

/// One thing that a tap sees of a connection.
#[derive(Clone, Copy, Debug)]
struct Seen {
    connection: u64,
    address: u8,
    network: u8,
    after_ms: u64,
    segments: f64,
    reason: SampleReason,
}

impl Seen {
    fn tell(self, table: &mut NetworkTable, at: Timestamp) {
        let remote = [198, 51, self.network, self.address].into();
        let reason = self.reason;
        table.add(&WindowSample { remote, ..sample(self.network, at, self.segments, self.connection, reason) });
        let rtt = Micros(20_000 + u64::from(self.address) * 1_000 + self.connection);
        table.add_rounds(network(self.network), at, remote, RttSum::of(rtt), LimitCounts::default());
        if self.reason == SampleReason::Loss {
            let sender = SenderId { connection: ConnectionId(self.connection), remote };
            table.add_loss(network(self.network), at, sender, rtt);
        }
    }
}

/// `connections` of each of N addresses of each network, `longest_ms` between two things seen.
fn seen(connections: u64, addresses: u8, longest_ms: u64) -> impl Strategy<Value = Seen> {
    let reasons = vec![SampleReason::Loss, SampleReason::End, SampleReason::End, SampleReason::EndAppLimited];
    let of = (0..connections, 0..addresses, 1..3u8, 0..longest_ms, 10.0..40.0_f64, prop::sample::select(reasons));
    of.prop_map(move |(connection, address, network, after_ms, segments, reason)| Seen {
        // An address and a connection always go together.
        connection: connection * u64::from(addresses) + u64::from(address),
        address,
        network,
        after_ms,
        segments,
        reason,
    })
}

/// Has every table hear what it sees; `sees` says which do. Cells go from all to all after each, in this order of gateways. The end.
fn run(
    tables: &mut [NetworkTable],
    all: &[Seen],
    sees: impl Fn(usize, &Seen) -> bool,
    hears: impl Fn(usize, usize) -> bool,
) -> Timestamp {
    let mut at = seconds(0);
    for one in all {
        at = at.after(Micros::from_millis(one.after_ms));
        for (number, table) in tables.iter_mut().enumerate() {
            table.expire(at, usize::MAX);
            if sees(number, one) {
                one.tell(table, at);
            }
        }
        exchange(tables, at, &hears);
    }
    share_all(tables, at, &hears);
    at
}

fn exchange(tables: &mut [NetworkTable], now: Timestamp, hears: &impl Fn(usize, usize) -> bool) {
    let cells: Vec<_> = tables.iter_mut().map(Shares::take_cells).collect();
    deliver(tables, &cells, now, hears);
}

fn deliver(
    tables: &mut [NetworkTable],
    cells: &[Vec<(Network, Cell)>],
    now: Timestamp,
    hears: &impl Fn(usize, usize) -> bool,
) {
    for (to, table) in tables.iter_mut().enumerate() {
        for (from, cells) in cells.iter().enumerate().filter(|(from, _)| *from != to && hears(*from, to)) {
            for (network, cell) in cells {
                assert_eq!(table.take_cell(*network, cell.clone(), now), Ok(()), "from {from} to {to}");
            }
        }
        while table.poll_event().is_some() {}
    }
}

/// Everything that the tables know, as after a pause of the exchange.
fn share_all(tables: &mut [NetworkTable], now: Timestamp, hears: &impl Fn(usize, usize) -> bool) {
    let all = tables.iter().map(|table| {
        let networks = table.own_networks();
        let cells = |network: Network| table.own_cells(network, 0, now).into_iter().map(move |cell| (network, cell));
        networks.into_iter().flat_map(cells).collect::<Vec<_>>()
    });
    let all: Vec<_> = all.collect();
    deliver(tables, &all, now, hears);
}

/// The estimate of a network, evaluated again.
fn estimate(table: &mut NetworkTable, n: u8, now: Timestamp) -> Option<Estimate> {
    // Every network is due within its look.
    for ms in 0..40 {
        table.expire(now.after(Micros::from_millis(ms * 100)), usize::MAX);
    }
    let estimate = table.estimate(network(n), now);
    while table.poll_event().is_some() {}
    estimate
}

fn bits(estimate: Option<&Estimate>) -> Option<(u64, u64)> {
    estimate
        .map(|estimate| (estimate.share.bytes().to_bits(), estimate.loss_window.map_or(0, |of| of.bytes().to_bits())))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn gateways_that_share_know_what_one_that_sees_everything_knows(
        all in prop::collection::vec(seen(5, 3, 400), 1..250),
        gateways in 2..5u16,
    ) {
        // Two see nothing themselves: what others saw of a network is bounded by the own tap alone.
        let mut tables: Vec<_> = (0..gateways + 2).map(|n| table(n, n.into(), 10)).collect();
        let of = |one: &Seen| usize::try_from(one.connection % u64::from(gateways)).unwrap();
        let now = run(&mut tables, &all, |number, one| of(one) == number, |_, _| true);
        let mut whole = table(9, 9, 10);
        run(std::slice::from_mut(&mut whole), &all, |_, _| true, |_, _| true);
        for n in 1..3 {
            let expected = estimate(&mut whole, n, now);
            for table in &mut tables {
                let found = estimate(table, n, now);
                prop_assert_eq!(bits(found.as_ref()), bits(expected.as_ref()), "network {}", n);
                let counts = |of: &Option<Estimate>| of.as_ref().map(|of| (of.samples, of.connections, of.losses, of.rtt_min, of.rtt_mean));
                prop_assert_eq!(counts(&found), counts(&expected));
            }
        }
    }

    #[test]
    fn buckets_that_overflow_give_nearly_the_same_and_every_gateway_the_same(
        all in prop::collection::vec(seen(3, 40, 20), 600..900),
        gateways in 2..5u16,
    ) {
        // Two see nothing themselves: what others saw of a network is bounded by the own tap alone.
        let mut tables: Vec<_> = (0..gateways + 2).map(|n| table(n, n.into(), 10)).collect();
        let of = |one: &Seen| usize::try_from(one.connection % u64::from(gateways)).unwrap();
        let now = run(&mut tables, &all, |number, one| of(one) == number, |_, _| true);
        let mut whole = table(9, 9, 10);
        run(std::slice::from_mut(&mut whole), &all, |_, _| true, |_, _| true);
        prop_assert!(whole.shared() > 0, "nothing overflowed");
        for n in 1..3 {
            let expected = estimate(&mut whole, n, now).unwrap();
            let found: Vec<_> = tables.iter_mut().map(|table| estimate(table, n, now).unwrap()).collect();
            let [.., one, other] = found.as_slice() else { unreachable!() };
            prop_assert_eq!(bits(Some(one)), bits(Some(other)));
            // What is estimated from is the same at all, also where the own tap bounds the estimate.
            let merged = |table: &NetworkTable| merged_record(table, network(n), now);
            let first = merged(&tables[0]);
            for NetworkRecord { buckets, contributions, rtts, .. } in tables.iter().map(merged) {
                prop_assert_eq!((&buckets, &contributions, &rtts), (&first.buckets, &first.contributions, &first.rtts));
            }
            for one in &found {
                let off = (one.share.bytes() / expected.share.bytes() - 1.0).abs();
                // Addresses in the common rest of a full bucket count as one.
                prop_assert!(off <= 0.15, "{} off", off);
                prop_assert_eq!((one.samples, one.losses), (expected.samples, expected.losses));
            }
        }
    }

    #[test]
    fn cells_merge_in_any_order_however_often_they_come(
        all in prop::collection::vec(seen(5, 3, 400), 1..150),
        order in any::<u64>(),
    ) {
        let never = |_, _| false;
        let mut tables = [table(0, 0, 10), table(1, 1, 10)];
        let mut sent = Vec::new();
        let mut at = seconds(0);
        for one in &all {
            at = at.after(Micros::from_millis(one.after_ms));
            one.tell(&mut tables[usize::try_from(one.connection % 2).unwrap()], at);
            // Every state of the bucket that is open.
            sent.extend(tables[1].own_cells(network(one.network), 0, at).into_iter().map(|cell| (network(one.network), cell)));
        }
        let mut expected = table(2, 2, 10);
        let mut shuffled = table(2, 2, 10);
        let take = |table: &mut NetworkTable, (network, cell): &(Network, Cell)| {
            table.take_cell(*network, cell.clone(), at).unwrap();
        };
        for one in &sent {
            take(&mut expected, one);
        }
        let mut random = order | 1;
        for _ in 0..3 * sent.len() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            take(&mut shuffled, &sent[usize::try_from(random >> 33).unwrap() % sent.len()]);
        }
        for one in sent.iter().rev() {
            take(&mut shuffled, one);
        }
        for n in 1..3 {
            prop_assert_eq!(estimate(&mut shuffled, n, at), estimate(&mut expected, n, at));
        }
        exchange(&mut tables, at, &never);
    }

    #[test]
    fn gateways_of_a_mirror_group_know_what_one_of_them_knows(all in prop::collection::vec(seen(5, 3, 400), 1..200)) {
        let mut tables = [table(0, 0, 10), table(1, 0, 10), table(2, 0, 10)];
        // Two lose packets.
        let sees = |number: usize, one: &Seen| number == 1 || one.connection.is_multiple_of(2);
        let now = run(&mut tables, &all, sees, |_, _| true);
        let mut alone = table(9, 9, 10);
        run(std::slice::from_mut(&mut alone), &all, |_, _| true, |_, _| true);
        for n in 1..3 {
            let expected = estimate(&mut alone, n, now);
            for table in &mut tables {
                let found = estimate(table, n, now);
                prop_assert_eq!(bits(found.as_ref()), bits(expected.as_ref()));
                prop_assert_eq!(found.map(|of| (of.samples, of.connections, of.losses)), expected.as_ref().map(|of| (of.samples, of.connections, of.losses)));
            }
        }
    }

    #[test]
    fn taps_that_see_the_same_undeclared_are_noticed_and_pull_the_share_nowhere(
        all in prop::collection::vec(seen(5, 3, 400), 100..200),
    ) {
        let mut tables = [table(0, 0, 10), table(1, 1, 10)];
        let now = run(&mut tables, &all, |_, _| true, |_, _| true);
        let mut alone = table(9, 9, 10);
        run(std::slice::from_mut(&mut alone), &all, |_, _| true, |_, _| true);
        for n in 1..3 {
            let expected = estimate(&mut alone, n, now);
            for table in &mut tables {
                prop_assert_eq!(bits(estimate(table, n, now).as_ref()), bits(expected.as_ref()));
            }
        }
        let both = &tables[0].sharing_counts().unwrap().seen_by_both[&GatewayId(1)];
        prop_assert!(both.all > 0 && both.both == both.all, "{:?}", both);
    }
}

/// Four connections to network 1 from two addresses at once, so that there is an estimate.
fn four(table: &mut NetworkTable, at: Timestamp, segments: f64) {
    for connection in 0..4 {
        let address = u8::try_from(connection % 2).unwrap();
        Seen { connection, address, network: 1, after_ms: 0, segments, reason: SampleReason::Loss }.tell(table, at);
    }
}

#[test]
fn what_another_gateway_saw_is_known_here_and_never_stored_nor_passed_on() {
    let (mut one, mut other) = (table(0, 0, 10), table(1, 1, 10));
    four(&mut one, seconds(1), 20.0);
    other.changed_records(0);
    for (network, cell) in one.take_cells() {
        other.take_cell(network, cell, seconds(2)).unwrap();
    }
    for cell in one.own_cells(network(1), 0, seconds(2)) {
        other.take_cell(network(1), cell, seconds(2)).unwrap();
    }
    let found = estimate(&mut other, 1, seconds(2)).unwrap();
    assert_eq!(bits(Some(&found)), bits(estimate(&mut one, 1, seconds(2)).as_ref()));
    assert_eq!(other.changed_records(10), [(network(1), None)], "the store gets nothing of it");
    assert_eq!((other.own_networks(), other.own_cells(network(1), 0, seconds(2))), (vec![], vec![]));
    other.expire(seconds(30), usize::MAX);
    assert_eq!(other.take_cells(), []);
    assert!(estimate(&mut other, 1, seconds(290)).is_some(), "it outlives the gateway that saw it");
    other.expire(seconds(400), usize::MAX);
    assert!(other.is_empty(), "and ages as what this one saw");
}

#[test]
fn what_was_stored_before_anything_was_shared_leaves_under_pseudonyms_too() {
    let limit = NonZeroUsize::new(10).unwrap();
    let mut alone = NetworkTable::new(WindowConfig::default(), limit, RuleKind::Robust, 7);
    alone.changed_records(0);
    four(&mut alone, seconds(1), 20.0);
    let (network, record) = alone.changed_records(1).remove(0);
    let mut shared = table(0, 0, 10);
    shared.restore(network, record.unwrap(), seconds(2));
    let cell = shared.own_cells(network, 0, seconds(2)).remove(0);
    assert_eq!((cell.contributions.len(), cell.rtts.len()), (4, 2));
    table(1, 1, 10).take_cell(network, cell, seconds(2)).expect("it is sound, so all of its addresses are pseudonyms");
}

#[test]
fn an_estimate_that_appears_or_moves_is_shared_at_once_and_a_bucket_when_it_is_over() {
    let mut table = table(0, 0, 10);
    four(&mut table, seconds(6), 20.0);
    let first = table.take_cells();
    assert_eq!(first.len(), 1, "the first sample of an unknown network, and then not for a second");
    assert!(!first[0].1.is_closed(&WindowConfig::default()));
    table.expire(seconds(7), usize::MAX);
    let rest = table.take_cells();
    assert_eq!(rest.iter().map(|(_, cell)| cell.samples()).collect::<Vec<_>>(), [4], "the rest a second later");
    four(&mut table, seconds(9), 20.1);
    table.expire(seconds(10), usize::MAX);
    assert_eq!(table.take_cells(), [], "nothing moved");
    four(&mut table, seconds(11), 90.0);
    table.expire(seconds(12), usize::MAX);
    assert_eq!(table.take_cells().first().map(|(_, cell)| cell.samples()), Some(9), "the first sample moved it");
    assert_eq!(table.poll_timeout().map(|at| at <= seconds(15)), Some(true));
    table.expire(seconds(15), usize::MAX);
    let closed = table.take_cells();
    assert_eq!(closed.len(), 1);
    assert!(closed[0].1.is_closed(&WindowConfig::default()));
    assert_eq!((closed[0].1.samples(), closed[0].1.newest_sample), (12, Some(seconds(11))));
    table.expire(seconds(16), usize::MAX);
    assert_eq!(table.take_cells(), [], "once");
}

#[test]
fn a_bucket_that_grows_after_it_left_leaves_again() {
    let mut table = table(0, 0, 10);
    let mut closed = |late: Option<(Timestamp, f64)>, now| {
        if let Some((at, segments)) = late {
            four(&mut table, at, segments);
        }
        table.expire(now, usize::MAX);
        let closed = table.take_cells().into_iter().map(|(_, cell)| cell);
        closed.filter(|cell| cell.is_closed(&WindowConfig::default())).map(|cell| cell.samples()).collect::<Vec<_>>()
    };
    assert_eq!(closed(Some((seconds(6), 20.0)), seconds(15)), [4]);
    assert_eq!(closed(None, seconds(16)), [0_u64; 0]);
    // A tap hands packets over after the end of their bucket; they move nothing.
    assert_eq!(closed(Some((seconds(14), 20.0)), seconds(16)), [8]);
    assert_eq!(closed(None, seconds(17)), [0_u64; 0]);
    // The same, and the next bucket begins before anybody has looked.
    assert_eq!(closed(Some((seconds(14), 20.0)), seconds(14)), [0_u64; 0]);
    assert_eq!(closed(Some((seconds(18), 20.0)), seconds(18)), [12]);
}

#[test]
fn networks_that_only_others_know_make_room_first_and_never_displace() {
    let mut full = table(0, 0, 2);
    let mut other = table(1, 1, 10);
    let cell_of = |other: &mut NetworkTable, n: u8| {
        let one =
            Seen { connection: 1, address: 1, network: n, after_ms: 0, segments: 9.0, reason: SampleReason::Loss };
        one.tell(other, seconds(1));
        other.own_cells(network(n), 0, seconds(1)).remove(0)
    };
    let own =
        |n| Seen { connection: 1, address: 1, network: n, after_ms: 0, segments: 9.0, reason: SampleReason::Loss };
    own(1).tell(&mut full, seconds(1));
    assert_eq!(full.take_cell(network(2), cell_of(&mut other, 2), seconds(1)), Ok(()));
    assert_eq!(full.take_cell(network(3), cell_of(&mut other, 3), seconds(1)), Err(CellRefused::NoRoom));
    own(4).tell(&mut full, seconds(2));
    assert_eq!(full.own_networks(), [network(1), network(4)]);
    assert_eq!(full.take_cell(network(5), cell_of(&mut other, 5), seconds(2)), Err(CellRefused::NoRoom));
}

#[test]
fn times_of_a_cell_lie_in_its_bucket_also_after_a_restart_with_an_earlier_clock() {
    let mut before = table(0, 0, 10);
    before.changed_records(0);
    four(&mut before, seconds(4), 20.0);
    four(&mut before, seconds(7), 20.0);
    let (mut after, now) = (table(0, 0, 10), seconds(6));
    for (network, record) in before.changed_records(10) {
        after.restore(network, record.unwrap(), now);
    }
    let cells = after.own_cells(network(1), 0, now);
    assert_eq!(cells.iter().map(Cell::samples).collect::<Vec<_>>(), [4, 4]);
    for cell in cells {
        let start = Timestamp(cell.index() * 10 * SECOND.0 * 1_000);
        let times = [Some(cell.as_of), cell.newest_sample];
        assert!(times.iter().all(|at| at.is_some_and(|at| at >= start)), "{times:?}");
    }
}

fn cell(index: u64) -> Cell {
    let remote = Pseudonyms::new([3; 16]).address([192, 0, 2, 1].into());
    let source = Some(Source { remote, connection: ConnectionId(5) });
    let contribution = Contribution {
        bucket: index,
        source,
        samples: 2,
        loss_samples: 1,
        sum_bytes: 20_000.0,
        loss_bytes: 9_000.0,
        full: FullSum { samples: 1, bytes: 9_000.0, by_rate: false },
        squares: 2e8,
        carried: Window::from_bytes(11_000.0),
        mss: Bytes(1_000),
        queued: QueueSum::default(),
        lower_bounds: 0,
        largest_bound: None,
    };
    let rtt = RttSum { count: 2, sum: Micros(40_000), min: Some(Micros(19_000)) };
    Cell {
        gateway: GatewayId(1),
        tap: TapId(1),
        as_of: Timestamp(index * 10 * SECOND.0 * 1_000),
        bucket: Bucket { index, rtt, losses: 1, ..Bucket::default() },
        contributions: vec![contribution],
        rtts: vec![RemoteRtt { bucket: index, remote, count: 2, sum: Micros(40_000) }],
        followed: SampleRate::ALL,
        parallel: 2,
        parallel_at_samples: 1,
        newest_sample: Some(Timestamp(index * 10 * SECOND.0 * 1_000)),
        raised: None,
    }
}

#[test]
fn a_cell_that_cannot_be_is_refused_whole_and_named() {
    let now = seconds(100);
    let index = now.0 / 10_000_000_000;
    let refused = |change: &dyn Fn(&mut Cell)| {
        let mut table = table(0, 0, 10);
        let mut cell = cell(index);
        change(&mut cell);
        let refused = table.take_cell(network(1), cell, now).err();
        assert_eq!(table.is_empty(), refused.is_some());
        refused
    };
    assert_eq!(refused(&|_| ()), None);
    assert_eq!(refused(&|of| of.gateway = GatewayId(0)), Some(CellRefused::Own));
    let unsound: [&dyn Fn(&mut Cell); 18] = [
        &|of| of.contributions[0].sum_bytes = f64::NAN,
        &|of| of.contributions[0].squares = f64::INFINITY,
        &|of| of.contributions[0].samples = 1_000_000_000,
        &|of| of.contributions[0].sum_bytes = -1.0,
        &|of| of.contributions[0].mss = Bytes(0),
        &|of| of.contributions[0].loss_samples = 3,
        &|of| of.contributions[0].bucket = 3,
        &|of| of.contributions[0].source = Some(Source { remote: [192, 0, 2, 1].into(), connection: ConnectionId(5) }),
        &|of| of.contributions[0].source.as_mut().unwrap().connection = ConnectionId(1 << 62),
        &|of| of.contributions = vec![of.contributions[0].clone(); 2],
        &|of| of.rtts[0].count = 3,
        &|of| of.rtts[0].remote = [192, 0, 2, 1].into(),
        &|of| of.as_of.0 -= 1,
        &|of| of.as_of.0 += 10_000_000_001,
        // No tap sees so much.
        &|of| of.bucket.rtt.count = 10_000_001,
        &|of| of.bucket.rtt.sum = Micros(120_000_001),
        &|of| of.bucket.losses = 10_000_001,
        &|of| of.parallel = (1 << 20) + 1,
    ];
    for (number, change) in unsound.into_iter().enumerate() {
        assert_eq!(refused(change), Some(CellRefused::Unsound), "case {number}");
    }
    let at = |index: u64| table(0, 0, 10).take_cell(network(1), cell(index), now);
    assert_eq!(at(index + 1), Ok(()), "a clock that is a little ahead");
    assert_eq!(at(index + 2), Err(CellRefused::Future));
    assert_eq!(at(index - 29), Ok(()));
    assert_eq!(at(index - 30), Err(CellRefused::Aged));
}

#[test]
fn a_bucket_takes_a_number_of_gateways_and_keeps_the_contributions_with_the_most_samples() {
    let mut table = table(0, 0, 10);
    let now = seconds(100);
    let index = now.0 / 10_000_000_000;
    for gateway in 1..=u16::try_from(GATEWAYS_PER_BUCKET).unwrap() + 1 {
        let mut cell = cell(index);
        (cell.gateway, cell.tap) = (GatewayId(gateway), TapId(gateway.into()));
        cell.contributions = (0..16)
            .map(|n| {
                let mut part = cell.contributions[0].clone();
                part.source.as_mut().unwrap().connection = ConnectionId(u64::from(gateway) * 100 + n);
                part
            })
            .collect();
        let expected = if usize::from(gateway) <= GATEWAYS_PER_BUCKET { Ok(()) } else { Err(CellRefused::NoRoom) };
        assert_eq!(table.take_cell(network(1), cell, now), expected);
    }
    let found = estimate(&mut table, 1, now).unwrap();
    assert_eq!(usize::try_from(found.connections).unwrap(), merge::CONTRIBUTIONS);
    let crowded_out = table.sharing_counts().unwrap().crowded_out;
    assert_eq!(usize::try_from(crowded_out).unwrap(), 16 * GATEWAYS_PER_BUCKET - merge::CONTRIBUTIONS);
}

#[test]
fn what_is_kept_up_to_date_of_cells_is_what_they_hold() {
    let now = seconds(400);
    let newest = now.0 / 10_000_000_000;
    let own = NetworkRecord::new(WindowConfig::default().bucket);
    let of_own = (GatewayId(0), TapId(0));
    let seen = AtOnce { followed: SampleRate::ALL, parallel: 0, parallel_at_samples: 0 };
    let mut foreign = Foreign::new(&own, TapId(0));
    let check = |foreign: &Foreign| {
        assert_eq!(foreign.parts_bytes, foreign.cells.iter().map(Cell::parts_bytes).sum::<usize>());
        assert_eq!(foreign.raised, foreign.cells.iter().filter(|cell| cell.raised.is_some()).count());
        let latest = |of: fn(&Cell) -> Option<Timestamp>| foreign.cells.iter().filter_map(of).max();
        let merged = foreign.merged();
        let expected = (latest(|cell| Some(cell.as_of)), latest(|cell| cell.newest_sample), latest(|cell| cell.raised));
        assert_eq!((merged.newest, merged.newest_sample, merged.raised), expected);
    };
    for index in newest - 20..=newest {
        for gateway in [3, 1, 2] {
            let mut cell = cell(index);
            let at = |offset: u64| Timestamp(index * 10_000_000_000 + offset);
            (cell.gateway, cell.tap) = (GatewayId(gateway), TapId(gateway.into()));
            // Of the newest buckets none has a sample, and only old ones were raised.
            cell.newest_sample = (index < newest - 2).then(|| at(u64::from(gateway)));
            cell.raised = (index < newest - 15).then(|| at(7 + u64::from(gateway)));
            let extended = Cell {
                as_of: at(9),
                contributions: vec![cell.contributions[0].clone(); usize::from(gateway)],
                raised: None,
                ..cell.clone()
            };
            assert_eq!(foreign.take(cell, &WindowConfig::default()), Ok(Taken::New(None)));
            if index % 3 == 0 {
                assert_eq!(foreign.take(extended, &WindowConfig::default()), Ok(Taken::New(None)));
            }
            foreign.renew(&own, of_own, seen, now);
            check(&foreign);
        }
    }
    for s in [300, 360, 399, 460, 520] {
        foreign.drop_aged(seconds(s + 200), &WindowConfig::default());
        foreign.renew(&own, of_own, seen, now);
        check(&foreign);
    }
}

#[test]
fn connections_at_once_add_over_taps_and_not_within_one() {
    let now = seconds(100);
    let mut table = table(0, 0, 10);
    let index = now.0 / 10_000_000_000;
    four(&mut table, now, 20.0);
    for (gateway, tap, parallel, at_samples) in [(1, 1, 7, 3), (2, 1, 7, 3), (3, 0, 5, 2), (4, 2, 2, 9)] {
        let mut cell = cell(index);
        (cell.gateway, cell.tap) = (GatewayId(gateway), TapId(tap));
        (cell.parallel, cell.parallel_at_samples) = (parallel, at_samples);
        table.take_cell(network(1), cell, now).unwrap();
    }
    table.expire(now.after(SECOND), usize::MAX);
    let view = table.view(network(1), now).unwrap();
    assert_eq!((view.parallel, view.parallel_at_samples), (7 + 5 + 2, 3 + 2 + 2));
}

#[test]
fn networks_with_round_trips_alone_send_no_cell_whatever_is_asked_for() {
    const NETWORKS: u32 = 100_000;
    let mut table = table(0, 0, 100_001);
    let address = |n: u32| IpAddr::from((0x0b00_0001 + (n << 8)).to_be_bytes());
    for bucket in 0..3 {
        let at = seconds(10 * bucket);
        for n in 0..NETWORKS {
            let rtt = RttSum::of(Micros(20_000));
            table.add_rounds(Network::of(address(n)), at, address(n), rtt, LimitCounts::default());
        }
        table.expire(at.after(Micros::from_secs(9)), usize::MAX);
    }
    table.add(&sample(1, seconds(20), 30.0, 7, SampleReason::Loss));
    table.expire(seconds(31), usize::MAX);
    let networks: Vec<_> = table.take_cells().into_iter().map(|(network, _)| network).collect();
    assert!(!networks.is_empty() && networks.iter().all(|of| *of == network(1)), "{} cells", networks.len());
    let again: usize = table.own_networks().into_iter().map(|of| table.own_cells(of, 0, seconds(31)).len()).sum();
    assert_eq!((again, table.own_networks().len()), (1, 100_001));
}
