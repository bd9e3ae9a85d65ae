//! Files whose records are out of order, late, doubled or without a time, beside the same recording as it should be.

use std::fs;
use std::path::Path;

use spand_capture::{LinkType, MAX_PACKET_BYTES, Next, PacketSource, PcapWriter, open_file};
use spand_core::config::{EngineConfig, FlowReports, Limits};
use spand_core::counters::Ignored;
use spand_core::flow::report::DirectionReport;
use spand_core::types::SampleReason;
use spand_gateway::replay::{Moments, Options, Report, Summary, replay};
use spand_needs::needs_corpus;
use spand_proto::no_estimate::Reason;
use spand_proto::units::Timestamp;
use spand_tests::silent::Silent;

fn replayed(file: &Path) -> Report {
    let engine =
        EngineConfig { limits: Limits::for_replay(), flow_reports: FlowReports::Full, ..EngineConfig::default() };
    let options = Options { files: vec![file.to_owned()], engine, moments: Moments::End };
    replay(options, &mut Silent).expect("nothing is written")
}

/// The packets of `file`, each given another time and place by `arrange`, written to `path`.
fn rearranged(file: &Path, path: &Path, arrange: impl Fn(&mut Vec<Record>)) {
    let mut source = open_file(file).expect("a capture");
    let (mut records, mut link_type) = (Vec::new(), LinkType::RAW);
    while let Next::Packet(packet) = source.next_packet().expect("sound") {
        link_type = packet.link_type;
        records.push((packet.timestamp, packet.wire_len, packet.data.to_vec()));
    }
    arrange(&mut records);
    let mut writer = PcapWriter::new(Vec::new(), link_type, MAX_PACKET_BYTES).expect("memory takes all");
    for (at, wire_len, data) in &records {
        writer.write(*at, *wire_len, data).expect("memory takes all");
    }
    fs::write(path, writer.finish().expect("memory takes all")).expect("room on the disk");
}

type Record = (Timestamp, u32, Vec<u8>);

#[test]
fn records_out_of_order_give_what_the_sorted_file_gives() {
    let Some(wild) = needs_corpus("wild") else { return };
    let files = tempfile::tempdir().expect("a directory");
    let (unsorted, sorted) = (wild.join("unsorted-batches.pcap.zst"), files.path().join("sorted.pcap"));
    rearranged(&unsorted, &sorted, |records| records.sort_by_key(|(at, ..)| *at));
    let [report, expected] = [&unsorted, &sorted].map(|file| replayed(file));
    assert_eq!((report.files[0].stats.backwards, report.counters.ignored(Ignored::TimeBackwards)), (2_462, 0));
    assert_eq!((report.counters.timeouts, report.counters.window_samples), (0, 20));
    let rows = |report: &Report| report.end.networks.iter().map(|view| format!("{view:?}")).collect::<Vec<_>>();
    assert_eq!(rows(&report), rows(&expected));
    let estimate = report.end.networks.iter().find_map(|view| view.estimate.as_ref()).expect("one has an estimate");
    assert_eq!(estimate.share_segments(estimate.mss).0, 22);
    let sender = &Summary::new(&report).largest_senders[0];
    assert_eq!((sender.congestion_control, sender.connections), ("loss-based", 4));
}

#[test]
fn records_later_than_is_put_in_order_give_no_sample() {
    let Some(wild) = needs_corpus("wild") else { return };
    let files = tempfile::tempdir().expect("a directory");
    let late = files.path().join("late.pcap");
    // From 0.3 s on acknowledgements are written two seconds late.
    rearranged(&wild.join("unsorted-batches.pcap.zst"), &late, |records| {
        let from = records.iter().map(|(at, ..)| at.0).min().unwrap_or(0) + 300_000_000;
        let delay = |at: Timestamp, wire_len| if wire_len < 200 && at.0 > from { 2_000_000_000 } else { 0 };
        records.sort_by_key(|(at, wire_len, _)| at.0 + delay(*at, *wire_len));
    });
    let report = replayed(&late);
    let counters = &report.counters;
    assert!(counters.ignored(Ignored::TimeBackwards) > 1_000, "{}", counters.ignored(Ignored::TimeBackwards));
    assert!(counters.timeouts > 0, "what is seen of it still has timeouts that were none");
    let why = report
        .end
        .networks
        .iter()
        .find_map(|view| view.no_estimate().filter(|why| why.outcomes.of(Reason::Unordered) > 0));
    let why = why.expect("no estimate");
    // Samples of the time before hold.
    assert_eq!((why.reason.name(), why.samples), ("unordered", (2, 3)));
    assert!(why.to_string().ends_with("in order of time"), "{why}");
}

#[test]
fn a_late_copy_of_each_packet_is_no_loss_and_no_retransmission() {
    let Some(wild) = needs_corpus("wild") else { return };
    let report = replayed(&wild.join("cubic-receiver-dup2ms.pcap.zst"));
    assert_eq!((report.counters.loss_events, report.counters.window_samples), (0, 0));
    let of = |flow: &DirectionReport| (flow.retransmitted_packets - flow.duplicate_data_packets, flow.first_sample);
    let flows: Vec<_> = report.flows.iter().map(of).collect();
    assert_eq!(flows, [(0, Some(SampleReason::EndAppLimited)), (0, Some(SampleReason::EndReceiverLimited))]);
    let details = report.flows[1].details.as_ref().expect("full reports");
    assert_eq!(details.samples.iter().map(|sample| sample.window.bytes()).collect::<Vec<_>>(), [57_920.0]);
}

#[test]
fn copies_without_an_identification_cost_no_handshake_its_round_trip() {
    let Some(wild) = needs_corpus("wild") else { return };
    let report = replayed(&wild.join("dup-ipid0-10us.pcap.zst"));
    assert_eq!((report.counters.timeouts, report.counters.window_samples), (0, 20));
    let view = report.end.networks.iter().find(|view| view.estimate.is_some()).expect("one has an estimate");
    assert_eq!(view.rtt_min.map(|rtt| rtt.0 / 100), Some(402), "{:?}", view.rtt_min);
    for flow in &report.flows {
        let details = flow.details.as_ref().expect("full reports");
        assert!(details.rtt_seqack.count > 0, "the handshake's at least");
    }
}

#[test]
fn records_without_a_time_give_no_round_trip_and_no_sample() {
    let Some(wild) = needs_corpus("wild") else { return };
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
    assert_eq!(Summary::new(&report).no_estimate_by_reason.into_iter().collect::<Vec<_>>(), [(Reason::Untimed, 2)]);
    for flow in &report.flows {
        let details = flow.details.as_ref().expect("full reports");
        assert_eq!((details.rtt_seqack.count, details.rtt_timestamps.count), (0, 0));
    }
    // What needs no time is counted.
    let sent = report.flows.iter().map(|flow| flow.data_packets).max();
    assert!(sent > Some(1_000), "{sent:?}");
}
