//! The output, character by character.

use std::collections::BTreeMap;
use std::net::IpAddr;

use spand_core::estimate::{Compared, NoEstimate};
use spand_core::flow::evidence::control::CongestionControl;
use spand_core::flow::report::{DirectionDetails, DirectionReport, RttSummary, TransferSummary};
use spand_core::networks::traffic::NetworkTraffic;
use spand_core::types::{ConnectionId, LimitCounts, Limiter, SampleRate, SampleReason, WindowSample};
use spand_core::wire::segment::Endpoint;
use spand_proto::estimate::{Confidence, Estimate, RuleKind};
use spand_proto::network::Network;
use spand_proto::no_estimate::Outcomes;
use spand_proto::opening::Opening;
use spand_proto::units::{Bytes, Micros, Window};

use super::NOW;
use crate::names::tests::names;
use crate::replay::*;

const FLOW_COLUMNS: &str = "file,src,sport,dst,dport,pkts,data_pkts,payload_bytes,unique_bytes,retx_pkts,retx_bytes,\
synfin_retx_pkts,holefill_pkts,rtt_seqack_n,rtt_seqack_min_ms,rtt_seqack_mean_ms,rtt_seqack_max_ms,rtt_ts_n,\
rtt_ts_min_ms,rtt_ts_mean_ms,flight_max_bytes,limited_by,window_samples";
const NETWORK_COLUMNS: &str = "prefix,wc_segments,wc_bytes,mss,rtt_min_ms,rtt_mean_ms,samples,connections,losses,\
age_s,confidence,rule";

pub(super) fn network(text: &str) -> Network {
    text.parse().unwrap()
}

pub(super) fn known() -> NetworkView {
    let network = network("192.0.2.0/24");
    let estimate = Estimate {
        network,
        share: Window::from_bytes(14_480.4).unwrap(),
        mss: Bytes(1_448),
        rtt_min: Some(Micros(20_000)),
        rtt_mean: Some(Micros(25_500)),
        samples: 4,
        connections: 2,
        loss_connections: 1,
        loss_window: None,
        is_lower_bound: false,
        opening: None,
        buffer: None,
        bdp: None,
        losses: 7,
        refreshed: Timestamp(NOW.0 - 2_500_000_000),
        confidence: Confidence::new(0.25),
        rule: RuleKind::Probe,
        mark: None,
    };
    NetworkView {
        network,
        rtt_min: estimate.rtt_min,
        rtt_mean: estimate.rtt_mean,
        samples: 4,
        lower_bounds: 1,
        connections: 3,
        losses: 7,
        limits: LimitCounts { window: 9, receiver: 0, application: 2 },
        parallel: 0,
        parallel_at_samples: 0,
        parallel_here: 0,
        reported: None,
        followed: SampleRate::ALL,
        outcomes: Outcomes::default(),
        traffic: NetworkTraffic::default(),
        needed: (3, 2),
        compared: Vec::new(),
        addresses: Vec::new(),
        newest: Some(estimate.refreshed),
        estimate: Some(estimate),
        why_not: None,
    }
}

pub(super) fn unknown() -> NetworkView {
    NetworkView {
        network: network("2001:db8::/48"),
        estimate: None,
        why_not: Some(NoEstimate::TooFewSamples),
        rtt_min: None,
        rtt_mean: None,
        samples: 0,
        lower_bounds: 0,
        connections: 0,
        losses: 0,
        limits: LimitCounts::default(),
        parallel: 0,
        parallel_at_samples: 0,
        parallel_here: 0,
        reported: None,
        followed: SampleRate::ALL,
        outcomes: Outcomes::default(),
        traffic: NetworkTraffic::default(),
        needed: (3, 2),
        compared: Vec::new(),
        addresses: Vec::new(),
        newest: None,
    }
}

fn endpoint(address: &str, port: u16) -> Endpoint {
    Endpoint { address: address.parse().unwrap(), port }
}

