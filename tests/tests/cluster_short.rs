//! The short form of `make cluster`: what several gateways and real servers must get right, however busy the machine is.
//!
//! A program of its own: started under the name of one of the product's programs it is that program. Needs root and a nats-server.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use spand_needs::{Need, needs};
use spand_tests::cluster::cases::{CASES, Programs, Size, Verdict};
use spand_tests::cluster::program;
use spand_tests::product::standing_in::{link_programs, stand_in_or};

/// Those of which the short form shows most for its time.
const CHOSEN: [&str; 3] = ["convergence", "agents", "away"];

fn main() -> ExitCode {
    stand_in_or(test)
}

fn test() -> Result<()> {
    if !needs(Need::Root) || program()?.is_none() {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    link_programs(folder.path())?;
    let programs = Programs { gateway: folder.path().join("spand-gateway"), own: PathBuf::new() };
    let mut missed = Vec::new();
    for name in CHOSEN {
        let (_, about, case) = CASES.iter().find(|(case, ..)| *case == name).context("a case of this name")?;
        println!("{name}: {about}");
        let begun = Instant::now();
        let rows = case(&programs, Size::Quick).with_context(|| name)?;
        ensure!(!rows.is_empty(), "{name} shows nothing");
        for row in rows {
            println!("{row}");
            if row.verdict == Verdict::Short {
                missed.push(row.to_string());
            }
        }
        println!("{name}: {:.0} s", begun.elapsed().as_secs_f64());
    }
    ensure!(missed.is_empty(), "not as it should be:\n{}", missed.join("\n"));
    println!("cluster_short: passed");
    Ok(())
}
