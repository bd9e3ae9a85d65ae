//! Entries: any record and any key come back as they were.

use std::net::IpAddr;

use ipnet::IpNet;
use spand_core::types::{ConnectionId, RttSum};
use spand_core::window::bucket::{Contribution, FullSum, QueueSum, RemoteRtt, Source};
use spand_proto::units::{Bytes, Timestamp, Window};

use super::super::sled_store::decoded;
use super::*;
use crate::totals::Step;

fn window() -> impl Strategy<Value = Window> {
    (0.0..1e12).prop_map(|bytes: f64| Window::from_bytes(bytes).unwrap())
}

prop_compose! {
    fn any_bucket()(
        index: u64,
        count: u64,
        min: Option<u64>,
        sum: u64,
        counts: (u32, u32, u32, u32),
    ) -> Bucket {
        let rtt = RttSum { count, min: min.map(Micros), sum: Micros(sum) };
        let (losses, window_limited, receiver_limited, application_limited) = counts;
        Bucket { index, rtt, losses, window_limited, receiver_limited, application_limited, ..Bucket::default() }
    }
}

prop_compose! {
    fn any_contribution()(
        bucket: u64,
        source: Option<(IpAddr, u64)>,
        counts: (u32, u32, u32, u32),
        sums in (0.0..1e15, 0.0..1e15, 0.0..1e30, 0.0..1e15),
        mss: u64,
        largest_bound in prop::option::of(window()),
        carried in prop::option::of(window()),
        queued in (any::<u32>(), 0.0..1e15, 0.0..1e30),
    ) -> Contribution {
        Contribution {
            bucket,
            source: source.map(|(remote, connection)| Source { remote, connection: ConnectionId(connection) }),
            samples: counts.0,
            loss_samples: counts.1,
            sum_bytes: sums.0,
            loss_bytes: sums.1,
            full: FullSum { samples: counts.3, bytes: if counts.3 > 0 { sums.3 } else { 0.0 }, by_rate: sums.3 > 1e14 },
            squares: sums.2,
            carried,
            mss: Bytes(mss),
            queued: if queued.0 > 0 {
                QueueSum { losses: queued.0, bytes: queued.1, squares: queued.2 }
            } else {
                QueueSum::default()
            },
            lower_bounds: counts.2,
            largest_bound,
        }
    }
}

prop_compose! {
    fn any_record()(
        bucket: u64,
        buckets in prop::collection::vec(any_bucket(), 0..31),
        contributions in prop::collection::vec(any_contribution(), 0..40),
        rtts in prop::collection::vec(any::<(u64, IpAddr, u64, u64)>(), 0..40),
        moments: (Option<u64>, Option<u64>, Option<u64>),
    ) -> NetworkRecord {
        NetworkRecord {
            bucket: Micros(bucket),
            buckets,
            contributions,
            rtts: rtts
                .into_iter()
                .map(|(bucket, remote, count, sum)| RemoteRtt { bucket, remote, count, sum: Micros(sum) })
                .collect(),
            newest_sample: moments.0.map(Timestamp),
            newest: moments.1.map(Timestamp),
            raised: moments.2.map(Timestamp),
        }
    }
}

prop_compose! {
    fn any_network()(address: IpAddr, len in 0u8..=128) -> Network {
        let most = if address.is_ipv4() { 32 } else { 128 };
        Network::new(IpNet::new(address, len.min(most)).unwrap())
    }
}

#[test]
fn entries_with_other_bytes_have_another_format() {
    let (window, remote) = (Window::from_bytes(1.5), IpAddr::from([192, 0, 2, 1]));
    let rtt = RttSum { count: 1, min: Some(Micros(2)), sum: Micros(3) };
    let full = FullSum { samples: 4, bytes: 5.5, by_rate: true };
    let contribution = Contribution {
        bucket: 300,
        source: Some(Source { remote, connection: ConnectionId(6) }),
        samples: 7,
        loss_samples: 8,
        sum_bytes: 9.5,
        loss_bytes: 10.5,
        full,
        squares: 11.5,
        carried: window,
        mss: Bytes(12),
        queued: QueueSum { losses: 13, bytes: 14.5, squares: 15.5 },
        lower_bounds: 16,
        largest_bound: window,
    };
    let record = NetworkRecord {
        bucket: Micros(17),
        buckets: vec![Bucket { index: 300, rtt, losses: 18, window_limited: 19, ..Bucket::default() }],
        contributions: vec![contribution],
        rtts: vec![RemoteRtt { bucket: 300, remote, count: 20, sum: Micros(21) }],
        newest_sample: Some(Timestamp(22)),
        newest: None,
        raised: Some(Timestamp(23)),
    };
    let entries = (Key::Network(network(0)), record, Key::Totals(Step::Hour, Timestamp(24)), totals::point(25));
    let bytes = encoded(&entries).unwrap();
    assert_eq!((FORMAT, bytes.len(), crc32fast::hash(&bytes)), (7, 192, 3_805_558_802));
}

proptest! {
    #[test]
    fn any_entry_comes_back(record in any_record(), of in any_network()) {
        let (key, again): (Key, NetworkRecord) = decoded(&encoded(&(Key::Network(of), &record)).unwrap()).unwrap();
        prop_assert!(matches!(key, Key::Network(network) if network == of));
        prop_assert_eq!(again, record);
    }

    #[test]
    fn nonsense_is_refused_and_allocates_nothing(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(decoded::<Key>(&bytes));
        if let Ok(record) = decoded::<NetworkRecord>(&bytes) {
            prop_assert!(record.buckets.len() + record.contributions.len() + record.rtts.len() <= bytes.len());
        }
    }
}
