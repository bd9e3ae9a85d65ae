use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::str::FromStr;

use ipnet::IpNet;
use proptest::prelude::*;
use spand_cells::{Digest, HeldBack, Notice, Pseudonyms, Shares, Sharing, StartSeen};
use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_core::types::{ConnectionId, LimitCounts, RttSum, SampleRate, SampleReason, SenderId, Trigger, WindowSample};
use spand_core::window::bucket::{Bucket, Contribution, FullSum, QueueSum, RemoteRtt, Source};
use spand_proto::estimate::RuleKind;
use spand_proto::units::{Bytes, Timestamp, Window};
use strum::VariantArray;

use super::*;

mod bytes;
mod notices;

const GATEWAY: GatewayId = GatewayId(7);
const TAP: TapId = TapId(70_000);
const BUCKET: Micros = Micros::from_secs(10);
const INDEX: u64 = 176_000_000;
const START: u64 = INDEX * 10_000_000_000;

fn writer() -> BatchWriter {
    BatchWriter::new(GATEWAY, TAP, BUCKET)
}

fn pseudonym(address: impl Into<IpAddr>) -> IpAddr {
    Pseudonyms::new([3; 16]).address(address.into())
}

fn window() -> impl Strategy<Value = Window> {
    (0.0..1e12).prop_map(|bytes: f64| Window::from_bytes(bytes).unwrap())
}

prop_compose! {
    fn contribution(index: u64)(
        source: Option<(u64, u64)>,
        counts: (u32, u32, u32, u32),
        sums in (0.0..1e15, 0.0..1e15, 0.0..1e30, 0.0..1e15),
        mss: u64,
        largest_bound in prop::option::of(window()),
        carried in prop::option::of(window()),
        queued in prop::option::of((1u32.., 0.0..1e15, 0.0..1e30)),
    ) -> Contribution {
        let source = source.map(|(hash, connection)| Source { remote: Pseudonyms::of_hash(hash), connection: ConnectionId(connection) });
        Contribution {
            bucket: index,
            source,
            samples: counts.0,
            loss_samples: counts.1,
            sum_bytes: sums.0,
            loss_bytes: sums.1,
            full: FullSum { samples: counts.3, bytes: if counts.3 > 0 { sums.3 } else { 0.0 }, by_rate: sums.3 > 1e14 },
            squares: sums.2,
            carried,
            mss: Bytes(mss),
            queued: queued.map_or_else(QueueSum::default, |(losses, bytes, squares)| QueueSum { losses, bytes, squares }),
            lower_bounds: counts.2,
            largest_bound,
        }
    }
}

prop_compose! {
    fn bucket(index: u64)(count: u64, min: Option<u64>, sum: u64, counts: (u32, u32, u32, u32)) -> Bucket {
        let rtt = RttSum { count, min: min.map(Micros), sum: Micros(sum) };
        let (losses, window_limited, receiver_limited, application_limited) = counts;
        Bucket { index, rtt, losses, window_limited, receiver_limited, application_limited, ..Bucket::default() }
    }
}

prop_compose! {
    fn any_network()(address: IpAddr, len in 0u8..=128) -> Network {
        let most = if address.is_ipv4() { 32 } else { 128 };
        Network::new(IpNet::new(address, len.min(most)).unwrap())
    }
}

