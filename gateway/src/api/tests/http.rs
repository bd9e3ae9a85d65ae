//! HTTP.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::publisher::{EngineStatus, Part};

#[tokio::test]
async fn networks_are_listed_in_pages_in_the_order_asked_for() {
    let rig = Rig::new(ApiConfig::default()).await;
    let prefixes = |document: &serde_json::Value| -> Vec<String> {
        let networks = document["networks"].as_array().unwrap();
        networks.iter().map(|network| network["prefix"].as_str().unwrap().to_owned()).collect()
    };
    let (status, all) = rig.get("/v1/networks").await;
    assert_eq!((status, prefixes(&all)), (200, [GOOD, WIDE, POOR, SIX].map(str::to_owned).into()));
    assert_eq!((&all["total"], &all["next_offset"]), (&4.into(), &serde_json::Value::Null));
    let good = &all["networks"][0];
    for (field, value) in [("wc_segments", 20.0), ("mss_bytes", 1_448.0), ("rtt_mean_ms", 40.0), ("age_s", 1.0)] {
        assert_eq!(good[field].as_f64(), Some(value), "{field}");
    }
    let poor = &all["networks"][2];
    let why = "3 transfers seen, 1 limited by its application: 2 of 3 samples; a transfer that fills its congestion window gives one";
    assert_eq!((&poor["no_estimate"], &poor["no_estimate_message"]), (&"app_limited".into(), &why.into()));
    let (_, advice) = rig.get("/v1/advice?destination=203.0.113.9").await;
    assert_eq!(advice["refusal"]["message"], why, "one reason everywhere");
    assert_eq!(all["networks"][2]["wc_bytes"], serde_json::Value::Null);

    let (_, page) = rig.get("/v1/networks?sort=wc&order=desc&limit=2").await;
    assert_eq!(prefixes(&page), [WIDE, SIX]);
    assert_eq!(page["next_offset"], 2);
    let (_, rest) = rig.get("/v1/networks?sort=wc&order=desc&limit=2&offset=2").await;
    assert_eq!(prefixes(&rest), [GOOD, POOR], "one without a share comes last");
    let (_, within) = rig.get("/v1/networks?within=198.51.0.0%2F16").await;
    assert_eq!(prefixes(&within), [WIDE]);
    let (_, without) = rig.get("/v1/networks?estimate=no").await;
    assert_eq!(prefixes(&without), [POOR]);
    rig.end().await;
}

#[tokio::test]
async fn a_network_is_found_however_it_is_written() {
    let rig = Rig::new(ApiConfig::default()).await;
    for path in ["192.0.2.0/24", "192.0.2.0%2F24", "192.0.2.0%2f24", "192.0.2.99/24", "192.0.2.99", "::ffff:192.0.2.99"]
    {
        let (status, network) = rig.get(&format!("/v1/networks/{path}")).await;
        assert_eq!((status, &network["prefix"]), (200, &GOOD.into()), "{path}");
    }
    assert_eq!(rig.get("/v1/networks/2001:db8:7::%2F48").await.1["wc_segments"], 50);
    rig.end().await;
}

