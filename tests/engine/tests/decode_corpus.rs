//! Frames of the public captures: as many TCP segments, with as many payload bytes per direction, as tshark counted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use spand_capture::{Next, PacketSource, open_file};
use spand_core::config::Tunnels;
use spand_core::wire::segment::Endpoint;
use spand_core::wire::{Decoder, Frame};
use spand_engine_tests::corpus::{self, Row};
use spand_needs::needs_corpus;

/// Captures in which the number of segments differs: file, segments here, TCP frames by tshark, reason.
const COUNTS_EXPLAINED: [(&str, u64, u64, &str); 15] = [
    ("suricata__bug-76__input.pcap", 45, 46, HEADER),
    ("suricata__drop-protocol-change__input.pcap", 5, 6, HEADER),
    ("suricata__transform-base64-7296__input.pcap", 57, 59, HEADER),
    ("arkime__socks5-http-302-frag.pcap", 10, 14, FRAGMENTS),
    ("suricata__defrag__bug-6887-defrag-ppp-ipv4-tcp-syn__frag-ppp-ip-tcp-syn.pcap", 0, 1, FRAGMENTS),
    ("zeek__ipv4__fragmented-4.pcap", 2, 3, FRAGMENTS),
    ("zeek__ipv4__fragmented-syn.pcap", 0, 1, FRAGMENTS),
    ("tcpdump__bgp_pmsi_tunnel-oobr.pcap", 0, 1, FRAGMENTS),
    ("tcpdump__wccp_redirect_gre.pcap", 0, 1, WCCP),
    ("zeek__tunnels__gtp__gtp1_gn_normal_incl_fragmentation.pcap", 72, 68, OUTER_FRAGMENT),
    ("ndpi__reasm_crash_anon.pcapng", 208, 209, HEADER),
    ("suricata__firewall__tcp-session-decode-malformed-ipv4__input.pcap", 11, 10, "a broken IP option stops tshark"),
    ("tcptrace__NASA_ipv6.snoop.gz", 0, 169, SNOOP),
    ("tcptrace__finger.snoop.gz", 0, 13, SNOOP),
    ("tcptrace__ipv6_ftp_nasa.snp.gz", 0, 1164, SNOOP),
];

/// Captures in which the payload of some directions differs: file, directions, reason. Those above are among them.
const PAYLOAD_EXPLAINED: [(&str, usize, &str); 15] = [
    ("suricata__bug-76__input.pcap", 1, HEADER),
    ("suricata__drop-protocol-change__input.pcap", 1, HEADER),
    ("suricata__telnet__telnet-01__telnet.pcap", 1, CUT_BEFORE),
    ("suricata__transform-base64-7296__input.pcap", 1, HEADER),
    ("tcpdump__wccp_redirect_gre.pcap", 1, WCCP),
    ("tcptrace__6syns.dmp.gz", 1, CUT_BEFORE),
    ("tcptrace__long_rtt.dmp.gz", 1, CUT_BEFORE),
    ("arkime__socks5-http-302-frag.pcap", 2, FRAGMENTS),
    ("suricata__defrag__bug-6887-defrag-ppp-ipv4-tcp-syn__frag-ppp-ip-tcp-syn.pcap", 1, FRAGMENTS),
    ("zeek__ipv4__fragmented-4.pcap", 1, FRAGMENTS),
    ("zeek__ipv4__fragmented-syn.pcap", 1, FRAGMENTS),
    ("zeek__pppoe-over-qinq.pcap", 1, CUT_BEFORE),
    ("zeek__tcp__reassembly.pcap", 1, CUT_BEFORE),
    (
        "zeek__tunnels__gre-aruba-amsdu.pcap",
        1,
        "two packets in one wireless frame: the first counts, tshark's is the last",
    ),
    ("zeek__tunnels__gtp__gtp1_gn_normal_incl_fragmentation.pcap", 1, OUTER_FRAGMENT),
];

const HEADER: &str = "a TCP header shorter than 20 bytes or longer than its packet: malformed here, a TCP frame there";
const SNOOP: &str = "no capture format that is read here";
const FRAGMENTS: &str = "TCP in IP fragments: passed over here, put together by tshark";
const WCCP: &str = "redirected by WCCP over GRE, which is not read here";
const OUTER_FRAGMENT: &str = "a tunnel's first fragment shows the whole inner header; tshark waits for the rest";
const CUT_BEFORE: &str = "the frame was cut before it was captured: IP's own length counts here, as in tcptrace";

/// Packets, packets with payload, payload bytes.
type Sum = (u64, u64, u64);
type Directions = BTreeMap<(Endpoint, Endpoint), Sum>;