/// A cell of a bucket of `nanos`: every moment lies in it.
fn cell(gateway: GatewayId, tap: TapId, nanos: u64) -> impl Strategy<Value = Cell> {
    (0..u64::MAX / nanos).prop_flat_map(move |index| {
        let moment = (0..nanos).prop_map(move |offset| Timestamp(index * nanos + offset));
        let moment = move || prop::option::of(moment.clone());
        let rtts = prop::collection::vec(any::<(u64, u64, u64)>(), 0..=16);
        let parts = (bucket(index), prop::collection::vec(contribution(index), 0..=MOST_CONTRIBUTIONS), rtts);
        (parts, (moment(), moment(), moment()), 1..=256u16, any::<(u32, u32)>()).prop_map(
            move |((bucket, contributions, rtts), moments, followed, parallel)| Cell {
                gateway,
                tap,
                as_of: moments.0.unwrap_or(Timestamp((index + 1) * nanos)),
                bucket,
                contributions,
                rtts: rtts.into_iter().map(|(hash, count, sum)| round_trips(index, hash, count, sum)).collect(),
                followed: SampleRate::of_256(followed),
                parallel: parallel.0,
                parallel_at_samples: parallel.1,
                newest_sample: moments.1,
                raised: moments.2,
            },
        )
    })
}

fn round_trips(bucket: u64, hash: u64, count: u64, sum: u64) -> RemoteRtt {
    RemoteRtt { bucket, remote: Pseudonyms::of_hash(hash), count, sum: Micros(sum) }
}

fn batch() -> impl Strategy<Value = Batch> {
    (any::<(u16, u32)>(), 1..=u64::MAX / 2_000).prop_flat_map(|((gateway, tap), bucket)| {
        let (gateway, tap) = (GatewayId(gateway), TapId(tap));
        let cells = prop::collection::vec((any_network(), cell(gateway, tap, bucket * 1_000)), 0..4);
        cells.prop_map(move |cells| Batch { gateway, tap, bucket: Micros(bucket), cells })
    })
}

fn written(batch: &Batch) -> Vec<u8> {
    let mut writer = BatchWriter::new(batch.gateway, batch.tap, batch.bucket);
    for (network, cell) in &batch.cells {
        assert!(writer.add(*network, cell));
    }
    assert_eq!((writer.len(), writer.is_empty()), (batch.cells.len(), batch.cells.is_empty()));
    writer.finish()
}

prop_compose! {
    fn member()(
        numbers: (u16, u32, u64, u64, u32, u64, u64),
        digests in prop::collection::vec(any::<(u64, u32, u64)>(), 0..5),
        name in "\\PC{0,60}",
        version in "[0-9a-z.+-]{0,64}",
        rule in prop::sample::select(RuleKind::VARIANTS),
        address in prop::option::of("[0-9a-z.:-]{0,253}"),
    ) -> Member {
        let (gateway, tap, instance, bucket, buckets, prefixes, clock) = numbers;
        Member {
            gateway: GatewayId(gateway),
            tap: TapId(tap),
            instance,
            name,
            version,
            bucket: Micros(bucket),
            buckets,
            rule,
            prefixes,
            clock: Timestamp(clock),
            digests: digests.into_iter().map(|(index, cells, hash)| (index, Digest { cells, hash })).collect(),
            address,
        }
    }
}

proptest! {
    #[test]
    fn any_batch_comes_back(batch in batch()) {
        prop_assert_eq!(read_batch(&written(&batch)), Ok(batch));
    }

    #[test]
    fn any_member_comes_back(member in member()) {
        prop_assert_eq!(read_member(&write_member(&member)), Ok(member));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let with = |kind: Kind| [&[FORMAT, kind as u8], &bytes[..]].concat();
        for message in [bytes.clone(), with(Kind::Cells), with(Kind::Member), with(Kind::Notices), with(Kind::Again)] {
            if let Ok(buckets) = read_again(&message) {
                prop_assert_eq!(read_again(&write_again(&buckets)), Ok(buckets));
            }
            if let Ok(batch) = read_batch(&message) {
                prop_assert!(batch.cells.len() <= message.len());
            }
            if let Ok(notices) = read_notices(&message) {
                prop_assert_eq!(read_notices(&write_notices(&notices)), Ok(notices));
            }
            if let Ok(member) = read_member(&message) {
                prop_assert_eq!(read_member(&write_member(&member)), Ok(member));
            }
        }
    }

    /// What is read of a damaged message can be written, and is the same then.
    #[test]
    fn damage_is_refused_or_gives_another_batch(batch in batch(), at: prop::sample::Index, mask in 1u8..) {
        let mut bytes = written(&batch);
        *at.get_mut(&mut bytes) ^= mask;
        if let Ok(batch) = read_batch(&bytes) {
            // Bytes and not cells: some fractions are not equal to themselves.
            let again = written(&batch);
            prop_assert_eq!(written(&read_batch(&again).unwrap()), again);
        }
    }
}