fn direction() -> DirectionReport {
    let remote: IpAddr = "192.0.2.9".parse().unwrap();
    let sample = |at, bytes, reason| WindowSample {
        at: Timestamp(at),
        network: Network::of(remote),
        remote,
        connection: ConnectionId(1),
        window: Window::from_bytes(bytes).unwrap(),
        mss: Bytes(1_000),
        reason,
        reduced_before: false,
        transfer: Bytes(0),
        advised: false,
        rtt_min: None,
        rtt: None,
    };
    let mut seqack = RttSummary::default();
    seqack.add(Micros(20_000));
    seqack.add(Micros(20_001));
    let details = DirectionDetails {
        connection: ConnectionId(1),
        input: 0,
        first_frame: 0,
        first_at: Timestamp(1_500_000_000_000_000_001),
        last_at: NOW,
        packets: 12,
        payload: Bytes(11_000),
        retransmitted: Bytes(1_000),
        synfin_retransmitted_packets: 0,
        hole_fill_packets: 2,
        probe_packets: 0,
        duplicate_packets: 0,
        rtt_seqack: seqack,
        rtt_timestamps: RttSummary::default(),
        highest_ack: None,
        flight_max: Bytes(4_000),
        limited_by: Limiter::Window,
        samples: vec![
            sample(1_500_000_001_000_000_000, 3_500.6, SampleReason::Loss),
            sample(1_500_000_002_000_000_005, 4_000.0, SampleReason::EndAppLimited),
        ],
    };
    DirectionReport {
        source: endpoint("10.0.0.1", 80),
        destination: endpoint("192.0.2.9", 5_000),
        data_packets: 10,
        duplicate_data_packets: 0,
        retransmitted_packets: 1,
        unique: Bytes(10_000),
        loss_events: 1,
        timeouts: 0,
        transfers: TransferSummary::of(Bytes(10_000), Micros(1_600_000)),
        first_sample: Some(SampleReason::Loss),
        congestion_control: CongestionControl::LossBased,
        bad_times: None,
        midstream: false,
        acknowledged: true,
        details: Some(Box::new(details)),
    }
}

/// What [`direction`] sent to the network that is known, and more of the same to the one that is not.
fn traffic() -> BTreeMap<Network, Traffic> {
    let (mut known, mut unknown) = (Traffic::default(), Traffic::default());
    known.add(&direction());
    let more = DirectionReport { first_sample: None, unique: Bytes(2_000_000), acknowledged: false, ..direction() };
    unknown.add(&more);
    BTreeMap::from([(network("192.0.2.0/24"), known), (network("2001:db8::/48"), unknown)])
}

pub(super) fn report() -> Report {
    Report {
        files: vec![FileReport { name: "a.pcap".to_owned(), stats: SourceStats::default(), outcome: Outcome::Whole }],
        span: Some((Timestamp(1_500_000_000_000_000_001), NOW)),
        end: State { began: Timestamp(0), at: NOW, networks: vec![known(), unknown()], traffic: traffic() },
        flows: vec![direction()],
        ..Report::default()
    }
}

pub(super) fn show(format: Format, flows: bool) -> Show {
    Show { format, mss: None, flows, moments: false, sort: None, width: Width::UNLIMITED, names: Names::default() }
}

pub(super) fn shown(report: &Report, show: Show) -> String {
    let mut bytes = Vec::new();
    Output::new(&mut bytes, show).end(report).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn printed(format: Format, flows: bool, mss: Option<Bytes>) -> String {
    shown(&report(), Show { mss, ..show(format, flows) })
}

#[test]
fn csv_begins_with_the_agreed_columns_and_leaves_unknown_fields_empty() {
    let text = printed(Format::Csv, false, None);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with(NETWORK_COLUMNS), "{}", lines[0]);
    assert!(
        lines[1].starts_with("192.0.2.0/24,10,14480,1448,20.0,25.5,4,3,7,2.5,0.25,probe,1,9,0,2,,2017-07-14T02:41:40."),
        "{}",
        lines[1]
    );
    assert!(lines[1].ends_with(",10000,50000,10.0,1,,,false,0,,,0,,,,,,"), "{}", lines[1]);
    assert!(lines[2].starts_with("2001:db8::/48,,,,,,0,0,0,,,,0,0,0,0,too_few_samples,"), "{}", lines[2]);
    assert!(lines[2].ends_with(",2000000,50000,10.0,1,one_sided,,,0,,,0,,,,,,"), "{}", lines[2]);
}

