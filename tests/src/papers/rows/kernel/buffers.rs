//! The gateway's estimate of a bottleneck's buffer, against the queue that was set.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use spand_proto::units::BytesPerSecond;

use super::side_by_side;
use crate::accuracy::result::Health;
use crate::advised::ask;
use crate::benefit::stage::prefix;
use crate::campaign::statistics::quantile;
use crate::lab::path::{PathConfig, Queue};
use crate::lab::tap::Tap;
use crate::lab::topology::{MIRROR_DEVICE, NetworkPlan, SERVER_V4, Topology};
use crate::lab::traffic::{Conduct, Plan, Server, Step};
use crate::papers::ns::Figures;
use crate::papers::row::{Judged, Outcomes, Programs, Setting};

/// Mbit/s, round trip in ms, queue in packets.
const PATHS: [(u64, u64, u32); 9] = [
    (2, 20, 10),
    (2, 60, 20),
    (2, 120, 40),
    (5, 20, 20),
    (5, 60, 30),
    (5, 120, 100),
    (10, 20, 50),
    (10, 60, 40),
    (10, 120, 150),
];
/// Setting, and transfers at once.
const SETTINGS: [(&str, u8); 2] = [("single", 1), ("four", 4)];
/// Transfers one after the other where there is one at a time: fewest that an estimate of the buffer rests on.
const ONE_AFTER_THE_OTHER: u8 = 3;
/// How long each lasts: some losses in congestion avoidance.
const TIME: Duration = Duration::from_secs(30);

const MOST_MEDIAN: f64 = 0.15;
const MOST_P90: f64 = 0.4;

pub(super) fn run(setting: &Setting, _seed: u64, programs: &Programs) -> Result<Figures> {
    let at_once: u8 = setting.option("at_once")?;
    let plan = |(n, (mbits, ms, queue)): (usize, &(u64, u64, u32))| {
        let (rate, delay) = (BytesPerSecond(mbits * 125_000), Duration::from_micros(ms * 500));
        let path = PathConfig::bottleneck(rate, delay, Queue::Packets(*queue));
        Ok(NetworkPlan { prefix: prefix(n)?, clients: at_once.max(ONE_AFTER_THE_OTHER), path })
    };
    let lab = Topology::build(&PATHS.iter().enumerate().map(plan).collect::<Result<Vec<_>>>()?)?;
    let folder = tempfile::Builder::new().prefix("spand-papers-").tempdir().context("cannot make a folder")?;
    let capture = folder.path().join("mirror.pcap");
    let tap = Tap::start(&lab.gateway, MIRROR_DEVICE, &capture)?;
    let server = Server::start_with(&lab.server, lab.port, &Conduct::default())?;
    let stream = Plan::new("cubic", vec![Step::Stream(TIME)]);
    side_by_side(PATHS.len(), |network| {
        let transfer = |client: u8| ask(&lab, network, usize::from(client), &stream).map(drop);
        if at_once == 1 {
            return (0..ONE_AFTER_THE_OTHER).try_for_each(transfer);
        }
        side_by_side(usize::from(at_once), |client| transfer(u8::try_from(client)?))
    })?;
    drop(server);
    Health::check_paths(&lab.emulator)?;
    let counts = tap.finish()?;
    ensure!(counts.dropped == 0, "the tap lost {} packets", counts.dropped);
    let networks = replayed(&programs.gateway, &capture)?;
    let mut figures = Figures::new();
    for n in 0..PATHS.len() {
        let name = prefix(n)?.to_string();
        let network = networks.iter().find(|network| network.get("prefix").and_then(Value::as_str) == Some(&name));
        let number = |field| network.and_then(|network| network.get(field)?.as_f64());
        if let Some((bytes, mss)) = number("buffer_bytes").zip(number("mss")) {
            figures.insert(buffer_of(n), bytes / mss);
        }
        figures.extend(number("losses").map(|losses| (format!("path{n}_losses"), losses)));
        figures.extend(number("wc_segments").map(|share| (format!("path{n}_share_segments"), share)));
    }
    Ok(figures)
}

/// The networks as the product's `replay` has them at the end.
fn replayed(gateway: &Path, capture: &Path) -> Result<Vec<Value>> {
    let output = Command::new(gateway)
        .args(["replay", "--format", "json", "--internal", &format!("{SERVER_V4}/32")])
        .arg(capture)
        .output()
        .with_context(|| format!("cannot run {}", gateway.display()))?;
    ensure!(output.status.success(), "replay failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let document: Value = serde_json::from_slice(&output.stdout).context("replay printed no JSON")?;
    document.get("networks").and_then(Value::as_array).cloned().context("replay printed no networks")
}

fn buffer_of(path: usize) -> String {
    format!("path{path}_buffer_segments")
}

pub(super) fn judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    let mut errors = Vec::new();
    let mut without = 0;
    for (setting, _) in SETTINGS {
        let mut own = Vec::new();
        for (n, (mbits, ms, queue)) in PATHS.into_iter().enumerate() {
            let runs = outcomes.by_seed(setting, &format!("path{n}_losses")).len();
            let found: Vec<f64> = outcomes.by_seed(setting, &buffer_of(n)).into_values().collect();
            let queue = f64::from(queue);
            own.extend(found.iter().map(|segments| (segments - queue).abs() / queue));
            without += runs - found.len();
            let words: Vec<String> = found.iter().map(|segments| format!("{segments:.1}")).collect();
            let words = if words.is_empty() { "no estimate".to_owned() } else { words.join(", ") };
            let what = format!("{setting}: {mbits} Mbit/s, {ms} ms: buffer in segments");
            judged.report(what, format!("{queue:.0}"), (runs > 0).then_some(words));
        }
        let median = quantile(own.iter().copied(), 0.5).map(|error| format!("{:.0} % of {}", error * 100.0, own.len()));
        judged.report(format!("{setting}: median error"), "", median);
        errors.extend(own);
    }
    let within = |error: f64, most| (format!("{:.0} %", error * 100.0), error <= most);
    judged.target(
        "median error",
        "15 % or less",
        quantile(errors.iter().copied(), 0.5).map(|error| within(error, MOST_MEDIAN)),
    );
    judged.target(
        "90th percentile",
        "40 % or less",
        quantile(errors.iter().copied(), 0.9).map(|error| within(error, MOST_P90)),
    );
    let runs = without + errors.len();
    judged.target("paths without an estimate", "0", (runs > 0).then(|| (format!("{without} of {runs}"), without == 0)));
    judged
}
