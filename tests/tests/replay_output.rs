//! What `spand-gateway replay` prints for every capture of the corpus at once: each form can be read, all forms say the
//! same, the rows add up to the counters, two runs give the same bytes, and no run needs much memory.
//!
//! A program of its own: it starts itself as the replay, whose memory is then its own and no other test's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

use nix::sys::resource::{UsageWho, getrusage};
use serde_json::Value;
use spand_gateway::cli;
use spand_needs::needs_corpus;

/// Set for the child, which is then the gateway.
const CHILD: &str = "SPAND_REPLAY_OUTPUT_CHILD";
/// Resident memory that no replay may need.
const MEMORY_MOST_MIB: i64 = 300;
/// Captures of the corpus.
const FILES: usize = 244;

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        return cli::main();
    }
    let Some(corpus) = needs_corpus(".") else { return ExitCode::SUCCESS };
    let captures = corpus.join("captures-real/captures");
    let listed = std::fs::read_dir(&captures).expect("the folder of captures");
    let mut files: Vec<OsString> = listed.map(|entry| entry.expect("a capture").path().into_os_string()).collect();
    files.sort();
    assert_eq!(files.len(), FILES, "captures in {}", captures.display());

    // Once an hour: the captures lie decades apart.
    let json = replay(&["--flows", "--format", "json", "--every", "1h"], &files);
    assert!(json == replay(&["--flows", "--format", "json", "--every", "1h"], &files), "two runs, two outputs");
    let object: Value = serde_json::from_str(&json).expect("JSON");
    let states = rows(&object, "states");
    assert!((10..2_000).contains(&states.len()), "{} states", states.len());
    let in_states: Vec<Row> = states.iter().flat_map(|state| rows(&Value::Object(state.clone()), "networks")).collect();
    let flows = rows(&object, "flows");
    assert!(in_states.len() > 10 && flows.len() > 1_000, "{} and {}", in_states.len(), flows.len());

    // Without --flows a connection that has closed is over: what still comes of it is another one.
    let plain = replay(&["--format", "json", "--every", "1h"], &files);
    let plain: Value = serde_json::from_str(&plain).expect("JSON");
    let states = rows(&plain, "states");
    let in_states: Vec<Row> = states.iter().flat_map(|state| rows(&Value::Object(state.clone()), "networks")).collect();
    same_as_csv(&in_states, &replay(&["--format", "csv", "--every", "1h"], &files));
    same_as_csv(&rows(&plain, "networks"), &replay(&["--format", "csv"], &files));
    same_as_csv(&flows, &replay(&["--format", "csv", "--flows"], &files));
    same_as_table(&in_states, &replay(&["--every", "1h", "--wide", "--sort", "none"], &files));
    fits(&replay(&["--flows"], &files));
    reasons_add_up(&object);
    minima_decide(&captures.join("redloss__RED1000p.pcap").into_os_string());
    flows_add_up(&object, &flows);

    let most_mib = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the usage of the children").max_rss() / 1_024;
    assert!(most_mib < MEMORY_MOST_MIB, "{most_mib} MiB resident at most");
    println!(
        "replay_output: {FILES} captures, {} states, {} directions, at most {most_mib} MiB",
        states.len(),
        flows.len()
    );
    ExitCode::SUCCESS
}

