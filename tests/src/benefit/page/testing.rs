//! Results for the tests of the page.

use std::collections::BTreeMap;

use crate::accuracy::result::Health;
use crate::benefit::result::{Learning, Measured, Run, RunResult};
use crate::lab::path::Carrier;
use crate::product::{ApplyMethod, Mode, StartVariant};

/// A run with one transfer of 100 KB for each of these: path, arm, time, retransmitted segments.
pub(super) fn result(scenario: &str, seed: u64, transfers: &[(&str, &str, f64, u32)]) -> RunResult {
    let measured = |(case, arm, completion_ms, again): &(&str, &str, f64, u32)| Measured {
        case: (*case).to_owned(),
        arm: (*arm).to_owned(),
        bytes: 100_000,
        client: 0,
        round: 0,
        completion_ms: *completion_ms,
        bound_ms: 1.0,
        packets: 100,
        again: *again,
        first_flight: 10,
        first_flight_ms: 0.0,
    };
    let (way, mode, learning) = (ApplyMethod::Bpf, Mode::Careful, Learning::Plain);
    RunResult {
        run: Run {
            scenario: scenario.to_owned(),
            way,
            mode,
            stated: true,
            learning,
            start: StartVariant::Plain,
            paths: Carrier::default(),
            seed,
        },
        kernel: String::new(),
        health: Health::default(),
        learnt: Vec::new(),
        transfers: transfers.iter().map(measured).collect(),
        met: BTreeMap::new(),
        flights: None,
        fault: None,
        seconds: 1.0,
    }
}
