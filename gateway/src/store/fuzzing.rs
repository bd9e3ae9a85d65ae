//! Entries of the store for fuzzing: compiled only with `--cfg fuzzing`, which cargo-fuzz sets.

use spand_core::window::record::NetworkRecord;

use super::sled_store::{decoded, encoded};

/// The record of a value, where it is one.
pub fn record(value: &[u8]) -> Option<NetworkRecord> {
    decoded(value).ok()
}

/// The value of a record.
pub fn value(record: &NetworkRecord) -> Vec<u8> {
    encoded(record).expect("a record has a form")
}