proptest! {
    // Each case is thousands of messages.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_message_that_is_cut_or_goes_on_is_refused(batch in batch(), member in member()) {
        let (mut batch, mut member) = (written(&batch), write_member(&member));
        for cut in 0..batch.len() {
            prop_assert!(read_batch(&batch[..cut]).is_err(), "{} of {}", cut, batch.len());
        }
        for cut in 0..member.len() {
            prop_assert!(read_member(&member[..cut]).is_err(), "{} of {}", cut, member.len());
        }
        batch.push(0);
        member.push(0);
        prop_assert_eq!(read_batch(&batch), Err(FormatError::Nonsense));
        prop_assert_eq!(read_member(&member), Err(FormatError::Nonsense));
    }

    #[test]
    fn a_batch_fills_up_to_the_limit_and_not_beyond(cells in prop::collection::vec(cell(GATEWAY, TAP, 10_000_000_000), 1..5)) {
        let network = "2001:db8::/48".parse().unwrap();
        let (mut writer, mut last) = (writer(), 0);
        let one = |cell: &Cell| {
            let mut alone = self::writer();
            assert!(alone.add(network, cell));
            alone.finish().len()
        };
        let refused = loop {
            let cell = &cells[last % cells.len()];
            if !writer.add(network, cell) {
                break one(cell);
            }
            last += 1;
        };
        prop_assert_eq!(writer.len(), last);
        let message = writer.finish();
        prop_assert!(message.len() <= MESSAGE_BYTES && message.len() + refused > MESSAGE_BYTES - HEADER_BYTES);
        let read = read_batch(&message).unwrap().cells;
        prop_assert!(read.iter().map(|(_, cell)| cell).eq(cells.iter().cycle().take(last)));
    }
}

/// A small cell with a sample of a connection to `remote`, and round trips to it.
fn cell_to(remote: IpAddr) -> Cell {
    let contribution = Contribution {
        bucket: INDEX,
        source: Some(Source { remote, connection: ConnectionId(5) }),
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
        gateway: GATEWAY,
        tap: TAP,
        as_of: Timestamp(START + 5),
        bucket: Bucket { index: INDEX, rtt, losses: 1, ..Bucket::default() },
        contributions: vec![contribution],
        rtts: vec![RemoteRtt { bucket: INDEX, remote, count: 2, sum: Micros(40_000) }],
        followed: SampleRate::ALL,
        parallel: 2,
        parallel_at_samples: 1,
        newest_sample: Some(Timestamp(START)),
        raised: None,
    }
}

fn network() -> Network {
    "203.0.113.0/24".parse().unwrap()
}

fn refused(cell: &Cell) -> Unwritable {
    let mut writer = writer();
    assert!(writer.add(network(), &cell_to(pseudonym([192, 0, 2, 1]))));
    let before = writer.cells.clone();
    let why = writer.try_add(network(), cell).unwrap_err();
    assert_eq!((writer.len(), writer.cells), (1, before), "nothing of it stays");
    why
}