/// Replays all files in a child, without a fault.
fn replay(arguments: &[&str], files: &[OsString]) -> String {
    let exe = std::env::current_exe().expect("this program");
    let mut command = Command::new(exe);
    let output = command.env(CHILD, "1").arg("replay").args(arguments).args(files).output().expect("a child");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
    assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

type Row = serde_json::Map<String, Value>;

fn rows(object: &Value, name: &str) -> Vec<Row> {
    let array = object[name].as_array().unwrap_or_else(|| panic!("no array {name}"));
    array.iter().map(|row| row.as_object().expect("an object").clone()).collect()
}

/// Fields that hold more than one value, or a sentence, which a table of one row a network has no column for.
const NESTED: [&str; 3] = ["opening", "compared", "no_estimate_message"];

/// Every other field of every row is the same in csv; what is not known is empty there.
fn same_as_csv(json: &[Row], csv: &str) {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().expect("a header").clone();
    let mut count = 0;
    for (record, row) in reader.records().zip(json) {
        let record = record.expect("as many fields as the header");
        let cells = row.keys().filter(|name| !NESTED.contains(&name.as_str())).count();
        assert_eq!(header.len(), cells, "columns");
        for (name, field) in header.iter().zip(&record) {
            let same = match &row[name] {
                Value::Null => field.is_empty(),
                Value::String(text) => text == field,
                Value::Bool(truth) => field == truth.to_string(),
                Value::Number(number) => field.parse().ok() == number.as_f64(),
                _ => false,
            };
            assert!(same, "{name}: {} in JSON, `{field}` in csv: {record:?}", row[name]);
        }
        count += 1;
    }
    assert_eq!(csv.lines().count(), count + 1, "lines of csv for {} rows of JSON", json.len());
    assert_eq!(count, json.len());
}

/// The tables hold the same networks in the same order, with the same share, times and samples.
fn same_as_table(json: &[Row], table: &str) {
    let cells =
        |line: &'_ str| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect();
    let networks = table.lines().filter(|line| line.split(' ').next().is_some_and(|cell| cell.contains('/')));
    let in_table: Vec<Vec<String>> = networks.map(cells).collect();
    assert_eq!(in_table.len(), json.len(), "networks in the tables");
    let shown = |value: &Value| match value {
        Value::Null => "–".to_owned(),
        Value::Number(number) if number.is_f64() => format!("{:.3}", number.as_f64().expect("a number")),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    // Bytes and rates between the two are rounded for people.
    let columns = ["wc_segments", "wc_bytes", "mss", "rtt_min_ms", "rtt_mean_ms", "samples", "lower_bounds"];
    for (cells, row) in in_table.iter().zip(json) {
        let mut expected: Vec<_> = columns.iter().map(|column| shown(&row[*column])).collect();
        if row["is_lower_bound"] == true {
            expected[0].insert(0, '≥');
        }
        assert_eq!([&cells[0], &cells[1]], [&shown(&row["prefix"]), "–"], "no names are configured");
        assert_eq!(cells[5..][..columns.len()], expected, "{cells:?}");
    }
}

/// Without a terminal no line is longer than it says, whatever the captures hold.
fn fits(table: &str) {
    for line in table.lines() {
        assert!(line.chars().count() <= 120, "{} characters: {line}", line.chars().count());
    }
}

/// A single connection gives an estimate where that is asked for.
fn minima_decide(capture: &OsString) {
    for (minima, expected) in [(&[][..], (0, 1)), (&["--min-samples", "1", "--min-connections", "1"], (1, 0))] {
        let json = replay(&[&["--format", "json"], minima].concat(), std::slice::from_ref(capture));
        let object: Value = serde_json::from_str(&json).expect("JSON");
        let count = |name: &str| object["summary"][name].as_u64().expect("a count");
        let found = (count("networks_with_estimate"), count("networks_without_estimate"));
        assert_eq!(found, expected, "{minima:?}");
    }
}

/// Each network without an estimate is counted under one reason; those that the window holds are all counted.
fn reasons_add_up(object: &Value) {
    let summary = &object["summary"];
    let count = |name: &str| summary[name].as_u64().expect("a count");
    let reasons: u64 =
        summary["no_estimate_by_reason"].as_object().expect("reasons").values().filter_map(Value::as_u64).sum();
    assert_eq!(reasons, count("networks_without_estimate"), "{summary}");
    assert!(reasons > 100, "{summary}");
    let networks = rows(object, "networks");
    let with = networks.iter().filter(|row| !row["wc_bytes"].is_null()).count() as u64;
    assert_eq!(with, count("networks_with_estimate"), "{summary}");
    assert!(networks.len() as u64 - with <= count("networks_without_estimate"), "{summary}");
    let (in_flows, largest) = (rows(object, "flows"), &summary["largest_senders"][0]);
    let sent = in_flows.iter().filter(|row| row["src"] == largest["src"]);
    let bytes: u64 = sent.filter_map(|row| row["unique_bytes"].as_u64()).sum();
    assert_eq!(bytes, largest["unique_bytes"].as_u64().expect("bytes"), "{largest}");
}

/// What the rows count is what the engine counted.
fn flows_add_up(object: &Value, flows: &[Row]) {
    let sum = |column: &str| flows.iter().map(|row| row[column].as_u64().expect("a count")).sum::<u64>();
    let counted = |name: &str| object["counters"][name].as_u64().expect("a counter");
    // Directions without data have no row, but packets, and their SYN may time out.
    for name in ["loss_events", "timeouts"] {
        let (in_rows, all) = (sum(name), counted(name));
        assert!(in_rows <= all && 10 * in_rows > 9 * all, "{name}: {in_rows} in rows, {all} counted");
    }
    let (in_rows, segments) = (sum("pkts") + sum("duplicate_pkts"), counted("segments"));
    assert!(in_rows <= segments && in_rows > segments / 2, "{in_rows} packets in rows of {segments} segments");
    assert!(sum("payload_bytes") <= counted("wire_bytes"));
    assert!(sum("unique_bytes") + sum("retx_bytes") <= sum("payload_bytes"));
    assert!(sum("data_pkts") <= sum("pkts") && sum("retx_pkts") <= sum("data_pkts"));

    let samples = flows.iter().filter_map(|row| row["window_samples"].as_str()).flat_map(|text| text.split(';'));
    let mut reasons = BTreeMap::<&str, u64>::new();
    for sample in samples.filter(|sample| !sample.is_empty()) {
        *reasons.entry(sample.rsplit(':').next().unwrap_or_default()).or_default() += 1;
    }
    let of = |names: &[&str]| names.iter().filter_map(|name| reasons.get(name)).sum::<u64>();
    assert_eq!(of(&["loss", "first_flight", "ecn", "end", "rate"]), counted("window_samples"), "{reasons:?}");
    let bounds = ["carried", "end_slow_start", "end_app_limited", "end_receiver_limited"];
    assert_eq!(of(&bounds), counted("lower_bounds"), "{reasons:?}");

    let packets: u64 = rows(object, "files").iter().map(|file| file["packets"].as_u64().expect("a count")).sum();
    assert_eq!(packets, counted("frames"), "packets of the files");
    let connections: std::collections::BTreeSet<_> = flows.iter().map(|row| row["connection"].as_u64()).collect();
    assert!(connections.len() as u64 <= counted("connections"));
}
