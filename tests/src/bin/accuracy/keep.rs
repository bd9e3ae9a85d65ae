//! Captures and accounts of cells on disk: kept beside the results, so that a better engine can be held against them.

use std::fs::File;
use std::io::{BufReader, BufWriter, copy};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use spand_tests::accuracy::cell::Recording;
use spand_tests::accuracy::compare::compare;
use spand_tests::accuracy::factors::Cell;
use spand_tests::accuracy::plan::Plan;
use spand_tests::accuracy::result::{CellResult, Health};
use spand_tests::lab::truth::Row;

/// What is kept next to the two files.
#[derive(Debug, Deserialize, Serialize)]
struct About {
    cell: Cell,
    network: ipnet::IpNet,
    health: Health,
}

/// Keeps a cell's recording in a folder of its own.
pub(crate) fn keep(root: &Path, cell: &Cell, recording: &Recording, capture: &Path) -> Result<()> {
    let folder = root.join(format!("cell-{:03}", cell.number));
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut packed = GzEncoder::new(create(&folder.join("capture.pcap.gz"))?, Compression::fast());
    let mut plain = BufReader::new(File::open(capture).with_context(|| format!("cannot read {}", capture.display()))?);
    copy(&mut plain, &mut packed).context("cannot pack the capture")?;
    packed.finish().context("cannot pack the capture")?;
    let mut csv = csv::Writer::from_writer(GzEncoder::new(create(&folder.join("truth.csv.gz"))?, Compression::fast()));
    for row in &recording.rows {
        csv.serialize(row)?;
    }
    csv.into_inner().context("cannot pack the kernel's account")?.finish().context("cannot pack the account")?;
    let about = About { cell: cell.clone(), network: recording.network, health: recording.health };
    std::fs::write(folder.join("cell.json"), serde_json::to_vec_pretty(&about)?).context("cannot write cell.json")
}

/// Compares everything kept under `root` again, `lanes` cells at a time, and gives the results; every comparison goes into a file a cell
/// under `rows`.
pub(crate) fn replay_all(
    root: &Path,
    plan: &Plan,
    out: &Path,
    rows: Option<&Path>,
    lanes: usize,
) -> Result<Vec<CellResult>> {
    let mut folders: Vec<_> = std::fs::read_dir(root)
        .with_context(|| format!("cannot read {}", root.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|folder| folder.join("cell.json").is_file())
        .collect();
    folders.sort();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || {
            let mut results = Vec::new();
            while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                results.push(replay(folder, plan, out, rows)?);
            }
            Ok(results)
        };
        let workers: Vec<_> = (0..lanes).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| worker.join().map_err(|_| anyhow!("a replay panicked"))?);
        Ok(results.collect::<Result<Vec<Vec<CellResult>>>>()?.concat())
    })
}

fn replay(folder: &Path, plan: &Plan, out: &Path, compared: Option<&Path>) -> Result<CellResult> {
    let about: About = serde_json::from_slice(&std::fs::read(folder.join("cell.json"))?)
        .with_context(|| format!("{} is not what was kept", folder.display()))?;
    let file = folder.join("truth.csv.gz");
    let packed = File::open(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut csv = csv::Reader::from_reader(GzDecoder::new(BufReader::new(packed)));
    let rows: Vec<Row> =
        csv.deserialize().collect::<Result<_, _>>().with_context(|| format!("{} is no account", file.display()))?;
    let recording = Recording { rows, health: about.health, network: about.network };
    let mut result = compare(&about.cell, &recording, &folder.join("capture.pcap.gz"))?;
    // Under its number there may be a cell of another plan, whose result is not to be lost.
    if plan.cells.get(about.cell.number as usize) == Some(&about.cell) {
        let before = super::lanes::result_of(out, &about.cell);
        (result.seconds, result.tries) = before.map_or((0.0, 1), |before| (before.seconds, before.tries));
        super::lanes::write_result(out, &about.cell, &result)?;
    }
    if let Some(folder) = compared {
        write_rows(folder, &about.cell, &result)?;
    }
    println!("{}", super::line(&about.cell, &result));
    result.rows = Vec::new();
    Ok(result)
}

fn write_rows(folder: &Path, cell: &Cell, result: &CellResult) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut csv = csv::Writer::from_writer(create(&folder.join(format!("cell-{:03}.csv", cell.number)))?);
    result.rows.iter().try_for_each(|row| csv.serialize(row))?;
    csv.flush().with_context(|| format!("cannot write under {}", folder.display()))
}

fn create(file: &Path) -> Result<BufWriter<File>> {
    Ok(BufWriter::new(File::create(file).with_context(|| format!("cannot write {}", file.display()))?))
}