#[test]
fn an_address_of_a_client_is_never_written() {
    for address in ["192.0.2.77", "2001:db8::4d", "::ffff:192.0.2.77", "100:0:0:1::4d", "::"] {
        let address: IpAddr = address.parse().unwrap();
        let named = pseudonym([192, 0, 2, 1]);
        let mut at_source = cell_to(address);
        at_source.rtts.clear();
        let mut at_round_trips = cell_to(named);
        at_round_trips.rtts.push(RemoteRtt { bucket: INDEX, remote: address, count: 1, sum: Micros(1) });
        for cell in [cell_to(address), at_source, at_round_trips] {
            assert_eq!(refused(&cell), Unwritable::Address, "{address}");
        }
    }
    let bytes = [192, 0, 2, 77];
    let mut writer = writer();
    assert!(writer.add(network(), &cell_to(pseudonym(bytes))));
    let message = writer.finish();
    let hash = Pseudonyms::hash_of(pseudonym(bytes)).unwrap().to_le_bytes();
    let times = |bytes: &[u8]| message.windows(bytes.len()).filter(|window| *window == bytes).count();
    assert_eq!((times(&hash), times(&bytes), times(&[192, 0, 2])), (2, 0, 0));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "Address")]
fn a_debug_build_stops_at_an_address_of_a_client() {
    writer().add(network(), &cell_to([192, 0, 2, 77].into()));
}

#[test]
fn a_cell_that_contradicts_its_batch_is_not_written() {
    let sound = || cell_to(pseudonym([192, 0, 2, 1]));
    let change = |change: &dyn Fn(&mut Cell)| {
        let mut cell = sound();
        change(&mut cell);
        refused(&cell)
    };
    assert_eq!(change(&|cell| cell.gateway = GatewayId(8)), Unwritable::OfAnother);
    assert_eq!(change(&|cell| cell.tap = TapId(8)), Unwritable::OfAnother);
    assert_eq!(change(&|cell| cell.contributions[0].bucket += 1), Unwritable::OtherBucket);
    assert_eq!(change(&|cell| cell.rtts[0].bucket -= 1), Unwritable::OtherBucket);
    assert_eq!(change(&|cell| cell.as_of = Timestamp(START - 1)), Unwritable::Times);
    assert_eq!(change(&|cell| cell.as_of.0 += 10_000_000_000), Unwritable::Times);
    assert_eq!(change(&|cell| cell.newest_sample = Some(Timestamp(START - 1))), Unwritable::Times);
    assert_eq!(change(&|cell| cell.raised = Some(Timestamp(START + 10_000_000_000))), Unwritable::Times);
    assert_eq!(change(&|cell| cell.bucket.index = u64::MAX), Unwritable::Times);
    let many = |cell: &mut Cell| cell.contributions = vec![cell.contributions[0].clone(); 2_000];
    assert_eq!(change(&many), Unwritable::TooLarge);
}

#[test]
fn a_cell_with_more_parts_than_any_gateway_writes_is_refused() {
    let read = |contributions: usize, rtts: usize| {
        let mut cell = cell_to(pseudonym([192, 0, 2, 1]));
        cell.contributions = vec![cell.contributions[0].clone(); contributions];
        cell.rtts = vec![cell.rtts[0]; rtts];
        let mut writer = writer();
        assert!(writer.add(network(), &cell));
        read_batch(&writer.finish()).map(|batch| batch.cells.len())
    };
    assert_eq!(read(17, 16), Ok(1));
    assert_eq!((read(18, 16), read(17, 17)), (Err(FormatError::Nonsense), Err(FormatError::Nonsense)));
}

#[test]
fn the_smallest_cells_fill_a_batch() {
    let cell = Cell {
        contributions: Vec::new(),
        rtts: Vec::new(),
        bucket: Bucket::default(),
        as_of: Timestamp(10_000_000_000),
        newest_sample: None,
        ..cell_to([0; 4].into())
    };
    let (mut writer, mut alone) = (writer(), writer());
    let network = "0.0.0.0/0".parse().unwrap();
    assert!(alone.add(network, &cell));
    while writer.add(network, &cell) {}
    assert_eq!(writer.len(), (MESSAGE_BYTES - HEADER_BYTES) / alone.cells.len());
    let cells = writer.len();
    assert_eq!(read_batch(&writer.finish()).unwrap().cells.len(), cells);
}