#[test]
fn segments_and_payload_equal_the_reference() {
    let Some(corpus) = needs_corpus(".") else { return };
    let set = corpus.join("captures-real");
    let captures = corpus::table(&set.join("reference/ref_capture.tsv")).unwrap();
    assert_eq!(captures.len(), 244, "captures in the reference");
    let mut reference: BTreeMap<String, Directions> = BTreeMap::new();
    for row in corpus::table(&set.join("reference/ref_conn.tsv")).unwrap() {
        let key = (endpoint(&row, "src", "sport"), endpoint(&row, "dst", "dport"));
        let sum = reference.entry(row["file"].clone()).or_default().entry(key).or_default();
        let add = (number(&row, "pkts"), number(&row, "data_pkts"), number(&row, "payload_bytes"));
        *sum = (sum.0 + add.0, sum.1 + add.1, sum.2 + add.2);
    }

    let mut unexplained = Vec::new();
    for row in &captures {
        let file = row["file"].as_str();
        let (segments, here) = walk(&set.join("captures").join(file));
        let there = reference.remove(file).unwrap_or_default();
        unexplained.extend(count_differs(row, segments));
        let differing = differing(&here, &there);
        let expected = PAYLOAD_EXPLAINED.iter().find(|known| known.0 == file).map_or(0, |known| known.1);
        if differing.len() != expected {
            unexplained.push(format!("{file}: {expected} directions expected to differ: {}", differing.join("; ")));
        }
    }
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    assert!(reference.is_empty(), "connections of captures that were not read: {:?}", reference.keys());
}

#[test]
fn segments_of_malformed_captures_equal_the_reference() {
    let Some(corpus) = needs_corpus(".") else { return };
    let set = corpus.join("captures-malformed");
    let captures = corpus::table(&set.join("reference/ref_capture.tsv")).unwrap();
    assert_eq!(captures.len(), 301, "captures in the reference");
    let unexplained: Vec<_> = captures
        .iter()
        .filter_map(|row| count_differs(row, walk(&set.join("captures").join(&row["file"])).0))
        .collect();
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
}

/// What to say where the number of segments is neither tshark's nor explained.
fn count_differs(row: &Row, segments: u64) -> Option<String> {
    // Where tshark refuses the capture it counted nothing, and nothing it is.
    let (file, frames) = (row["file"].as_str(), row["tshark_tcp_frames"].parse().unwrap_or(0));
    let expected = COUNTS_EXPLAINED.iter().find(|known| known.0 == file).map_or((frames, frames), |k| (k.1, k.2));
    ((segments, frames) != expected).then(|| format!("{file}: {segments} here, {frames} by tshark, not {expected:?}"))
}

fn differing(here: &Directions, there: &Directions) -> Vec<String> {
    let sum = |directions: &Directions, key| directions.get(key).copied().unwrap_or_default();
    let keys: BTreeSet<_> = here.keys().chain(there.keys()).collect();
    keys.into_iter()
        .filter(|key| sum(here, key) != sum(there, key))
        .map(|key| format!("{key:?} {:?} here, {:?} by tshark", sum(here, key), sum(there, key)))
        .collect()
}

/// Decodes every frame of a capture: TCP segments, and sums per direction.
fn walk(path: &Path) -> (u64, Directions) {
    let mut segments = 0;
    let mut directions = Directions::new();
    let mut decoder = Decoder::new(Tunnels::ALL);
    // Some malformed captures are no captures; the tests of the packet sources look into why.
    let Ok(mut source) = open_file(path) else { return (segments, directions) };
    loop {
        // A capture that ends in a damaged record was read up to it, by tshark too.
        let Ok(Next::Packet(packet)) = source.next_packet() else { return (segments, directions) };
        let frame =
            Frame { link_type: packet.link_type.0, wire_len: packet.wire_len, input: packet.source, data: packet.data };
        if let Ok(segment) = decoder.decode(packet.timestamp, &frame) {
            segments += 1;
            let sum = directions.entry((segment.source, segment.destination)).or_default();
            let payload = u64::from(segment.payload_len);
            *sum = (sum.0 + 1, sum.1 + u64::from(payload > 0), sum.2 + payload);
        }
    }
}

fn endpoint(row: &Row, address: &str, port: &str) -> Endpoint {
    let address: IpAddr = row[address].parse().expect("an address");
    Endpoint { address: address.to_canonical(), port: row[port].parse().expect("a port") }
}

fn number(row: &Row, column: &str) -> u64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} of {} is no number", row["file"]))
}
