//! Messages of other gateways from any bytes: read and written again they are the same, and a table that takes their cells says
//! nothing that makes no sense.

#![no_main]

use std::num::NonZeroUsize;

use libfuzzer_sys::fuzz_target;
use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_cells::{Cell, GatewayId, Pseudonyms, Shares, Sharing, TapId};
use spand_core::types::{ConnectionId, LimitCounts, RttSum, SampleReason, WindowSample};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};
use spand_share::exchange::MESSAGE_BYTES;
use spand_share::format::{
    Batch, BatchWriter, FormatError, read_again, read_batch, read_member, read_notices, write_again, write_member,
    write_notices,
};
use strum::VariantArray;

/// The gateway that takes the cells.
const OWN: GatewayId = GatewayId(0);
const NETWORKS: NonZeroUsize = NonZeroUsize::new(8).unwrap();

fuzz_target!(|data: &[u8]| {
    let mut batches = Vec::new();
    // Messages with their length before them: cells of several gateways meet.
    let mut rest = data;
    while let Some((len, after)) = rest.split_first_chunk().map(|(len, after)| (u16::from_le_bytes(*len), after)) {
        let (message, after) = after.split_at(usize::from(len).min(after.len()));
        member(message);
        notices(message);
        again(message);
        batches.extend(batch(message));
        rest = after;
    }
    if !batches.is_empty() {
        evaluate(&batches);
    }
});

fn member(message: &[u8]) {
    match read_member(message) {
        Ok(member) => {
            assert!(member.name.len() <= 253 && member.version.len() <= 64);
            assert_eq!(read_member(&write_member(&member)), Ok(member));
        }
        Err(error) => say(&error),
    }
}

fn notices(message: &[u8]) {
    match read_notices(message) {
        Ok(notices) => {
            assert!(notices.notices.len() <= message.len());
            assert_eq!(read_notices(&write_notices(&notices)), Ok(notices));
        }
        Err(error) => say(&error),
    }
}

fn again(message: &[u8]) {
    match read_again(message) {
        Ok(buckets) => assert_eq!(read_again(&write_again(&buckets)), Ok(buckets)),
        Err(error) => say(&error),
    }
}

fn say(error: &FormatError) {
    let sentence = error.to_string();
    assert!(sentence.len() < 200 && !sentence.chars().any(char::is_control), "{sentence}");
}

/// A batch that is read and written again has the same bytes: some fractions are not equal to themselves.
fn batch(message: &[u8]) -> Option<Batch> {
    let batch = read_batch(message).inspect_err(say).ok()?;
    let contributions: usize = batch.cells.iter().map(|(_, cell)| cell.contributions.len() + cell.rtts.len()).sum();
    assert!(batch.cells.len() + contributions <= message.len());
    let bytes = written(&batch)?;
    assert!(bytes.len() <= MESSAGE_BYTES);
    let again = read_batch(&bytes).expect("what we write");
    assert_eq!(written(&again), Some(bytes));
    Some(batch)
}

/// `None` where a message that is full by another's writing has no room for all.
fn written(batch: &Batch) -> Option<Vec<u8>> {
    let mut writer = BatchWriter::new(batch.gateway, batch.tap, batch.bucket);
    batch.cells.iter().all(|(network, cell)| writer.add(*network, cell)).then(|| writer.finish())
}

/// A table takes the cells at the time of the first, among samples of its own, and again in the other order.
fn evaluate(batches: &[Batch]) {
    let cells = || batches.iter().flat_map(|batch| &batch.cells);
    let Some((network, first)) = cells().next() else { return };
    let bucket = batches.iter().map(|batch| batch.bucket).find(|bucket| *bucket > Micros(0)).unwrap_or(Micros(1));
    let now = first.as_of;
    for &rule in RuleKind::VARIANTS {
        let config = WindowConfig { bucket, ..WindowConfig::default() };
        let sharing = Sharing { gateway: OWN, tap: TapId(0), pseudonyms: Pseudonyms::new([3; 16]) };
        let mut table = NetworkTable::new(config, NETWORKS, rule, 0).sharing(Some(sharing));
        for connection in 0..4 {
            add_own(&mut table, *network, connection, now);
        }
        take(&mut table, cells(), now);
        check(&mut table, now);
        take(&mut table, batches.iter().rev().flat_map(|batch| batch.cells.iter().rev()), now);
        check(&mut table, now);
        for (network, _) in cells() {
            assert!(table.own_cells(*network, 0, now).iter().all(|cell| cell.gateway == OWN));
        }
        table.expire(now.after(Micros(bucket.0.saturating_mul(40))), usize::MAX);
        while table.poll_event().is_some() {}
    }
}

fn take<'a>(table: &mut NetworkTable, cells: impl Iterator<Item = &'a (Network, Cell)>, now: Timestamp) {
    for (network, cell) in cells {
        // Why one is refused is the engine's to say.
        let _ = table.take_cell(*network, cell.clone(), now);
        assert!(table.len() <= NETWORKS.get());
    }
}

/// What is known of each network makes sense.
fn check(table: &mut NetworkTable, now: Timestamp) {
    table.expire(now, usize::MAX);
    while table.poll_event().is_some() {}
    for view in table.views(now) {
        if let Some(estimate) = table.estimate(view.network, now) {
            assert!(estimate.share.bytes() > 0.0 && estimate.mss.0 > 0, "{estimate:?}");
        }
    }
}

fn add_own(table: &mut NetworkTable, network: Network, connection: u64, at: Timestamp) {
    let remote = network.prefix().addr();
    table.add_rounds(network, at, remote, RttSum::of(Micros(40_000)), LimitCounts::default());
    table.add(&WindowSample {
        at,
        network,
        remote,
        connection: ConnectionId(connection),
        window: Window::from_bytes(28_960.0).expect("a window"),
        mss: Bytes(1_448),
        reason: if connection.is_multiple_of(2) { SampleReason::Loss } else { SampleReason::End },
        reduced_before: true,
        transfer: Bytes(1_000_000),
        advised: false,
        rtt_min: Some(Micros(38_000)),
        rtt: Some(Micros(76_000)),
    });
}
