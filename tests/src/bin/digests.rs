//! The fingerprints of what the engine makes of each input (`tests/digests.tsv`): compares, records, shows.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use spand_tests::digests::{Input, Run, digest, file, inputs, lines, recorded};
use spand_tests::ending::{arguments, exit_code};
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
    let before = if record { BTreeMap::new() } else { recorded(&place)? };
    let lines = lines(&inputs, &|done| eprint!("\r{done} of {}", inputs.len()))?;
    eprintln!();
    let mut differ = 0;
    for (name, now) in &lines {
        match before.get(name) {
            Some(before) if before != now => {
                differ += 1;
                println!("{name}: {now} and not {before}");
            }
            None if !record => println!("{name}: not recorded"),
            _ => {}
        }
    }
    if record {
        let head = ["name", "input"].into_iter().chain(Run::VARIANTS.iter().map(|run| run.name()));
        let text: Vec<_> = lines.iter().map(|(name, prints)| format!("{name}\t{prints}\n")).collect();
        std::fs::write(&place, head.collect::<Vec<_>>().join("\t") + "\n" + &text.concat())
            .with_context(|| format!("{} cannot be written", place.display()))?;
    }
    ensure!(differ == 0, "of {} inputs {differ} differ", inputs.len());
    println!("{} inputs {}", inputs.len(), if record { "recorded" } else { "as recorded" });
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