#[test]
fn the_row_of_a_direction_is_as_agreed() {
    let text = printed(Format::Csv, true, None);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with(FLOW_COLUMNS), "{}", lines[0]);
    assert_eq!(
        lines[1],
        "a.pcap,10.0.0.1,80,192.0.2.9,5000,12,10,11000,10000,1,1000,0,2,2,20.0,20.001,20.001,0,,,4000,window,\
         1500000001.000000000:3501:loss;1500000002.000000005:4000:end_app_limited,,0,1,0,2017-07-14T02:40:00.000000001Z,\
         2017-07-14T02:41:40.000000000Z,1,loss-based,1.6,50000,10.0"
    );
    assert_eq!(lines.len(), 2);
}

#[test]
fn json_has_the_same_columns_in_the_same_order() {
    let value: serde_json::Value = serde_json::from_str(&printed(Format::Json, true, None)).unwrap();
    assert_eq!(value["networks"][1]["wc_bytes"], serde_json::Value::Null);
    assert_eq!(value["flows"][0]["window_samples"].as_str().unwrap().split(';').count(), 2);
    for (rows, csv) in [("networks", printed(Format::Csv, false, None)), ("flows", printed(Format::Csv, true, None))] {
        let mut columns: Vec<_> = csv.lines().next().unwrap().split(',').collect();
        if rows == "networks" {
            columns.extend(["opening", "compared", "no_estimate_message"]);
        }
        columns.sort_unstable();
        let keys: Vec<_> = value[rows][0].as_object().unwrap().keys().collect();
        assert_eq!(keys, columns, "{rows}");
    }
    assert_eq!(value["files"][0]["file"], "a.pcap");
    assert_eq!(value["ignored_by_reason"]["not_tcp"], 0);
}

#[test]
fn openings_are_in_json_and_in_the_table_where_a_rule_gives_one() {
    let opening = |rule, bytes| Opening { rule, threshold: Window::from_bytes(bytes).unwrap(), losses: None };
    let mut report = report();
    let view = &mut report.end.networks[0];
    view.estimate.as_mut().unwrap().opening = Some(opening(RuleKind::Liss, 7_240.0));
    view.compared = vec![
        Compared {
            rule: RuleKind::Averaged,
            share: Window::from_bytes(14_480.0),
            opening: Some(opening(RuleKind::Averaged, 11_584.0)),
        },
        Compared { rule: RuleKind::Cached, share: None, opening: None },
    ];
    let value: serde_json::Value = serde_json::from_str(&shown(&report, show(Format::Json, false))).unwrap();
    let rows = &value["networks"];
    assert_eq!((&rows[0]["opening"]["rule"], &rows[0]["opening"]["ssthresh_segments"]), (&"liss".into(), &5.into()));
    let compared = &rows[0]["compared"][0];
    assert_eq!((&compared["rule"], &compared["wc_segments"]), (&"averaged".into(), &10.into()));
    assert_eq!(compared["opening"]["ssthresh_bytes"], 11_584.0);
    assert_eq!(rows[0]["compared"][1]["opening"], serde_json::Value::Null);
    assert_eq!((&rows[1]["opening"], &rows[1]["compared"]), (&serde_json::Value::Null, &serde_json::json!([])));
    let text = shown(&report, show(Format::Table, false));
    assert!(text.contains("liss 5, averaged 8, cached –"), "{text}");
    let halves = shown(&report, Show { mss: Some(Bytes(724)), ..show(Format::Table, false) });
    assert!(halves.contains("liss 10, averaged 16, cached –"), "{halves}");
    assert_eq!(shown(&report, show(Format::Csv, false)), printed(Format::Csv, false, None), "no columns of csv");
}

