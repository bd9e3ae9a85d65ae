//! `/metrics` against its page in the documentation.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// Name and type of every metric exposed, the name as it is scraped.
fn exposed(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            (format!("{name}{suffix}"), kind.to_owned())
        })
        .collect()
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

#[tokio::test]
async fn the_page_lists_exactly_what_is_exposed() {
    let rig = Rig::new(ApiConfig::default()).await;
    let backend = Some(spand_capture::Backend::AfPacket);
    rig.published.set_captures(vec![crate::publisher::CaptureStatus { backend, ..Default::default() }]);
    assert!(rig.unharmed().await);
    let (status, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n").await;
    assert_eq!(status, 200);
    assert!(text.ends_with("# EOF\n"));
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(exposed(&text), documented(&page));
    rig.end().await;
}

#[tokio::test]
async fn no_label_names_a_network_or_an_address() {
    let rig = Rig::new(ApiConfig::default()).await;
    rig.get("/v1/networks/192.0.2.0/24").await;
    rig.get("/v1/advice?destination=192.0.2.7").await;
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n").await;
    let labelled = r#"spand_api_requests_total{api="http",endpoint="network",status="200"} 1"#;
    assert!(text.contains(labelled), "{text}");
    for bad in ["192.0.2", "198.51.100", "2001:db8"] {
        assert!(!text.contains(bad), "{bad} in a metric");
    }
    rig.end().await;
}