#[tokio::test]
async fn advice_shows_the_start_and_every_step() {
    let rig = Rig::new(ApiConfig::default()).await;
    let (status, advice) = rig.get("/v1/advice?destination=192.0.2.7&mode=paper").await;
    assert_eq!(status, 200);
    assert_eq!(advice["start"]["cwnd_segments"], 20);
    assert_eq!(advice["start"]["mode"], "paper");
    assert_eq!(advice["estimate"]["prefix"], GOOD);
    assert_eq!(advice["lifetime_ms"], 60_000);
    assert_eq!(advice["refusal"], serde_json::Value::Null);
    let (_, careful) =
        rig.get("/v1/advice?destination=192.0.2.7&bytes=1000000&mss=1448&snd_wnd=65535&rtt_ms=41.5").await;
    assert_eq!(careful["start"]["mode"], "careful");
    assert_eq!(careful["start"]["cwnd_segments"], 20);
    assert_eq!(careful["start"]["clipped_by"], serde_json::Value::Null);
    let pacing = &careful["start"]["pacing"];
    assert_eq!((&pacing["after_segments"], &pacing["rtt_ms"]), (&10.into(), &41.5.into()));
    let (status, refused) = rig.get("/v1/advice?destination=192.0.2.7&rtt_ms=400").await;
    assert_eq!(
        (status, &refused["refusal"]["reason"], &refused["start"]),
        (200, &"rtt_mismatch".into(), &serde_json::Value::Null)
    );
    let (status, unknown) = rig.get("/v1/advice?destination=9.9.9.9&bytes=1000").await;
    assert_eq!((status, &unknown["refusal"]["reason"]), (200, &"no_estimate".into()));
    // Near the age limit, advice does not outlive the estimate; beyond, there is none.
    rig.clock.0.store(9_000_000_000 + 290_000_000_000, Ordering::Relaxed);
    assert_eq!(rig.get("/v1/advice?destination=192.0.2.7").await.1["lifetime_ms"], 10_000);
    rig.clock.0.store(9_000_000_000 + 301_000_000_000, Ordering::Relaxed);
    assert_eq!(rig.get("/v1/advice?destination=192.0.2.7").await.1["refusal"]["reason"], "stale");
    rig.end().await;
}

#[tokio::test]
async fn services_are_listed_and_give_a_size_that_is_not_known() {
    let rig = Rig::new(ApiConfig::default()).await;
    let size = |service: &str, quantile| {
        let service = service.parse().unwrap();
        Event::ServiceSize(ServiceSize { service, quantile: Bytes(quantile), transfers: 12 })
    };
    let events = vec![size("10.0.0.1:443", 30_000), size("10.0.0.1:80", 2_000), size("[2001:db8::1]:443", 5_000)];
    rig.published.apply(Batch { events, ..Batch::new() });
    let (status, all) = rig.get("/v1/services").await;
    assert_eq!((status, &all["total"], &all["next_after"]), (200, &4.into(), &serde_json::Value::Null));
    let first = serde_json::json!({ "host": "10.0.0.1", "port": 80, "quantile_bytes": 2_000, "transfers": 12 });
    assert_eq!(all["services"][0], first);
    let (_, page) = rig.get("/v1/services?host=::ffff:10.0.0.1&limit=1").await;
    assert_eq!((&page["services"][0]["port"], &page["next_after"]), (&80.into(), &"10.0.0.1:80".into()));
    let (_, rest) = rig.get("/v1/services?host=10.0.0.1&after=10.0.0.1:80").await;
    assert_eq!((rest["services"].as_array().unwrap().len(), &rest["services"][0]["port"]), (1, &443.into()));

    let transfer = async |query: &str| {
        let (_, advice) = rig.get(&format!("/v1/advice?destination=192.0.2.7&mss=1000{query}")).await;
        advice["start"]["account"]["transfer"]["size_segments"].clone()
    };
    assert_eq!(transfer("&service=10.0.0.1:443").await, 30);
    assert_eq!(transfer("&service=10.0.0.1:443&bytes=7000").await, 7, "a size that is known goes first");
    assert_eq!(transfer("&service=10.0.0.1:22").await, serde_json::Value::Null);
    rig.end().await;
}

