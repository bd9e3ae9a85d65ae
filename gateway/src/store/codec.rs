//! Bytes of the store.
//!
//! ```text
//! key    family (1 byte: 4 or 6), address (4 or 16 bytes, network order), prefix length (1 byte)
//! value  format (1 byte: 6), payload (postcard), CRC-32 of key, format and payload (4 bytes, little endian)
//! ```
//!
//! Keys sort as networks do; the other trees have keys of their own. The checksum takes the key in, so that a value that ended up under
//! another network's key is found out. A format this gateway does not know is left out on reading, like a damaged entry: the network starts
//! cold. A record comes back as it was; whether it makes sense is for the engine that takes it to judge.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spand_proto::network::Network;

/// Format of every value. Whatever changes the bytes of a type in the store raises it and the version of the directory.
pub(super) const FORMAT: u8 = 6;
pub(super) const CHECKSUM_LEN: usize = 4;

/// Why an entry was left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum RecordError {
    /// Too short to hold anything.
    #[error("the entry is cut short")]
    Short,
    /// Key, format and payload do not match the checksum.
    #[error("the entry's checksum is wrong")]
    Checksum,
    /// A format of another gateway, or none at all.
    #[error("the entry has format {0}, which this gateway does not know")]
    Format(u8),
    /// The checksum is right and the payload still makes no record.
    #[error("the entry holds nonsense")]
    Nonsense,
}

/// The key of a network.
pub(super) fn key(network: Network) -> Vec<u8> {
    let prefix = network.prefix();
    let mut key = Vec::with_capacity(18);
    match prefix.addr() {
        IpAddr::V4(address) => {
            key.push(4);
            key.extend_from_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            key.push(6);
            key.extend_from_slice(&address.octets());
        }
    }
    key.push(prefix.prefix_len());
    key
}

/// The network of a key; `None` where the bytes are no key in canonical form.
pub(super) fn network(key: &[u8]) -> Option<Network> {
    let (family, rest) = key.split_first()?;
    let (len, address) = rest.split_last()?;
    let address: IpAddr = match family {
        4 => <[u8; 4]>::try_from(address).ok()?.into(),
        6 => <[u8; 16]>::try_from(address).ok()?.into(),
        _ => return None,
    };
    let prefix = IpNet::new(address, *len).ok()?;
    let network = Network::new(prefix);
    (network.prefix() == prefix).then_some(network)
}

/// A value under `key`, with its format and checksum.
pub(super) fn sealed(key: &[u8], value: &impl Serialize) -> sled::Result<Vec<u8>> {
    // No value of ours is of a kind that it refuses.
    let refused = |error: postcard::Error| sled::Error::Unsupported(error.to_string());
    let mut entry = postcard::to_extend(value, vec![FORMAT]).map_err(refused)?;
    entry.extend_from_slice(&checksum(key, &entry));
    Ok(entry)
}

/// The payload of a value under `key`.
pub(super) fn unsealed<'a>(key: &[u8], value: &'a [u8]) -> Result<&'a [u8], RecordError> {
    let (checked, found) = value.split_last_chunk::<CHECKSUM_LEN>().ok_or(RecordError::Short)?;
    if checksum(key, checked) != *found {
        return Err(RecordError::Checksum);
    }
    match checked.split_first().ok_or(RecordError::Short)? {
        (&FORMAT, payload) => Ok(payload),
        (other, _) => Err(RecordError::Format(*other)),
    }
}

/// What a value under `key` holds.
pub(super) fn opened<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, RecordError> {
    unsealed(key, value).and_then(decoded)
}

/// What a payload holds, where it holds nothing else.
pub(super) fn decoded<T: DeserializeOwned>(payload: &[u8]) -> Result<T, RecordError> {
    match postcard::take_from_bytes(payload) {
        Ok((value, [])) => Ok(value),
        _ => Err(RecordError::Nonsense),
    }
}

/// CRC-32 of a key and what is kept under it.
pub(super) fn checksum(key: &[u8], checked: &[u8]) -> [u8; CHECKSUM_LEN] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(checked);
    hasher.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spand_core::types::ConnectionId;
    use spand_core::types::RttSum;
    use spand_core::window::bucket::{Bucket, Contribution, FullSum, QueueSum, RemoteRtt, Source};
    use spand_core::window::record::NetworkRecord;
    use spand_proto::units::{Bytes, Micros, Timestamp, Window};

    use super::*;

    fn window() -> impl Strategy<Value = Window> {
        (0.0..1e12).prop_map(|bytes: f64| Window::from_bytes(bytes).unwrap())
    }

    prop_compose! {
        fn bucket()(
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
        fn contribution()(
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
        fn record()(
            bucket: u64,
            buckets in prop::collection::vec(bucket(), 0..31),
            contributions in prop::collection::vec(contribution(), 0..40),
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
    fn a_record_with_other_bytes_has_another_format() {
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
        let value = sealed(&[], &record).unwrap();
        assert_eq!((FORMAT, value.len(), checksum(&[], &value)), (6, 115, [28, 223, 68, 33]));
    }

    proptest! {
        #[test]
        fn any_record_comes_back(record in record(), of in any_network()) {
            let key = key(of);
            prop_assert_eq!(network(&key), Some(of));
            prop_assert_eq!(opened(&key, &sealed(&key, &record).unwrap()), Ok(record));
        }

        #[test]
        fn keys_sort_as_networks_do(mut networks in prop::collection::vec(any_network(), 0..20)) {
            let mut keys: Vec<_> = networks.iter().map(|network| key(*network)).collect();
            networks.sort();
            keys.sort();
            prop_assert_eq!(keys.iter().map(|key| network(key).unwrap()).collect::<Vec<_>>(), networks);
        }

        #[test]
        fn damage_is_found_out(record in record(), at: prop::sample::Index, mask in 1u8.., cut: prop::sample::Index) {
            let (key, other) = (key("192.0.2.0/24".parse().unwrap()), key("192.0.3.0/24".parse().unwrap()));
            let sound = sealed(&key, &record).unwrap();
            let mut flipped = sound.clone();
            *at.get_mut(&mut flipped) ^= mask;
            prop_assert_eq!(opened::<NetworkRecord>(&key, &flipped), Err(RecordError::Checksum));
            prop_assert_eq!(opened::<NetworkRecord>(&other, &sound), Err(RecordError::Checksum));
            prop_assert!(opened::<NetworkRecord>(&key, &sound[..cut.index(sound.len())]).is_err());
        }

        /// With a checksum that is right, as a fault of ours would write it.
        #[test]
        fn nonsense_is_refused_and_allocates_nothing(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let key = key("192.0.2.0/24".parse().unwrap());
            let mut entry = vec![FORMAT];
            entry.extend_from_slice(&payload);
            let opened = |entry: &[u8]| opened::<NetworkRecord>(&key, &[entry, &checksum(&key, entry)].concat());
            if let Ok(record) = opened(&entry) {
                prop_assert!(record.buckets.len() + record.contributions.len() + record.rtts.len() <= payload.len());
            }
            entry[0] = FORMAT + 1;
            prop_assert_eq!(opened(&entry), Err(RecordError::Format(FORMAT + 1)));
        }

        #[test]
        fn what_is_no_key_is_no_network(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Some(network) = network(&bytes) {
                prop_assert_eq!(key(network), bytes);
            }
        }
    }
}
