//! The fingerprints of what the engine makes of each input (`tests/engine/digests.tsv`): compares, records, shows.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use spand_engine_tests::digests::{Input, Run, digest, file, head, inputs, lines, recorded, share_of};
use spand_engine_tests::ending::{arguments, exit_code};
use strum::VariantArray;

#[derive(Debug, Parser)]
#[command(about = "Compares what the engine makes of every input with what it made of it when that was recorded")]
struct Arguments {
    /// Record in place of comparing
    #[arg(long)]
    record: bool,
    /// Only inputs whose name holds this
    #[arg(long, default_value = "")]
    only: String,
    /// The captures of this folder, with what was recorded of them in `digests.tsv` there
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Write all that the engine makes of one input, a run a file, into this folder: what two builds write can be compared line by line
    #[arg(long, requires = "only")]
    show: Option<PathBuf>,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<()> {
    let Arguments { record, only, folder, show } = arguments();
    let place = folder.as_ref().map_or_else(file, |folder| folder.join("digests.tsv"));
    let mut inputs = match &folder {
        Some(folder) => Input::captures(folder)?,
        None => inputs()?,
    };
    inputs.retain(|(name, _)| name.contains(&only));
    ensure!(!inputs.is_empty(), "no input has {only} in its name");
    if let Some(show) = show {
        return write_out(&inputs, &show);
    }
    let mut rows = if record && !place.exists() { BTreeMap::new() } else { recorded(&place)? };
    let lines = lines(&inputs, &|done| eprint!("\r{done} of {}", inputs.len()))?;
    eprintln!();
    let (mut differ, mut moved) = (0, Vec::new());
    for (name, now) in &lines {
        let before = rows.insert(name.clone(), now.clone());
        if before.as_ref() == Some(now) {
            continue;
        }
        differ += 1;
        println!("{name}: {now} and not {}", before.as_deref().unwrap_or("recorded yet"));
        if let Some((before, now)) = before.as_deref().and_then(share_of).zip(share_of(now)) {
            moved.push((100.0 * (now / before - 1.0), name));
        }
    }
    moved.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    moved.retain(|(percent, _)| percent.abs() >= 0.1);
    println!("{differ} of {} inputs differ; the median share moved by 0.1 % and more in {}", lines.len(), moved.len());
    for (percent, name) in moved.iter().take(10) {
        println!("    {percent:+.1} % {name}");
    }
    // Those of sets that are not here, or were not asked for, stay as they are.
    let others = rows.len() - lines.len();
    if record {
        let text: Vec<_> = rows.iter().map(|(name, columns)| format!("{name}\t{columns}\n")).collect();
        std::fs::write(&place, head().join("\t") + "\n" + &text.concat())
            .with_context(|| format!("{} cannot be written", place.display()))?;
        println!("{} recorded, {others} left as they were", lines.len());
        return Ok(());
    }
    ensure!(differ == 0, "of {} inputs {differ} differ", lines.len());
    println!("{} inputs as recorded, {others} recorded ones not looked at", lines.len());
    Ok(())
}

fn write_out(inputs: &[(String, Input)], show: &std::path::Path) -> Result<()> {
    let (name, input) = inputs.first().context("no input")?;
    ensure!(inputs.len() == 1, "{} inputs have that in their name, {name} first", inputs.len());
    std::fs::create_dir_all(show)?;
    let path = input.file(show)?;
    for run in Run::VARIANTS {
        let mut out = std::io::BufWriter::new(std::fs::File::create(show.join(run.name()))?);
        digest(&path, *run, Some(&mut out))?;
        out.flush()?;
    }
    Ok(())
}
