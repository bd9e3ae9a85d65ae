//! The table of shares (`tests/shares.tsv`): compares, records, shows.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use spand_tests::ending::{arguments, exit_code, progress};
use spand_tests::shares::{Table, differences, file, inputs, record, recorded, rows, write};

#[derive(Debug, Parser)]
#[command(about = "Compares the shares of every capture with those that were recorded, and with the kernel's truth")]
struct Arguments {
    /// Record in place of comparing
    #[arg(long)]
    record: bool,
    /// Only captures whose name holds this
    #[arg(long, default_value = "")]
    only: String,
    /// Print the rows, too
    #[arg(long)]
    show: bool,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<()> {
    let Arguments { record: records, only, show } = arguments();
    let mut inputs = inputs()?;
    inputs.retain(|input| input.name.contains(&only));
    ensure!(!inputs.is_empty(), "no capture has {only} in its name");
    let mut table = if records && !file().exists() { Table::new() } else { recorded(&file())? };
    let rows = rows(&inputs, &|done| progress(&format!("{done} of {}", inputs.len())))?;
    if show {
        let mut out = csv::WriterBuilder::new().delimiter(b'\t').from_writer(std::io::stdout());
        rows.iter().try_for_each(|row| out.serialize(row))?;
        out.flush()?;
    }
    let differences = differences(&rows, &table);
    for difference in &differences {
        println!("{difference}");
    }
    if records {
        let looked_at = rows.len();
        record(&mut table, rows);
        write(&file(), &table)?;
        println!("{looked_at} rows recorded, {} left as they were", table.len() - looked_at);
        return Ok(());
    }
    ensure!(differences.is_empty(), "{} differences from what was recorded", differences.len());
    println!("{} rows of {} captures as recorded", rows.len(), inputs.len());
    Ok(())
}