#[tokio::test]
async fn each_bad_request_gets_its_own_sentence_and_harms_nothing() {
    let rig = Rig::new(ApiConfig::default()).await;
    let long = "9".repeat(5_000);
    for (path, status, word) in [
        ("/v1/networks/192.0.2.0/33", 400, "192.0.2.0/33"),
        ("/v1/networks/nonsense", 400, "nonsense"),
        ("/v1/networks/192.0.2.0/24/7", 400, "192.0.2.0/24/7"),
        ("/v1/networks/%FF", 400, ""),
        ("/v1/networks/10.9.8.0/24", 404, "10.9.8.0/24"),
        ("/v1/networks/10.9.8.7", 404, "10.9.8.7"),
        ("/v1/networks/192.0.2.0/24?limit=1", 400, "limit"),
        ("/v1/networks?limit=0", 400, "limit"),
        ("/v1/networks?limit=1001", 400, "1 to 1000"),
        ("/v1/networks?offset=-1", 400, "offset"),
        ("/v1/networks?sort=colour", 400, "colour"),
        ("/v1/networks?within=10.0.0.0", 400, "within"),
        ("/v1/networks?page=1", 400, "page"),
        ("/v1/advice", 400, "destination"),
        ("/v1/advice?destination=example.net", 400, "example.net"),
        ("/v1/advice?destination=192.0.2.0/24", 400, "192.0.2.0/24"),
        ("/v1/advice?destination=192.0.2.7&bytes=0", 400, "bytes"),
        ("/v1/advice?destination=192.0.2.7&bytes=-1", 400, "bytes"),
        ("/v1/advice?destination=192.0.2.7&bytes=18446744073709551616", 400, "bytes"),
        ("/v1/advice?destination=192.0.2.7&mss=0", 400, "mss"),
        ("/v1/advice?destination=192.0.2.7&mss=65536", 400, "mss"),
        ("/v1/advice?destination=192.0.2.7&snd_wnd=1073741825", 400, "snd_wnd"),
        ("/v1/advice?destination=192.0.2.7&rtt_ms=NaN", 400, "rtt_ms"),
        ("/v1/advice?destination=192.0.2.7&rtt_ms=inf", 400, "rtt_ms"),
        ("/v1/advice?destination=192.0.2.7&mode=bold", 400, "bold"),
        ("/v1/advice?destination=192.0.2.7&initial_window=0", 400, "initial_window"),
        ("/v1/advice?destination=192.0.2.7&bytes=1&bytes=2", 400, "twice"),
        ("/v1/advice?destination=192.0.2.7&size=3", 400, "size"),
        ("/v1/advice?destination=192.0.2.7&service=10.0.0.1", 400, "10.0.0.1"),
        ("/v1/services?limit=0", 400, "limit"),
        ("/v1/services?host=10.0.0.0/8", 400, "host"),
        ("/v1/services?after=10.0.0.1", 400, "after"),
        ("/v1/services?host=10.0.0.1&after=10.0.0.2:80", 400, "10.0.0.2:80"),
        ("/v1/benefit?size=1", 400, "size"),
        ("/v1/share?size=1", 400, "size"),
        ("/v1/nothing", 404, "/v1/networks"),
        (&format!("/v1/advice?destination={long}"), 400, "9999"),
    ] {
        let (found, problem) = rig.get(path).await;
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert_eq!((found, problem["status"].as_u64()), (status, Some(status.into())), "{path}: {detail}");
        assert!(detail.contains(word) && detail.len() < 300, "{path}: {detail}");
    }
    assert_eq!(rig.get("/v1/advice?destination=192.0.2.7&bytes=18446744073709551615").await.0, 200);
    assert!(rig.unharmed().await);
    rig.end().await;
}

#[tokio::test]
async fn a_large_body_is_refused_and_harms_nothing() {
    let rig = Rig::new(ApiConfig::default()).await;
    let head = "GET /v1/networks HTTP/1.1\r\nHost: localhost\r\n";
    let mut announced = format!("{head}Content-Length: 1048576\r\n\r\n").into_bytes();
    announced.resize(announced.len() + (1 << 20), b'x');
    let mut chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n100000\r\n").into_bytes();
    chunked.resize(chunked.len() + (1 << 20), b'x');
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    for request in [announced, chunked] {
        let (status, body) = rig.send(request).await;
        assert_eq!(status, 413, "{body}");
        assert!(body.contains("4096 bytes"), "{body}");
    }
    let post = "POST /v1/networks HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";
    assert_eq!(rig.send(post).await.0, 405);
    assert_eq!(rig.send("\x16\x03\x01 this is no HTTP\r\n\r\n").await.0, 400);
    assert!(rig.unharmed().await);
    rig.end().await;
}