#[test]
fn a_format_of_another_release_is_refused_by_name() {
    let member = Member { name: "gateway-1".to_owned(), ..plain_member() };
    let (mut batch, mut member) = (writer().finish(), write_member(&member));
    for format in [0, FORMAT - 1, FORMAT + 1, 255] {
        (batch[0], member[0]) = (format, format);
        assert_eq!(read_batch(&batch), Err(FormatError::Unknown(format)));
        assert_eq!(read_member(&member), Err(FormatError::Unknown(format)));
    }
    assert_eq!(
        FormatError::Unknown(3).to_string(),
        "the message has format 3, and this gateway reads format 4: upgrade the older gateway"
    );
}

#[test]
fn a_message_of_another_kind_or_length_is_refused() {
    let (batch, member) = (writer().finish(), write_member(&plain_member()));
    assert_eq!(read_batch(&member), Err(FormatError::Misplaced));
    assert_eq!(read_member(&batch), Err(FormatError::Misplaced));
    assert_eq!(read_batch(&[FORMAT, 9]), Err(FormatError::Nonsense));
    assert_eq!((read_batch(&[]), read_member(&[])), (Err(FormatError::Truncated), Err(FormatError::Truncated)));
    let long = [&batch[..], &vec![0; MESSAGE_BYTES]].concat();
    assert_eq!(read_batch(&long), Err(FormatError::TooLong));
    assert_eq!(read_member(&[FORMAT, 2].repeat(MESSAGE_BYTES)), Err(FormatError::TooLong));
}

/// A message with a cell of 0.0.0.0/0, whose moments and lists are these.
fn message_with(bucket: u64, index: u64, moments: [Option<u64>; 3], lists: &impl Serialize) -> Vec<u8> {
    let cell = (IpNet::from_str("0.0.0.0/0").unwrap(), Bucket { index, ..Bucket::default() }, moments, lists);
    super::written(Kind::Cells, &(GATEWAY, TAP, Micros(bucket), 1u8, cell))
}

#[test]
fn counts_that_the_message_cannot_hold_allocate_nothing() {
    let cells = super::written(Kind::Cells, &(GATEWAY, TAP, BUCKET, u64::MAX));
    assert_eq!(read_batch(&cells), Err(FormatError::Truncated));
    let many = u64::MAX >> 1;
    let contributions = message_with(1, 1, [None; 3], &(many, [0u8; 30]));
    let round_trips = message_with(1, 1, [None; 3], &(0u8, many, [0u8; 30]));
    for message in [contributions, round_trips] {
        assert_eq!(read_batch(&message), Err(FormatError::Truncated));
    }
    for kind in [Kind::Notices, Kind::Again] {
        let message = super::written(kind, &(u64::MAX, u64::MAX));
        assert!(read_notices(&message).is_err() && read_again(&message).is_err());
    }
}

#[test]
fn a_network_is_read_in_canonical_form() {
    let whole = message_with(1, 1, [None; 3], &[0u8; 5]);
    let head = super::written(Kind::Cells, &(GATEWAY, TAP, Micros(1), 1u8)).len();
    let with = |network: &[u8]| {
        let message = [&whole[..head], network, &whole[head + 6..]].concat();
        read_batch(&message).map(|batch| batch.cells[0].0.to_string())
    };
    assert_eq!(with(&[0, 192, 0, 2, 128, 25]), Ok("192.0.2.128/25".to_owned()));
    assert_eq!(with(&[0, 192, 0, 2, 129, 25]), Ok("192.0.2.128/25".to_owned()));
    let v6 =
        |start: &[u8], end: &[u8], len: u8| [&[1], start, &vec![0; 16 - start.len() - end.len()], end, &[len]].concat();
    assert_eq!(with(&v6(&[0x20, 0x01, 0x80], &[], 17)), Ok("2001:8000::/17".to_owned()));
    assert_eq!(with(&v6(&[], &[255, 255, 192, 0, 2, 7], 120)), Ok("192.0.2.0/24".to_owned()));
    for wrong in [vec![0, 192, 0, 2, 1, 33], v6(&[], &[], 129), vec![2, 0, 0, 0, 0, 0]] {
        assert_eq!(with(&wrong), Err(FormatError::Nonsense), "{wrong:?}");
    }
}

