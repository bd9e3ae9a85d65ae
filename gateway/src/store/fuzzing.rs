//! What fuzzing may reach of the codec: compiled only with `--cfg fuzzing`, which cargo-fuzz sets.

use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;

use super::codec;

/// The network of a key, where it is one.
pub fn network(key: &[u8]) -> Option<Network> {
    codec::network(key)
}

/// The key of a network.
pub fn key(network: Network) -> Vec<u8> {
    codec::key(network)
}

/// The record of a value, where it is one.
pub fn record(key: &[u8], value: &[u8]) -> Option<NetworkRecord> {
    codec::record_of(key, value).ok()
}

/// The same for a value that lacks its checksum, which no fuzzer would guess.
pub fn unsealed(key: &[u8], value: &[u8]) -> Option<NetworkRecord> {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(value);
    record(key, &[value, &hasher.finalize().to_le_bytes()].concat())
}

/// The value of a record.
pub fn value(key: &[u8], record: &NetworkRecord) -> Vec<u8> {
    codec::value(key, record)
}