#[tokio::test]
async fn silent_clients_and_too_many_of_them_are_let_go() {
    let config = ApiConfig {
        http_connections: NonZeroUsize::new(3).unwrap(),
        request_timeout: Duration::from_millis(300),
        ..ApiConfig::default()
    };
    let rig = Rig::new(config).await;
    let mut silent = Vec::new();
    let requests = ["", "GET /v1/net", "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"];
    for request in requests.iter().cycle().take(60) {
        let mut tcp = TcpStream::connect(rig.http).await.unwrap();
        // One that lost its place already may be closed.
        drop(tcp.write_all(request.as_bytes()).await);
        silent.push(tcp);
        assert_eq!(rig.get("/healthz").await.0, 200, "the next one gets the place of one that says nothing");
    }
    for mut tcp in silent {
        let mut rest = Vec::new();
        drop(tcp.read_to_end(&mut rest).await);
    }
    assert!(rig.unharmed().await);
    rig.end().await;
}

#[tokio::test]
async fn a_request_that_names_no_host_or_several_is_no_request() {
    let rig = Rig::new(ApiConfig::default()).await;
    for (target, hosts) in [
        ("/healthz", "Host: localhost\r\nHost: evil.example\r\n"),
        ("http://evil.example/healthz", "Host: localhost\r\n"),
        ("/healthz", ""),
    ] {
        let (status, body) = rig.send(&format!("GET {target} HTTP/1.1\r\n{hosts}Connection: close\r\n\r\n")).await;
        assert_eq!(status, 400, "{body}");
    }
    let whole = "GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(rig.send(whole).await.0, 200);
    rig.end().await;
}

#[tokio::test]
async fn readiness_names_what_is_missing() {
    let rig = Rig::new(ApiConfig::default()).await;
    let readiness = rig.published.readiness();
    readiness.ready(Part::Engine);
    readiness.ready(Part::Store);
    readiness.not_ready(Part::Capture, "interface mirror0 is down");
    assert_eq!(rig.get("/healthz").await, (200, serde_json::json!({"status": "ok"})));
    let (status, document) = rig.get("/readyz").await;
    let missing = serde_json::json!([{"part": "capture", "why": "interface mirror0 is down"}]);
    assert_eq!((status, &document["ready"], &document["not_ready"]), (503, &false.into(), &missing));
    readiness.ready(Part::Capture);
    assert_eq!(rig.get("/readyz").await, (200, serde_json::json!({"ready": true, "not_ready": []})));
    rig.end().await;
}
#[tokio::test]
async fn the_examples_of_the_page_are_what_is_answered() {
    let rig = Rig::new(ApiConfig::default()).await;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/api.md");
    let page = std::fs::read_to_string(page).unwrap();
    // An example is a line "`GET path`" followed by the answer in a block of JSON.
    let mut examples = 0;
    for example in page.split("\n`GET ").skip(1) {
        let (path, rest) = example.split_once('`').unwrap();
        let Some(block) = rest.strip_prefix("\n\n```json\n") else { continue };
        let json = block.split("```").next().unwrap();
        let expected: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(rig.get(path).await.1, expected, "{path}");
        examples += 1;
    }
    assert_eq!(examples, 7);
    rig.end().await;
}

// `/metrics` against its page in the documentation.

/// Name and type of every metric exposed, the name as it is scraped.
fn exposed(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split_once(' ')).map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// Name and type of every metric in the tables of the page, the agent's apart: `| `name` | type | …`.
fn documented(page: &str) -> BTreeMap<String, String> {
    let rows = page.lines().filter(|line| line.starts_with("| `spand_") && !line.starts_with("| `spand_agent_"));
    rows.map(|row| {
        let mut cells = row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).skip(1);
        (cells.next().unwrap(), cells.next().unwrap())
    })
    .collect()
}