#[test]
fn a_moment_lies_in_its_bucket_and_a_bucket_in_time() {
    let with = |bucket: u64, index: u64, moments: [Option<u64>; 3]| {
        read_batch(&message_with(bucket, index, moments, &[0u8; 5])).map(|batch| batch.cells[0].1.clone())
    };
    for place in 0..3 {
        let at = |offset: u64| std::array::from_fn(|of| (of == place).then_some(offset));
        let cell = with(1, 3, at(999)).unwrap();
        let open = if place == 0 { 3_999 } else { 4_000 };
        let moment = |of: usize| (of == place).then_some(Timestamp(3_999));
        assert_eq!((cell.as_of, cell.newest_sample, cell.raised), (Timestamp(open), moment(1), moment(2)));
        assert_eq!(with(1, 3, at(1_000)), Err(FormatError::Nonsense));
        assert_eq!(with(1, 3, at(u64::MAX)), Err(FormatError::Nonsense));
    }
    let closed = [None; 3];
    assert_eq!(with(0, 3, closed), Err(FormatError::Nonsense));
    assert_eq!(with(u64::MAX, 0, closed), Err(FormatError::Nonsense));
    assert_eq!(with(1, u64::MAX / 1_000, closed), Err(FormatError::Nonsense));
    assert_eq!(with(1, u64::MAX / 1_000 - 1, closed).map(|cell| cell.as_of.0), Ok(u64::MAX / 1_000 * 1_000));
}

#[test]
fn a_window_that_is_no_number_is_refused() {
    let none = (None::<f64>, 0u64, (0u32, 0.0, 0.0), 0u32, None::<f64>);
    let with = |carried: f64| {
        let sums = (0u32, 0u32, 0.0, 0.0, (0u32, 0.0, false), 0.0);
        let part = (None::<u8>, (0u64, None::<u8>, sums, (Some(carried), none.1, none.2, none.3, none.4)));
        read_batch(&message_with(1, 1, [None; 3], &(1u8, part, [0u8; 4])))
            .map(|batch| batch.cells[0].1.contributions[0].carried)
    };
    assert_eq!(with(9.0), Ok(Window::from_bytes(9.0)));
    for wrong in [f64::NAN, f64::INFINITY, -1.0] {
        assert_eq!(with(wrong), Err(FormatError::Nonsense), "{wrong}");
    }
}

fn plain_member() -> Member {
    Member {
        gateway: GATEWAY,
        tap: TAP,
        instance: 1,
        name: String::new(),
        version: String::new(),
        bucket: BUCKET,
        buckets: 30,
        rule: RuleKind::Robust,
        prefixes: 0,
        clock: Timestamp(0),
        digests: Vec::new(),
        address: None,
    }
}

