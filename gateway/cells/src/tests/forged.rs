//! Gateways that send what they never saw.

use super::*;

/// Honest clients, each with an address and a connection of its own, over three buckets. The end.
fn clients(table: &mut NetworkTable, which: std::ops::Range<u8>) -> Timestamp {
    for round in 0..6_u64 {
        for client in which.clone() {
            let at = seconds(round * 5 + 1).after(Micros::from_millis(u64::from(client)));
            table.expire(at, usize::MAX);
            // A sawtooth from 15 to 25 segments.
            let segments = 15.0 + f64::from((u32::from(client) * 7 + u32::try_from(round).unwrap() * 5) % 11);
            let reason = if client % 3 == 0 { SampleReason::Loss } else { SampleReason::End };
            let connection = client.into();
            Seen { connection, address: client, network: 1, after_ms: 0, segments, reason }.tell(table, at);
        }
    }
    seconds(32)
}

/// What a gateway that was taken over makes of a cell: the same sources or made-up ones, with many samples of N segments.
fn forged(of: &Cell, made_up: bool, segments: f64) -> Cell {
    let bytes = segments * 1_000.0;
    let sources: Vec<_> = if made_up {
        let source = |n: u64| Source { remote: Pseudonyms::of_hash(n + 1), connection: ConnectionId(n + 1) };
        (0..16).map(source).map(Some).collect()
    } else {
        of.contributions.iter().map(|part| part.source).collect()
    };
    let part = |source| Contribution {
        bucket: of.index(),
        source,
        samples: 40,
        loss_samples: 40,
        sum_bytes: 40.0 * bytes,
        loss_bytes: 40.0 * bytes,
        full: FullSum { samples: 40, bytes: 40.0 * bytes, by_rate: false },
        squares: 40.0 * bytes * bytes,
        carried: Window::from_bytes(bytes),
        mss: Bytes(1_000),
        queued: QueueSum::default(),
        lower_bounds: 0,
        largest_bound: None,
    };
    let mut contributions: Vec<_> = sources.into_iter().map(part).collect();
    contributions.sort_by_key(|part| part.source);
    let (count, sum) = (1_000_000, Micros(1_000_000 * 2_000_000));
    let rtts = [1, 2].map(|n| RemoteRtt { bucket: of.index(), remote: Pseudonyms::of_hash(n), count, sum }).to_vec();
    let rtt = RttSum { count: 2 * count, sum: Micros(2 * sum.0), min: Some(Micros(1)) };
    let bucket = Bucket { rtt, ..of.bucket.clone() };
    Cell { gateway: GatewayId(9), tap: TapId(9), contributions, rtts, bucket, ..of.clone() }
}

#[test]
fn one_gateway_that_lies_moves_what_the_own_tap_saw_by_a_tenth_and_is_named() {
    for (honest, made_up, segments) in [12, 40]
        .into_iter()
        .flat_map(|n| [(n, false, 386.0), (n, true, 386.0), (n, false, 1.0), (n, true, 1.0), (n, true, 27.0)])
    {
        let mut own = table(0, 0, 10);
        let now = clients(&mut own, 0..honest);
        let before = estimate(&mut own, 1, now).unwrap();
        for cell in own.own_cells(network(1), 0, now) {
            own.take_cell(network(1), forged(&cell, made_up, segments), now).unwrap();
        }
        let after = estimate(&mut own, 1, now).unwrap();
        let moved = after.share.bytes() / before.share.bytes();
        assert!((0.899..=1.101).contains(&moved), "{honest} clients, {made_up}, {segments}: {moved}");
        let rtt = |of: &Estimate| of.rtt_mean.unwrap().0 as f64 / 1e3;
        assert!((0.75..=1.25).contains(&(rtt(&after) / rtt(&before))), "{} ms of {}", rtt(&after), rtt(&before));
        assert_eq!(after.mss, before.mss);
        let view = own.view(network(1), now).unwrap();
        assert_eq!(
            (view.estimate.as_ref(), view.rtt_mean),
            (Some(&after), after.rtt_mean),
            "what people see is the same"
        );
        let named: Vec<_> = own.sharing_counts().unwrap().outliers.iter().map(|(tap, of)| (*tap, of.begun)).collect();
        let expected = if (segments - 27.0).abs() < 0.5 { vec![] } else { vec![(TapId(9), 1)] };
        assert_eq!(named, expected, "{honest} clients, {made_up}, {segments}");
    }
}

#[test]
fn of_several_taps_one_that_lies_far_off_counts_nowhere_and_every_gateway_estimates_the_same() {
    for (made_up, segments) in [(false, 386.0), (true, 386.0), (false, 1.0), (true, 1.0)] {
        let mut taps = [table(1, 1, 10), table(2, 2, 10)];
        let now = clients(&mut taps[0], 0..14);
        clients(&mut taps[1], 14..28);
        // Two that do not see the network.
        let mut others = [table(3, 3, 10), table(4, 4, 10)];
        let cells: Vec<_> = taps.iter().flat_map(|tap| tap.own_cells(network(1), 0, now)).collect();
        for cell in &cells {
            for other in &mut others {
                other.take_cell(network(1), cell.clone(), now).unwrap();
            }
        }
        let honest = estimate(&mut others[0], 1, now).unwrap();
        for cell in cells.iter().filter(|cell| cell.gateway == GatewayId(1)) {
            let forged = forged(cell, made_up, segments);
            for other in &mut others {
                other.take_cell(network(1), forged.clone(), now).unwrap();
            }
        }
        for other in &mut others {
            assert_eq!(bits(estimate(other, 1, now).as_ref()), bits(Some(&honest)), "{made_up}, {segments}");
            let outlier = other.sharing_counts().unwrap().outliers[&TapId(9)].last;
            assert!(outlier.is_left_out && (outlier.factor > 10.0 || outlier.factor < 0.1), "{outlier:?}");
        }
        // It is gone: everything counts again.
        let aged = now.after(Micros::from_secs(400));
        for other in &mut others {
            other.expire(aged, usize::MAX);
            assert!(other.is_empty());
        }
    }
}

#[test]
fn a_tap_that_differs_a_little_or_saw_little_counts_as_any() {
    let mut taps = [table(1, 1, 10), table(2, 2, 10), table(3, 3, 10)];
    let now = clients(&mut taps[0], 0..14);
    clients(&mut taps[1], 14..28);
    let connection = 30;
    // Far off, and one sample of one connection alone.
    let far = Seen { connection, address: 30, network: 1, after_ms: 0, segments: 300.0, reason: SampleReason::Loss };
    far.tell(&mut taps[2], seconds(3));
    let mut other = table(4, 4, 10);
    for cell in taps.iter().flat_map(|tap| tap.own_cells(network(1), 0, now)) {
        other.take_cell(network(1), cell, now).unwrap();
    }
    let found = estimate(&mut other, 1, now).unwrap();
    assert_eq!(usize::try_from(found.connections).unwrap(), 29);
    assert!(other.sharing_counts().unwrap().outliers.is_empty());
}
