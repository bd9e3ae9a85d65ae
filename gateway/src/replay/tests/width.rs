//! Tables fit their room, lead with what matters and are in order.

use spand_proto::no_estimate::Reason;

use super::output::{known, network, report, show, shown, unknown};
use super::*;

const IPV6: &str = "2001:db8:1234:5678:abcd:ef01:2345:6789";

fn at(width: u16, flows: bool, report: &Report) -> String {
    shown(report, Show { width: Width::at_most(width), ..show(Format::Table, flows) })
}

/// The longest addresses, names and numbers that there are.
fn wide_report() -> Report {
    let mut report = report();
    let mut long = report.flows[0].clone();
    (long.source.address, long.destination.address) = (IPV6.parse().unwrap(), IPV6.parse().unwrap());
    (long.source.port, long.destination.port) = (65_535, 65_535);
    report.flows.push(long);
    let mut view = unknown();
    view.network = network("2001:db8:1234::/48");
    view.rtt_min = Some(Micros(123_456_789));
    report.end.networks.push(view);
    report.files[0].name = "long".repeat(60);
    report
}

#[test]
fn no_line_is_longer_than_the_terminal_and_wider_ones_show_more() {
    let report = wide_report();
    let mut columns = Vec::new();
    for width in [80, 100, 120, 160] {
        let text = at(width, true, &report);
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}\n{text}");
        }
        let headers = text.lines().filter(|line| line.starts_with("network ") || line.starts_with("from "));
        columns.push(headers.map(|line| line.split_whitespace().count()).sum::<usize>());
        assert!(text.contains("Some columns do not fit"), "{width}:\n{text}");
        for part in ["bytes", "Wc", "192.0.2.0/24", "cubic", "one sided"] {
            assert!(text.contains(part), "{part} is missing at {width}:\n{text}");
        }
    }
    assert!(columns.is_sorted() && columns.first() < columns.last(), "{columns:?}");
}

#[test]
fn wide_shows_every_column_and_breaks_nothing() {
    let text = shown(&wide_report(), show(Format::Table, true));
    for part in ["confi-", "limited", "hole", &format!("[{IPV6}]:65535")] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(!text.contains("do not fit"), "{text}");
}

#[test]
fn a_column_without_a_value_makes_room_first() {
    let mut report = report();
    assert!(at(80, false, &report).contains("Wc"));
    report.end.networks.retain(|view| view.estimate.is_none());
    let text = at(80, false, &report);
    assert!(!text.contains("Wc") && text.contains("samples"), "{text}");
}

#[test]
fn the_summary_comes_first_and_its_reasons_add_up() {
    let text = at(80, true, &report());
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing:\n{text}"));
    assert!(place("Files") < place("1 with an estimate, 1 without:"), "{text}");
    assert!(place("1 with only one direction in the capture") < place("Networks at"), "{text}");
    assert!(place("Networks at") < place("Connections, one row"), "{text}");
    let summary = Summary::new(&report());
    assert_eq!(summary.no_estimate_by_reason.values().sum::<u64>(), summary.networks_without_estimate);
    assert_eq!(summary.no_estimate_by_reason.get(&Reason::OneSided), Some(&1));
}

#[test]
fn a_network_outside_the_window_has_a_row_and_a_reason() {
    let mut report = report();
    report.end.networks = vec![known()];
    let mut traffic = Traffic::default();
    traffic.add(&report.flows[0]);
    report.end.traffic.insert(network("2001:db8::/48"), traffic);
    let text = at(120, false, &report);
    assert!(text.contains("2001:db8::/48") && text.contains("outside window"), "{text}");
    assert_eq!(Summary::new(&report).no_estimate_by_reason.get(&Reason::OutsideWindow), Some(&1));
}

#[test]
fn the_table_is_in_the_order_of_bytes_and_csv_is_not() {
    let networks = |show: Show| {
        let text = shown(&report(), show);
        let prefixes = text.lines().filter_map(|line| line.split([' ', ',']).next().filter(|cell| cell.contains('/')));
        prefixes.map(str::to_owned).collect::<Vec<_>>()
    };
    let (by_prefix, by_bytes) = (["192.0.2.0/24", "2001:db8::/48"], ["2001:db8::/48", "192.0.2.0/24"]);
    assert_eq!(networks(show(Format::Table, false)), by_bytes);
    assert_eq!(networks(Show { sort: Some(Sort::None), ..show(Format::Table, false) }), by_prefix);
    assert_eq!(networks(show(Format::Csv, false)), by_prefix);
    assert_eq!(networks(Show { sort: Some(Sort::Bytes), ..show(Format::Csv, false) }), by_bytes);

    let mut report = report();
    let mut larger = report.flows[0].clone();
    (larger.unique, larger.source.port) = (spand_proto::units::Bytes(3_000_000), 443);
    report.flows.push(larger);
    let first = |format| {
        let text = shown(&report, show(format, true));
        text.lines().find(|line| line.contains("10.0.0.1")).unwrap().to_owned()
    };
    assert!(first(Format::Table).contains(":443"), "by bytes");
    assert!(first(Format::Csv).contains(",80,"), "by first packet");
}

#[test]
fn a_long_path_breaks_behind_folders() {
    let (folder, file) =
        ("/srv/captures/of-the-mirror-port-at-the-second-egress/2024-05-17/", "between-noon-and-one-o-clock.pcap");
    let mut report = report();
    report.files[0].name = format!("{folder}{file}");
    let text = at(80, false, &report);
    assert!(text.contains(&format!("{folder}\n")) && text.lines().any(|line| line.trim() == file), "{text}");
}
