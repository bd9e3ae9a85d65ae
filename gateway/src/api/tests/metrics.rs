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
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
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
    let (_, text) = rig.send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let labelled = r#"spand_api_requests_total{api="http",endpoint="network",status="200"} 1"#;
    assert!(text.contains(labelled), "{text}");
    for bad in ["192.0.2", "198.51.100", "2001:db8"] {
        assert!(!text.contains(bad), "{bad} in a metric");
    }
    rig.end().await;
}
