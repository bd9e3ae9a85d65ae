//! What fuzzing may reach of the codec: compiled only with `--cfg fuzzing`, which cargo-fuzz sets.

use spand_core::window::record::NetworkRecord;
use spand_proto::network::Network;

use super::{Experiment, ReportingHost, codec, experiment};
use crate::publisher::Client;

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
    codec::opened(key, value).ok()
}

/// The same for a value that lacks its checksum, which no fuzzer would guess.
pub fn unsealed(key: &[u8], value: &[u8]) -> Option<NetworkRecord> {
    record(key, &[value, &codec::checksum(key, value)].concat())
}

/// The value of a record.
pub fn value(key: &[u8], record: &NetworkRecord) -> Vec<u8> {
    codec::sealed(key, record).expect("a record has a form")
}

/// The host of a key of the experiment, where it is one.
pub fn experiment_host(key: &[u8]) -> Option<Client> {
    experiment::client(key)
}

/// The key of a host of the experiment, where it may report.
pub fn experiment_key(host: &Client) -> Option<Vec<u8>> {
    experiment::key(host)
}

/// The experiment of its entry, and of the same for one that lacks its checksum.
pub fn experiments(entry: &[u8]) -> [Option<Experiment>; 2] {
    let sealed = [entry, &codec::checksum(&[0], entry)].concat();
    [entry, &sealed].map(|entry| experiment::comparison_of(entry).ok())
}

/// The entry of an experiment.
pub fn experiment_entry(experiment: &Experiment) -> Option<Vec<u8>> {
    experiment::entry_of(experiment).ok()
}

/// The host of its entry, and of the same for one that lacks its checksum.
pub fn reporting_hosts(key: &[u8], entry: &[u8]) -> [Option<ReportingHost>; 2] {
    let sealed = [entry, &codec::checksum(key, entry)].concat();
    [entry, &sealed].map(|entry| codec::opened(key, entry).ok())
}
