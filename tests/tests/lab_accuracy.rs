//! One cell of the accuracy design from end to end: does the join of the kernel's account and the gateway's hold on a path
//! where both are known to agree?
//!
//! Needs root. Without it the test says so, and counts itself as skipped on standard error.

use anyhow::Result;
use spand_needs::{Need, needs};
use spand_tests::accuracy::cell;
use spand_tests::accuracy::compare::compare;
use spand_tests::accuracy::factors::{Cell, Levels};
use spand_tests::accuracy::result::quantiles;

#[test]
fn a_clean_cell_joins_and_agrees() -> Result<()> {
    if !needs(Need::Root) {
        return Ok(());
    }
    // Reno, 10 Mbit/s, 20 ms, ten packets, bulk, alone; everything else at its first level.
    let levels: Levels = std::array::from_fn(|factor| u8::from(factor == 1));
    let cell = Cell::new(0, 7, &levels);
    assert_eq!(cell.title(), "reno 10mbit 20ms 10pkt bulk 1");
    let folder = tempfile::tempdir()?;
    let capture = folder.path().join("capture.pcap");
    let recording = cell::run(&cell, &capture)?;
    let result = compare(&cell, &recording, &capture)?;
    assert_eq!(result.health.emulator_drops + result.health.tap_dropped + result.health.truth_lost, 0);
    assert_eq!(result.flows, 1);
    let recovery = result.events["recovery"];
    assert!(recovery.truth >= 5 && recovery.joined == recovery.truth, "{:?}", result.events);
    let loss = result.samples["loss"];
    assert!(loss.joined >= 5 && loss.joined == loss.truth, "{:?}", result.samples);
    assert_eq!((result.retransmissions.truth, result.retransmissions.joined), (1, 1));
    for (kind, least) in [("sample_loss", 5), ("sample_loss_tap_loss", 3)] {
        let errors = &result.errors[kind];
        let (median, _) = quantiles(errors.values.iter().copied()).expect("there are some");
        assert!(errors.count >= least && median < 0.05, "{kind}: {} with a median error of {median}", errors.count);
    }
    assert!(result.limits["window"]["window"] >= 60, "{:?}", result.limits);
    assert_eq!(result.flavours.keys().collect::<Vec<_>>(), ["loss-based"]);
    Ok(())
}