#[test]
fn texts_of_a_member_are_short_and_printable() {
    let member = Member {
        name: format!("a\u{1b}[2J{}", "ä".repeat(200)),
        version: "1".repeat(100),
        address: Some("2".repeat(300)),
        ..plain_member()
    };
    let read = read_member(&write_member(&member)).unwrap();
    assert_eq!(read.name, format!("a[2J{}", "ä".repeat(124)), "253 bytes would end within a character");
    assert_eq!((read.version.len(), read.address.map(|address| address.len())), (64, Some(253)));

    // The name's length is the byte after gateway, tap and instance; the version's follows.
    let sound = write_member(&Member { name: "ab".to_owned(), ..plain_member() });
    let place = 2 + 1 + 3 + 1;
    let with = |name: &[u8]| read_member(&[&sound[..place], name, &sound[place + 3..]].concat());
    assert_eq!(with(&[2, b'a', b'c']).map(|member| member.name), Ok("ac".to_owned()));
    assert_eq!(with(&[2, b'a', 0x1b]), Err(FormatError::Text));
    assert_eq!(with(&[2, b'a', 0xff]), Err(FormatError::Text));
    assert_eq!(with(&[&[0xfe, 1][..], &[b'a'; 254]].concat()), Err(FormatError::Text));
    // After name, version, bucket length and buckets.
    let rule = place + 3 + 1 + 4 + 1;
    assert_eq!(sound[rule], RuleKind::Robust as u8);
    let other = [&sound[..rule], &[99], &sound[rule + 1..]].concat();
    assert_eq!(read_member(&other), Err(FormatError::Nonsense));
}

/// A table of networks that shares, with what `connections` to as many hosts show in a bucket; half of the samples are of losses.
fn cells_of_a_table(connections: u8) -> Vec<(Network, Cell)> {
    let sharing = Sharing { gateway: GATEWAY, tap: TAP, pseudonyms: Pseudonyms::new([3; 16]) };
    let limit = NonZeroUsize::new(100).unwrap();
    let mut table = NetworkTable::new(WindowConfig::default(), limit, RuleKind::Robust, 7).sharing(Some(sharing));
    let at = |n: u64| Timestamp(START + n * 300_000_000);
    for n in 0..40 {
        let network = Network::of([198, 51, n, 0].into());
        for connection in 0..connections {
            let (remote, number) = (IpAddr::from([198, 51, n, connection]), u64::from(connection));
            // A connection's number is the hash of its first segment.
            let id = ConnectionId((u64::from(n) << 8 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3);
            for again in 0..2 {
                let at = at(number + 10 * again);
                let reason = if again == 0 { SampleReason::Loss } else { SampleReason::End };
                let rtt = Micros(40_000 + number * 700 + again * 9_000);
                table.add_rounds(
                    network,
                    at,
                    remote,
                    RttSum::of(rtt),
                    LimitCounts { window: 3, ..LimitCounts::default() },
                );
                table.add(&WindowSample {
                    at,
                    network,
                    remote,
                    connection: id,
                    window: Window::from_bytes(20_000.0 + 1_448.0 * f64::from(connection)).unwrap(),
                    mss: Bytes(1_448),
                    reason,
                    reduced_before: true,
                    transfer: Bytes(1_000_000),
                    advised: false,
                    rtt_min: Some(Micros(40_000)),
                    rtt: Some(rtt),
                });
                if reason == SampleReason::Loss {
                    table.add_loss(network, at, SenderId { connection: id, remote }, rtt);
                }
            }
        }
    }
    table.take_cells();
    table.expire(Timestamp(START + 10_000_000_000), usize::MAX);
    table.take_cells()
}

#[test]
fn cells_of_a_table_come_back_and_have_the_size_that_the_documentation_states() {
    let sizes = [1, 4, 16].map(|connections| {
        let cells = cells_of_a_table(connections);
        assert_eq!(cells.len(), 40);
        assert!(cells.iter().all(|(_, cell)| cell.contributions.len() == usize::from(connections)));
        let batch = Batch { gateway: GATEWAY, tap: TAP, bucket: BUCKET, cells };
        let message = written(&batch);
        let bytes = (message.len() - writer().finish().len()) / batch.cells.len();
        println!("{connections} contributions: {bytes} bytes a cell, {} cells a message", MESSAGE_BYTES / bytes);
        assert_eq!(read_batch(&message), Ok(batch));
        bytes
    });
    let stated = [132, 423, 1_587];
    assert!(sizes.iter().zip(stated).all(|(bytes, stated)| bytes.abs_diff(stated) <= 2), "{sizes:?}");
}