/// Labels of every metric of the page, each with its values where the page lists them: `` `place`: kernel, queue; `x` ``.
fn documented_labels(page: &str) -> BTreeMap<String, BTreeMap<String, Vec<String>>> {
    let rows = page.lines().filter(|line| line.starts_with("| `spand_") && !line.starts_with("| `spand_agent_"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (name, labels) = (cells[1].trim_matches('`'), cells[3]);
        let mut known = BTreeMap::new();
        for label in labels.split("`, `").flat_map(|part| part.split(';')).filter(|part| !part.trim().is_empty()) {
            let (label, values) = label.split_once(':').unwrap_or((label, ""));
            let values = values.split(',').map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
            known.insert(label.trim().trim_matches('`').to_owned(), values.collect());
        }
        (name.to_owned(), known)
    })
    .collect()
}

/// A sample's metric and labels; the parts of a histogram have its name.
fn sample(line: &str) -> (String, Vec<(String, String)>) {
    let (name, rest) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap_or(line), "}"));
    let labels = rest.rsplit_once('}').map_or("", |(labels, _)| labels);
    let labels = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
    let labels = labels.map(|(label, value)| (label.to_owned(), value.trim_end_matches('"').to_owned()));
    let histogram = ["_bucket", "_sum", "_count"].into_iter().find_map(|part| name.strip_suffix(part));
    (histogram.unwrap_or(name).to_owned(), labels.filter(|(label, _)| label != "le").collect())
}

/// A metric of a duration or a size names its unit.
fn has_its_unit(name: &str) -> bool {
    let name = name.strip_suffix("_total").unwrap_or(name);
    let has_unit = ["_seconds", "_bytes", "_segments"].iter().any(|unit| name.ends_with(unit));
    has_unit
        || !["_ms", "_us", "_ns", "_time", "_kb", "_mib", "_duration", "_age", "_lag"]
            .iter()
            .any(|bad| name.ends_with(bad))
}

#[tokio::test]
async fn labels_are_those_of_the_page_with_its_values() {
    let rig = Rig::new(ApiConfig::default()).await;
    let backend = Some(spand_capture::Backend::AfPacket);
    rig.published.set_captures(vec![crate::publisher::CaptureStatus { backend, ..Default::default() }]);
    rig.get("/v1/networks").await;
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/metrics.md");
    let known = documented_labels(&std::fs::read_to_string(page).unwrap());
    let mut checked = 0;
    for line in text.lines().filter(|line| line.starts_with("spand_")) {
        let (name, labels) = sample(line);
        let row = known.get(&name).unwrap_or_else(|| panic!("{name} is not on the page"));
        let names: Vec<&String> = labels.iter().map(|(label, _)| label).collect();
        let mut sorted = names.clone();
        sorted.sort();
        assert_eq!(sorted, row.keys().collect::<Vec<_>>(), "{line}");
        for (label, value) in &labels {
            let values = &row[label];
            assert!(values.is_empty() || values.contains(value), "{line}: {value} is not on the page");
            checked += values.len();
        }
        assert!(has_its_unit(&name), "{name} says no unit");
    }
    assert!(checked > 20, "only {checked} values compared");
    rig.end().await;
}

