//! A replay as its caller sees it.

mod output;

use std::fs;
use std::path::{Path, PathBuf};

use spand_capture::{LinkType, PcapWriter};
use spand_core::config::EngineConfig;
use spand_proto::no_estimate::Reason;
use spand_proto::units::Micros;

use self::output::{known, network, report, show, shown, unknown};
use super::*;

const NOW: Timestamp = Timestamp(1_500_000_100_000_000_000);

#[derive(Default)]
struct States(Vec<State>);

impl Sink for States {
    fn state(&mut self, state: &State) -> io::Result<()> {
        self.0.push(state.clone());
        Ok(())
    }

    fn progress(&mut self, _: Progress) {}
}

fn options(files: &[&Path]) -> Options {
    let files = files.iter().map(|&path| PathBuf::from(path)).collect();
    Options { files, engine: EngineConfig::default(), moments: Moments::End }
}

/// A capture of `packets` frames that are no TCP, one a second.
fn capture(path: &Path, packets: u64) {
    let file = fs::File::create(path).unwrap();
    let mut writer = PcapWriter::new(file, LinkType::ETHERNET, 65_535).unwrap();
    for second in 0..packets {
        writer.write(Timestamp(NOW.0 + second * 1_000_000_000), 60, &[0; 60]).unwrap();
    }
}

// What becomes of files that are not sound.

#[test]
fn what_stands_before_the_damage_counts_and_other_files_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (sound, cut, text) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
    capture(&sound, 3);
    capture(&cut, 5);
    let whole = fs::read(&cut).unwrap();
    fs::write(&cut, &whole[..whole.len() - 7]).unwrap();
    fs::write(&text, "no capture").unwrap();
    let report = replay(options(&[&cut, &text, &sound]), &mut States::default()).unwrap();
    assert_eq!(report.counters.frames, 4 + 3);
    let packets: Vec<_> = report.files.iter().map(|file| file.stats.packets).collect();
    assert_eq!(packets, [4, 0, 3]);
    assert!(matches!(report.files[0].outcome, Outcome::Damaged(_)) && !report.files[0].gave_nothing());
    assert!(matches!(report.files[1].outcome, Outcome::Unreadable(_)) && report.files[1].gave_nothing());
    assert!(report.files[2].fault().is_none());
}

#[test]
fn an_empty_but_sound_capture_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty");
    capture(&path, 0);
    let report = replay(options(&[&path]), &mut States::default()).unwrap();
    assert!(report.span.is_none() && !report.files[0].gave_nothing());
}

// When the state is shown.

/// A frame of TCP from or to 192.0.2.9, of which `flags` are set, with this many bytes of data.
fn tcp(inbound: bool, flags: u8, seq: u32, ack: u32, data: u8) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 0, 0, 40 + data, 0, 0, 0, 0, 64, 6, 0, 0]);
    let (host, remote) = (([10, 0, 0, 1], 80u16), ([192, 0, 2, 9], 5_000));
    let (from, to) = if inbound { (remote, host) } else { (host, remote) };
    frame.extend([from.0, to.0].concat());
    frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes()].concat());
    frame.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.resize(frame.len() + usize::from(data), 0);
    frame
}

/// Writes a transfer that starts this many seconds after [`NOW`]: afterwards a network is known.
fn transfer(writer: &mut PcapWriter<fs::File>, second: u64) {
    let isn = u32::try_from(second % 1_000_000).unwrap();
    let frames = [
        tcp(true, 0x02, isn, 0, 0),
        tcp(false, 0x12, 7, isn + 1, 0),
        tcp(true, 0x10, isn + 1, 8, 0),
        tcp(false, 0x11, 8, isn + 1, 10),
        tcp(true, 0x10, isn + 1, 19, 0),
    ];
    for (n, frame) in (0..).zip(&frames) {
        let at = Timestamp(NOW.0 + second * 1_000_000_000 + n * 20_000_000);
        writer.write(at, u32::try_from(frame.len()).unwrap(), frame).unwrap();
    }
}

#[test]
fn moments_that_were_asked_for_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    capture(&path, 5);
    let mut states = States::default();
    let moments = Moments::At(vec!["1500ms".parse().unwrap(), "1h".parse().unwrap()]);
    replay(Options { moments, ..options(&[&path]) }, &mut states).unwrap();
    let at: Vec<_> = states.0.iter().map(|state| state.at.since(NOW)).collect();
    assert_eq!(at, [Micros::from_millis(1_500), Micros::from_secs(3_600)]);
}

#[test]
fn forty_years_of_which_nothing_is_known_are_passed_over() {
    const GAP: u64 = 40 * 365 * 24 * 3_600 + 50;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let mut writer = PcapWriter::new(fs::File::create(&path).unwrap(), LinkType::ETHERNET, 65_535).unwrap();
    for second in [0, GAP, GAP + 100] {
        transfer(&mut writer, second);
    }
    let mut states = States::default();
    let moments = Moments::Every(Micros::from_secs(100));
    let report = replay(Options { moments, ..options(&[&path]) }, &mut states).unwrap();
    assert_eq!(report.counters.segments, 15);
    let seen: Vec<_> =
        states.0.iter().map(|state| (state.at.since(NOW).0 / 1_000_000, !state.networks.is_empty())).collect();
    // The window is 300 s; after it one state without networks says as much as forty years of them.
    assert_eq!(seen, [(100, true), (200, true), (300, false), (GAP + 50, true)]);
}

#[test]
fn a_state_without_networks_is_printed_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    capture(&path, 5);
    let mut states = States::default();
    replay(Options { moments: Moments::Every(Micros::from_secs(1)), ..options(&[&path]) }, &mut states).unwrap();
    let at: Vec<_> = states.0.iter().map(|state| state.at.since(NOW).0 / 1_000_000).collect();
    assert_eq!(at, [1]);
}

// Tables fit their room, lead with what matters and are in order.

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
        for part in ["bytes", "share", "192.0.2.0/24", "loss-based", "one sided"] {
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
    assert!(at(80, false, &report).contains("share"));
    report.end.networks.retain(|view| view.estimate.is_none());
    let text = at(80, false, &report);
    assert!(!text.contains("share") && text.contains("samples"), "{text}");
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
