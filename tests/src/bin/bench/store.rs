//! How far the store is behind at a given rate of changes.
//!
//! Hands changes to the gateway's own writer ten times a second, as the engine's thread does, and watches the age of the
//! oldest change that is not on the disk. Ends with 1 when that passes the target.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use spand_gateway::store::{SledStore, StoreWriter};
use spand_tests::networks::changes;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Networks that change
    #[arg(long, default_value_t = 100_000)]
    networks: u32,
    /// Changes a second
    #[arg(long, default_value_t = 20_000)]
    changes: u32,
    /// Seconds measured
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Folder in which the store is made; by default one that goes afterwards
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Target of the lag in seconds
    #[arg(long, default_value_t = 2.0)]
    target: f64,
}

/// Hand-overs a second.
const TICKS: u32 = 10;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let temporary = tempfile::tempdir().context("a folder")?;
    let path = arguments.directory.clone().unwrap_or_else(|| temporary.path().to_owned()).join("estimates");
    let opened = SledStore::open(&path)?;
    let writer = StoreWriter::start(opened.store, Duration::from_secs(1)).context("a thread")?;
    let (mut worst_lag, mut worst_submit) = (Duration::ZERO, Duration::ZERO);
    let started = Instant::now();
    for tick in 0..arguments.seconds * TICKS {
        let due = Duration::from_secs(1) * tick / TICKS;
        let changed = changes(1, tick.into(), arguments.networks, arguments.changes / TICKS);
        while started.elapsed() < due {
            worst_lag = worst_lag.max(writer.measures().lag());
            thread::sleep(Duration::from_millis(2));
        }
        let handed_over = Instant::now();
        writer.submit(changed);
        worst_submit = worst_submit.max(handed_over.elapsed());
    }
    let measures = writer.measures().clone();
    let ended = Instant::now();
    writer.stop()?;
    println!(
        "{} changes/s of {} networks for {} s: {} written",
        arguments.changes,
        arguments.networks,
        arguments.seconds,
        measures.saved.get()
    );
    println!("largest lag {:.2} s, last write {:.2} s", worst_lag.as_secs_f64(), ended.elapsed().as_secs_f64());
    println!("largest hand-over {:.2} ms", worst_submit.as_secs_f64() * 1e3);
    println!("on disk {:.1} MiB", size(&path)? as f64 / f64::from(1 << 20));
    let opening = Instant::now();
    let records = SledStore::open(&path)?.contents.records.len();
    println!("opened with {records} networks in {:.2} s", opening.elapsed().as_secs_f64());
    let met = worst_lag.as_secs_f64() <= arguments.target;
    println!("target: never more than {} s behind: {}", arguments.target, if met { "met" } else { "MISSED" });
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Bytes of all files below a folder.
fn size(path: &PathBuf) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        bytes += if entry.file_type()?.is_dir() { size(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}