#[tokio::test]
async fn the_page_lists_exactly_what_is_exposed() {
    let rig = Rig::new(ApiConfig::default()).await;
    let backend = Some(spand_capture::Backend::AfPacket);
    rig.published.set_captures(vec![crate::publisher::CaptureStatus { backend, ..Default::default() }]);
    assert!(rig.unharmed().await);
    let (status, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert_eq!(status, 200);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(exposed(&text), documented(&page));
    rig.end().await;
}

#[tokio::test]
async fn every_count_of_engine_and_interfaces_is_under_its_own_name() {
    let mut counters = spand_core::counters::Counters::default();
    let fields = [
        &mut counters.frames,
        &mut counters.wire_bytes,
        &mut counters.segments,
        &mut counters.connections,
        &mut counters.connections_ended,
        &mut counters.connections_evicted,
        &mut counters.established_evicted,
        &mut counters.connections_midstream,
        &mut counters.connections_one_sided,
        &mut counters.networks_evicted,
        &mut counters.contributions_shared,
        &mut counters.rtts_shared,
        &mut counters.live_shared,
        &mut counters.window_samples,
        &mut counters.lower_bounds,
        &mut counters.rtt_samples,
        &mut counters.loss_events,
        &mut counters.timeouts,
        &mut counters.imminent_starts,
        &mut counters.service_sizes,
        &mut counters.window_options,
        &mut counters.window_option_samples,
        &mut counters.traffic_out_bytes,
        &mut counters.traffic_out_retransmitted_bytes,
        &mut counters.traffic_out_covered_bytes,
        &mut counters.traffic_out_packets,
        &mut counters.traffic_in_bytes,
        &mut counters.traffic_in_retransmitted_bytes,
        &mut counters.traffic_in_packets,
    ];
    (101..).zip(fields).for_each(|(count, field)| *field = count);
    let named = counters.named();
    let rig = Rig::new(ApiConfig::default()).await;
    let engine = EngineStatus {
        counters,
        connections: 130,
        networks: 131,
        networks_changed: 132,
        shed: 0.25,
        ..Default::default()
    };
    rig.published.apply(Batch { engine: Some(engine), ..Batch::new() });
    rig.published.set_captures(vec![crate::publisher::CaptureStatus {
        interface: "tap0".to_owned(),
        received: 201,
        dropped_kernel: 202,
        dropped_interface: 203,
        dropped_queue: 204,
        ring_freezes: 205,
        dropped_backlog: 206,
        interface_rx_dropped: 207,
        interface_rx_missed: 208,
        interface_rx_fifo: 209,
        losses: 210,
        ..Default::default()
    }]);
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let of_engine = named.into_iter().map(|(name, count)| {
        let name = match name {
            "connections" => "connections_seen",
            "traffic_out_covered_bytes" => "traffic_covered_bytes",
            name => name,
        };
        match name.strip_prefix("traffic_out_").or_else(|| name.strip_prefix("traffic_in_")) {
            Some(what) => {
                let direction = if name.starts_with("traffic_out_") { "out" } else { "in" };
                format!("spand_engine_traffic_{what}_total{{direction=\"{direction}\"}} {count}")
            }
            None => format!("spand_engine_{name}_total {count}"),
        }
    });
    let gauges = [("connections", "130"), ("networks", "131"), ("networks_changed", "132"), ("shed_ratio", "0.25")];
    let places = [("kernel", 202), ("interface", 203), ("queue", 204)]
        .map(|(place, count)| format!("packets_dropped_total{{interface=\"tap0\",place=\"{place}\"}} {count}"));
    let of_capture = [
        ("packets", 201),
        ("ring_freezes", 205),
        ("backlog_dropped", 206),
        ("interface_rx_dropped", 207),
        ("interface_rx_missed", 208),
        ("interface_rx_fifo", 209),
        ("losses", 210),
    ];
    let of_capture = of_capture.map(|(name, count)| format!("{name}_total{{interface=\"tap0\"}} {count}"));
    let expected = of_engine
        .chain(gauges.map(|(name, value)| format!("spand_engine_{name} {value}")))
        .chain(places.into_iter().chain(of_capture).map(|line| format!("spand_capture_{line}")));
    for line in expected {
        assert!(text.lines().any(|exposed| exposed == line), "no {line}");
    }
    rig.end().await;
}

#[tokio::test]
async fn no_label_names_a_network_or_an_address() {
    let rig = Rig::new(ApiConfig::default()).await;
    rig.get("/v1/networks/192.0.2.0/24").await;
    rig.get("/v1/advice?destination=192.0.2.7").await;
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let labelled = r#"spand_api_requests_total{api="http",endpoint="network",status="200"} 1"#;
    assert!(text.contains(labelled), "{text}");
    for bad in ["192.0.2", "198.51.100", "2001:db8"] {
        assert!(!text.contains(bad), "{bad} in a metric");
    }
    rig.end().await;
}
