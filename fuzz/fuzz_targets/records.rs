//! Entries of the store from any bytes: read and written again they are the same, and an engine that takes one says
//! nothing that makes no sense.

#![no_main]

use std::num::NonZeroUsize;

use libfuzzer_sys::fuzz_target;
use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_gateway::store::fuzzing::{record, value};
use spand_proto::estimate::RuleKind;
use spand_proto::units::{Micros, Timestamp};
use strum::VariantArray;

fuzz_target!(|data: &[u8]| {
    let Some(record) = record(data) else { return };
    assert!(record.buckets.len() + record.contributions.len() + record.rtts.len() <= data.len());
    let written = value(&record);
    let again = self::record(&written).expect("what we write");
    // Bytes and not records: some fractions are not equal to themselves.
    assert_eq!(value(&again), written);
    let at = record.newest_sample.or(record.newest).unwrap_or(Timestamp(1_700_000_000_000_000_000));
    let network = "192.0.2.0/24".parse().expect("a network");
    for &rule in RuleKind::VARIANTS {
        let config = WindowConfig { bucket: record.bucket.max(Micros(1)), ..WindowConfig::default() };
        let mut table = NetworkTable::new(config, NonZeroUsize::MIN, rule, 0);
        table.restore(network, record.clone(), at);
        if let Some(estimate) = table.estimate(network, at) {
            assert!(estimate.share.bytes() > 0.0 && estimate.mss.0 > 0, "{estimate:?}");
        }
        table.views(at);
        table.expire(at.after(Micros::from_secs(400)), usize::MAX);
        while table.poll_event().is_some() {}
    }
});
