//! Encapsulations of mirrors: one recording in each of them gives the same networks. Files of other programs are refused with the way out.

use std::path::Path;

use spand_capture::open_file;
use spand_core::config::{EngineConfig, Limits, Tunnels};
use spand_core::counters::{Ignored, ProtocolNumber};
use spand_core::types::TunnelKind;
use spand_gateway::replay::{Format, Moments, Names, Options, Output, Report, Show, Width, replay};
use spand_needs::needs_corpus;
use spand_tests::silent::Silent;

const PACKETS: u64 = 400;

fn replayed(file: &Path, tunnels: Tunnels) -> Report {
    let engine = EngineConfig { limits: Limits::for_replay(), tunnels, ..EngineConfig::default() };
    let options = Options { files: vec![file.to_owned()], engine, moments: Moments::End };
    replay(options, &mut Silent).expect("nothing is written")
}

fn printed(report: &Report, format: Format) -> String {
    let (width, names) = (Width::UNLIMITED, Names::default());
    let show = Show { format, mss: None, flows: false, moments: false, sort: None, width, names };
    let mut bytes = Vec::new();
    Output::new(&mut bytes, show).end(report).expect("memory takes all");
    String::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn a_recording_is_the_same_in_every_wrapping() {
    let Some(wild) = needs_corpus("wild") else { return };
    let vxlan = Tunnels::ALL.from_anyone((TunnelKind::Vxlan, 8472));
    let reports = [
        ("tun-tzsp.pcap", Tunnels::ALL),
        ("tun-vxlan-8472.pcap", vxlan),
        ("8021br-etag.pcap", Tunnels::NONE),
        ("cisco-cmd-sgt.pcap", Tunnels::NONE),
    ]
    .map(|(file, tunnels)| (file, replayed(&wild.join(file), tunnels)));
    let (_, first) = &reports[0];
    assert!(first.counters.connections > 0 && first.counters.rtt_samples > 10, "{:?}", first.counters);
    for (file, report) in &reports {
        assert_eq!((report.counters.frames, report.counters.segments), (PACKETS, PACKETS), "{file}");
        assert_eq!(report.counters.connections_midstream, 0, "{file}");
        let rows = |report: &Report| report.end.networks.iter().map(|view| format!("{view:?}")).collect::<Vec<_>>();
        assert_eq!(rows(report), rows(first), "{file}");
    }
}

#[test]
fn a_mirror_that_is_not_configured_is_named_with_what_to_write() {
    let Some(wild) = needs_corpus("wild") else { return };
    let report = replayed(&wild.join("tun-vxlan-8472.pcap"), Tunnels::ALL);
    assert_eq!(report.counters.ignored(Ignored::NotTcp), PACKETS);
    let counted: Vec<_> = report.counters.other_protocols().filter(|(_, count)| *count > 0).collect();
    assert_eq!(
        counted.iter().map(|(one, count)| (one.number, *count)).collect::<Vec<_>>(),
        [(ProtocolNumber::UdpPort(8472), PACKETS)]
    );
    let line = "not_tcp: 100 % is UDP port 8472 (VXLAN on Linux's own default port), 100 % of all packets: \
                --tunnels all,vxlan:8472 looks into it";
    let table = printed(&report, Format::Table);
    assert!(table.contains(line), "{table}");
    let json: serde_json::Value = serde_json::from_str(&printed(&report, Format::Json)).expect("JSON");
    assert_eq!(json["other_protocols"]["udp_8472"], PACKETS);
    for (file, reason) in
        [("tun-tzsp.pcap", TunnelKind::Tzsp.not_configured()), ("tun-fou-etherip.pcap", Ignored::NotTcp)]
    {
        let report = replayed(&wild.join(file), Tunnels::NONE);
        assert_eq!(report.counters.ignored(reason), PACKETS, "{file}");
    }
}

#[test]
fn what_wraps_packets_in_a_mirror_or_a_link_is_named() {
    let Some(field) = needs_corpus("field") else { return };
    for (file, number, named) in [
        ("linktype-284-dsa.pcap.zst", ProtocolNumber::LinkType(284), "link type 284 (the conduit of a Marvell switch)"),
        (
            "mirror-juniper-udp30030.pcap.zst",
            ProtocolNumber::UdpPort(30_030),
            "UDP port 30030 (the mirror of a Juniper",
        ),
    ] {
        let report = replayed(&field.join(file), Tunnels::ALL);
        let counted: Vec<_> = report.counters.other_protocols().filter(|(_, count)| *count > 0).collect();
        assert!(counted.iter().any(|(one, count)| one.number == number && *count == report.counters.frames), "{file}");
        let table = printed(&report, Format::Table);
        assert!(table.contains(named) && table.contains("mirror them where they are not wrapped"), "{table}");
    }
}

#[test]
fn files_of_other_programs_are_refused_with_the_way_out() {
    let Some(wild) = needs_corpus("wild") else { return };
    for (file, way_out) in [
        ("fmt-comp.pcap.lz4.zst", "(lz4; decompress it first)"),
        ("fmt-erf.erf", "(Endace ERF; `editcap -F pcap` converts it)"),
    ] {
        let message = open_file(&wild.join(file)).expect_err("no capture").to_string();
        assert!(message.ends_with(way_out) && !message.contains('\n'), "{message}");
    }
}
