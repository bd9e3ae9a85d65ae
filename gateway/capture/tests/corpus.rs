//! The public captures of the corpus: as many records as an independent walk of each container found.
//!
//! The corpus lies beside the repository (`../shared/corpus`) or where `SPAND_CORPUS` says. Without it the test checks
//! nothing, and says so on standard error even where the test runner keeps output to itself.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

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
    let Some(corpus) = corpus() else { return };
    let differences = compare(&corpus.join("captures-real"), 244);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn malformed_captures_give_every_record_before_the_damage() {
    let Some(corpus) = corpus() else { return };
    let differences = compare(&corpus.join("captures-malformed"), 301);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn corpus() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let corpus = std::env::var_os("SPAND_CORPUS").map_or_else(beside, PathBuf::from);
    if corpus.is_dir() {
        return Some(corpus);
    }
    // Not eprintln: the test runner would swallow it.
    writeln!(std::io::stderr(), "\nSKIPPED: no corpus at {}; 1 test checked nothing", corpus.display())
        .expect("standard error");
    None
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
