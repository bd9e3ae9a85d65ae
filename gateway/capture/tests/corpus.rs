//! The public captures of the corpus: as many records as an independent walk of each container found.
//!
//! The corpus lies beside the repository (`../shared/corpus`) or where `SPAND_CORPUS` says. Without it the test checks
//! nothing, and says so on standard error even where the test runner keeps output to itself.

use spand_needs::needs_corpus;
use std::fs;
use std::path::Path;

use spand_capture::{Next, PacketSource, open_file};

/// Where this reader and the reference walk differ with reason: file, packets here, part of the message here, reason.
const EXPLAINED: [(&str, u64, &str, &str); 8] = [
    ("tcptrace__bad_ack_code.dmp.gz", 40, "", V2_2),
    ("tcptrace__pcap_v2.2.dmp.gz", 40, "", V2_2),
    ("ndpi__fuzz-2021-10-13.pcap", 1, "lacks 14 bytes", V2_2),
    ("pcapplusplus__fuzz_clusterfuzz-testcase-minimized-FuzzTarget-6604968558198784", 1, "", V2_2),
    (
        "gopacket__pcapgo__tests__be__test901.pcapng",
        1,
        "version 2.0",
        "tshark too refuses the second section's version",
    ),
    ("tcptrace__NASA_ipv6.snoop.gz", 0, "Solaris snoop", SNOOP),
    ("tcptrace__finger.snoop.gz", 0, "Solaris snoop", SNOOP),
    ("tcptrace__ipv6_ftp_nasa.snp.gz", 0, "Solaris snoop", SNOOP),
];
const V2_2: &str = "pcap before 2.3 holds the two lengths in the other order; libpcap reads as many";
const SNOOP: &str = "not a capture format read here, and the message says so";

#[test]
fn real_captures_give_every_record() {
    let Some(corpus) = needs_corpus(".") else { return };
    let differences = compare(&corpus.join("captures-real"), 244);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn malformed_captures_give_every_record_before_the_damage() {
    let Some(corpus) = needs_corpus(".") else { return };
    let differences = compare(&corpus.join("captures-malformed"), 301);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn real_captures_give_every_time() {
    let Some(corpus) = needs_corpus(".") else { return };
    let set = corpus.join("captures-real");
    let index = fs::read_to_string(set.join("INDEX.tsv")).expect("the index");
    let mut compared = 0;
    for row in index.lines().skip(1).map(|line| line.split('\t').collect::<Vec<_>>()) {
        let (file, start, duration_s) = (row[0], row[16], row[17].parse::<f64>().expect("seconds"));
        let (first, latest) = times(&set.join("captures").join(file));
        assert_eq!(first / 1_000_000_000, seconds(start), "{file} starts at {start}");
        let duration_s = match file {
            // A packet stamped 584,000 years ahead, which nanoseconds in 64 bits cannot say.
            "pcapplusplus__pt_pcapng-example.pcapng" => (u64::MAX - first) as f64 / 1e9,
            // A packet of 1,653,292 microseconds in its second, which the reference took for 0.1653292 s.
            "suricata__transform-base64-7296__input.pcap" => duration_s - 0.165_329_2 + 1.653_292,
            _ => duration_s,
        };
        let here_s = (latest - first) as f64 / 1e9;
        assert!((here_s - duration_s).abs() < 1.5e-6, "{file} lasts {here_s} s, reference {duration_s} s");
        compared += 1;
    }
    assert_eq!(compared, 244);
}

/// Nanoseconds of the first packet and of the latest one.
fn times(path: &Path) -> (u64, u64) {
    let mut source = open_file(path).expect("a capture");
    let mut times: Option<(u64, u64)> = None;
    while let Next::Packet(packet) = source.next_packet().expect("a sound capture") {
        let now = packet.timestamp.0;
        times = Some(times.map_or((now, now), |(first, latest)| (first, latest.max(now))));
    }
    times.expect("a packet")
}

/// Seconds since 1970 of a moment such as `2018-03-05T15:07:14Z`.
fn seconds(moment: &str) -> u64 {
    let fields: Vec<u64> = moment.split(['-', 'T', ':', 'Z']).filter_map(|field| field.parse().ok()).collect();
    let [year, month, day, hour, minute, second] = fields[..] else { panic!("{moment} is no moment") };
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let leap = u64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) && month > 2);
    let before_month = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let days = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969) + leap;
    (((days + before_month[usize::try_from(month - 1).expect("a month")] + day - 1) * 24 + hour) * 60 + minute) * 60
        + second
}

fn compare(set: &Path, files: usize) -> Vec<String> {
    let reference = fs::read_to_string(set.join("reference/ref_capture.tsv")).expect("the reference table");
    let rows: Vec<Vec<&str>> = reference.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows.len(), files, "files in the reference");
    rows.iter().filter_map(|row| difference(set, row[0], row[1].parse().expect("a count"), row[2] == "clean")).collect()
}

fn difference(set: &Path, file: &str, records: u64, clean: bool) -> Option<String> {
    let (packets, end) = walk(&set.join("captures").join(file));
    let as_expected = match EXPLAINED.iter().find(|explained| explained.0 == file) {
        Some((_, here, message, _)) => {
            packets == *here && end.contains(message) && end.is_empty() == message.is_empty()
        }
        None => packets == records && end.is_empty() == clean,
    };
    (!as_expected).then(|| format!("{file}: {packets} packets ({end}), reference {records} (clean: {clean})"))
}

/// Packets delivered, and the message at the end where there was one.
fn walk(path: &Path) -> (u64, String) {
    let mut source = match open_file(path) {
        Ok(source) => source,
        Err(error) => return (0, error.to_string()),
    };
    let mut packets = 0;
    let end = loop {
        match source.next_packet() {
            Ok(Next::Packet(packet)) => {
                packets += 1;
                assert!(packet.wire_len as usize >= packet.data.len());
            }
            Ok(Next::Idle) => panic!("a file is never idle"),
            Ok(Next::End) => break String::new(),
            Err(error) => break error.to_string(),
        }
    };
    assert!(matches!(source.next_packet(), Ok(Next::End)), "an ended file stays so");
    assert_eq!(source.stats().packets, packets);
    assert_eq!(source.stats().unreadable, 0, "{}", path.display());
    (packets, end)
}