#[test]
fn names_are_in_every_form_also_of_networks_outside_the_window() {
    let list = "192.0.2.0/24 Branch office 7\n203.0.113.0/24 a name of more than twenty characters\n";
    let named = |format| Show { names: names(list), ..show(format, false) };
    let mut report = report();
    for outside in ["198.51.100.0/24", "203.0.113.0/24"] {
        report.end.traffic.insert(network(outside), Traffic::default());
    }
    let value: serde_json::Value = serde_json::from_str(&shown(&report, named(Format::Json))).unwrap();
    let of = |row: usize| ["name", "as_number", "as_organisation"].map(|key| value["networks"][row][key].to_string());
    assert_eq!(of(0), ["\"Branch office 7\"", "64500", "\"Example One\""]);
    assert_eq!(of(1), ["null"; 3]);
    let csv = shown(&report, named(Format::Csv));
    let lines: Vec<_> = csv.lines().collect();
    assert!(lines[0].ends_with(",name,as_number,as_organisation,mark"), "{csv}");
    assert!(lines[1].ends_with(",Branch office 7,64500,Example One,"), "{csv}");
    // For people one name is enough: the operator's, else the organisation's.
    let table = shown(&report, named(Format::Table));
    for row in [
        "192.0.2.0/24     Branch office 7       ",
        "2001:db8::/48    –                     ",
        "198.51.100.0/24  Example Two           ",
        "203.0.113.0/24   a name of more than   ",
    ] {
        assert!(table.lines().any(|line| line.starts_with(row)), "`{row}` is missing in\n{table}");
    }
}

#[test]
fn shares_are_counted_at_the_asked_segment_size() {
    let text = printed(Format::Csv, false, Some(Bytes(536)));
    assert!(text.contains("192.0.2.0/24,27,14480,536,"), "{text}");
}

#[test]
fn states_on_the_way_come_before_the_rest() {
    for (format, expected) in [(Format::Csv, 3), (Format::Json, 2)] {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, Show { moments: true, ..show(format, false) });
        for _ in 0..2 {
            output.state(&State { began: Timestamp(0), at: NOW, networks: vec![known()], traffic: traffic() }).unwrap();
        }
        output.end(&report()).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        if format == Format::Csv {
            assert_eq!(text.lines().count(), expected, "a header and a row each: {text}");
        } else {
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["states"].as_array().unwrap().len(), expected);
            assert_eq!(value["networks"].as_array().unwrap().len(), 2);
        }
    }
}

#[test]
fn the_table_says_what_is_not_known() {
    let text = printed(Format::Table, true, None);
    for part in ["10.0.0.1:80", "Networks at 2017-07-14T02:41:40.000000Z", "14480", "one sided", "Nothing was ignored."]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}

#[test]
fn a_capture_in_which_no_connection_carried_data_has_a_line_about_it() {
    let mut scan = Report { both_ends_followed: true, ..report() };
    (scan.counters.connections, scan.counters.connections_one_sided) = (1_994, 1_994);
    let text = shown(&scan, show(Format::Table, false));
    assert!(text.contains("1994, of which 1994 have only one direction in it\n"), "{text}");
    assert!(text.contains(" none carried data: there is nothing to estimate from\n"), "{text}");
    let inside = shown(&Report { both_ends_followed: false, ..scan }, show(Format::Table, false));
    assert!(inside.contains(" none carried data of a sender that is followed: "), "{inside}");
    assert!(!printed(Format::Table, false, None).contains("none carried"));
}

#[test]
fn a_sender_has_the_congestion_control_that_was_recognised_for_a_quarter_of_its_bytes() {
    let control = |others: u64| {
        let mut sender = SenderTraffic::default();
        sender.add(&direction());
        sender.add(&DirectionReport {
            unique: Bytes(others),
            congestion_control: CongestionControl::Unknown,
            ..direction()
        });
        sender.congestion_control()
    };
    assert_eq!([30_000, 30_001].map(control), [CongestionControl::LossBased, CongestionControl::Unknown]);
}

#[test]
fn a_transfer_shorter_than_a_millisecond_has_no_rate() {
    let rate = |active_us| {
        let transfers = TransferSummary::of(Bytes(10_000), Micros(active_us));
        let mut traffic = Traffic::default();
        traffic.add(&DirectionReport { transfers, ..direction() });
        traffic.sent.throughput_bps()
    };
    assert_eq!([999, 1_000].map(rate), [None, Some(80_000_000)]);
}
