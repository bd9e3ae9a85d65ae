//! Files whose records are out of order, late, doubled or without a time, beside the same recording as it should be.

use std::io;
use std::path::Path;

use spand_core::config::{EngineConfig, Limits};
use spand_core::counters::Ignored;
use spand_core::flow::report::FlowReports;
use spand_gateway::replay::{Moments, Options, Report, Sink, State, Summary, replay};
use spand_tests::corpus;

struct Nobody;

impl Sink for Nobody {
    fn state(&mut self, _: &State) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: spand_capture::Progress) {}
}

fn replayed(file: &Path) -> Report {
    let engine =
        EngineConfig { limits: Limits::for_replay(), flow_reports: FlowReports::Full, ..EngineConfig::default() };
    let options = Options { files: vec![file.to_owned()], engine, moments: Moments::End };
    replay(options, &mut Nobody).expect("nothing is written")
}

#[test]
fn records_without_a_time_give_no_round_trip_and_no_sample() {
    let Some(wild) = corpus::set("wild") else { return };
    let report = replayed(&wild.join("ng-spb.pcapng.zst"));
    let counters = &report.counters;
    assert_eq!(
        (counters.segments, counters.rtt_samples, counters.window_samples, counters.lower_bounds),
        (7_255, 0, 0, 0)
    );
    assert!(counters.ignored(Ignored::Untimed) > 0);
    assert_eq!(report.end.networks.len(), 2);
    for view in &report.end.networks {
        assert_eq!((&view.estimate, view.rtt_min, view.rtt_mean, view.samples), (&None, None, None, 0));
        let why = view.no_estimate().expect("there is none");
        assert_eq!(why.reason.name(), "untimed");
        assert!(why.to_string().ends_with("no sample; the capture has to hold the time of every packet"), "{why}");
    }
    assert_eq!(Summary::new(&report).no_estimate_by_reason.into_iter().collect::<Vec<_>>(), [("untimed", 2)]);
    for flow in &report.flows {
        let details = flow.details.as_ref().expect("full reports");
        assert_eq!((details.rtt_seqack.count, details.rtt_timestamps.count), (0, 0));
    }
    // What needs no time is counted.
    let sent = report.flows.iter().map(|flow| flow.data_packets).max();
    assert!(sent > Some(1_000), "{sent:?}");
}
