//! When the state is shown.

use super::*;

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
