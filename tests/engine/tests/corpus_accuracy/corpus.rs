//! Where the captures lie, and where the list of differences goes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use spand_capture::{Next, PacketSource, open_file};
use spand_core::config::{EngineConfig, FlowReports, Limits, Tunnels};
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::flow::report::DirectionReport;
use spand_core::wire::Frame;
use spand_core::wire::segment::Endpoint;
use spand_needs::needs_corpus;
use spand_proto::units::Timestamp;

use crate::compare::Difference;

/// A capture file.
pub(crate) struct CaptureFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// The captures with reference numbers.
pub(crate) struct RealCorpus {
    pub(crate) files: Vec<CaptureFile>,
    pub(crate) reference: Reference,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The real captures, where the corpus is there.
pub(crate) fn real() -> Option<RealCorpus> {
    let folder = needs_corpus("captures-real")?;
    let reference = Reference::read(&folder.join("reference/ref_conn.tsv"));
    Some(RealCorpus { files: files_in(&folder.join("captures")), reference })
}

/// The damaged captures, where the corpus is there.
pub(crate) fn malformed() -> Option<Vec<CaptureFile>> {
    needs_corpus("captures-malformed").map(|folder| files_in(&folder.join("captures")))
}

fn files_in(folder: &Path) -> Vec<CaptureFile> {
    let mut files: Vec<CaptureFile> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| CaptureFile { name: path.file_name().unwrap().to_string_lossy().into_owned(), path })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

/// Writes the list of differences beside the build; returns where.
pub(crate) fn write_differences(differences: &[Difference]) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    fs::create_dir_all(&target).unwrap();
    let path = target.join("corpus-accuracy.tsv");
    let mut text = String::from("file\tsrc\tsport\tdst\tdport\tmetric\tours\ttheirs\tclass\n");
    for difference in differences {
        text.push_str(&difference.line());
        text.push('\n');
    }
    fs::write(&path, text).unwrap();
    path
}

/// The largest resident set of this process so far (`VmHWM`).
pub(crate) fn peak_memory_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1_024
}

// The reference numbers: one row per direction, by tshark, tcptrace and an interval count.

/// One direction of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) source: Endpoint,
    pub(crate) destination: Endpoint,
    cells: BTreeMap<String, String>,
}

/// Rows by file, in the order of connections.
pub(crate) struct Reference(BTreeMap<String, Vec<Row>>);

impl Reference {
    /// Reads `ref_conn.tsv`.
    pub(crate) fn read(path: &Path) -> Self {
        let mut reader = csv::ReaderBuilder::new().delimiter(b'\t').from_path(path).unwrap();
        let header = reader.headers().unwrap().clone();
        let mut files: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        for record in reader.records() {
            let record = record.unwrap();
            let cells: BTreeMap<String, String> =
                header.iter().zip(&record).map(|(name, cell)| (name.to_owned(), cell.to_owned())).collect();
            let endpoint = |address: &str, port: &str| Endpoint {
                address: cells[address].parse().unwrap(),
                port: cells[port].parse().unwrap(),
            };
            let row = Row { source: endpoint("src", "sport"), destination: endpoint("dst", "dport"), cells };
            files.entry(row.cells["file"].clone()).or_default().push(row);
        }
        Self(files)
    }
}

/// The directions of a file that carried packets.
pub(crate) fn rows_of(reference: &Reference, file: &str) -> Vec<Row> {
    let rows = reference.0.get(file).map(Vec::as_slice).unwrap_or_default();
    rows.iter().filter(|row| row.count("pkts").is_some_and(|packets| packets > 0)).cloned().collect()
}

impl Row {
    /// A whole number; `None` where the tool gave none.
    pub(crate) fn count(&self, column: &str) -> Option<u64> {
        self.cells[column].parse().ok()
    }

    /// A number of milliseconds.
    pub(crate) fn millis(&self, column: &str) -> Option<f64> {
        self.cells[column].parse().ok()
    }

    /// What the interval count calls repeated: payload, or a bare SYN or FIN.
    pub(crate) fn repeated_packets(&self) -> Option<u64> {
        Some(self.count("cov_retx_pkts")? + self.count("cov_synfin_retx")?)
    }
}

// One capture through the file reader and the engine.

/// What a capture gave.
pub(crate) struct Outcome {
    pub(crate) segments: u64,
    /// Directions in order of their first packet.
    pub(crate) reports: Vec<DirectionReport>,
}

/// Replays a file; damage ends it without an error, as long as something was read.
pub(crate) fn directions(path: &Path) -> Result<Outcome, String> {
    let mut source = open_file(path).map_err(|error| error.to_string())?;
    let mut engine = Engine::new(EngineConfig {
        flow_reports: FlowReports::Full,
        limits: Limits::for_replay(),
        tunnels: Tunnels::ALL,
        ..EngineConfig::default()
    });
    let mut reports = Vec::new();
    let mut now = Timestamp(0);
    loop {
        match source.next_packet() {
            Ok(Next::Packet(packet)) => {
                now = packet.timestamp;
                engine.handle_frame(
                    now,
                    &Frame { link_type: packet.link_type.0, wire_len: packet.wire_len, input: 0, data: packet.data },
                );
            }
            Ok(Next::Idle) => {}
            Ok(Next::End) | Err(_) => break,
        }
        collect(&mut engine, &mut reports);
    }
    engine.finish(now);
    collect(&mut engine, &mut reports);
    reports.sort_by_key(|report| report.details.as_ref().map(|details| details.first_frame));
    Ok(Outcome { segments: engine.counters().segments, reports })
}

fn collect(engine: &mut Engine, reports: &mut Vec<DirectionReport>) {
    while let Some(event) = engine.poll_event() {
        if let Event::DirectionEnded(report) = event {
            reports.push(*report);
        }
    }
}
