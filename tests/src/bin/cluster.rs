//! Several gateways that share (`make cluster`): what cells cost, how fast estimates move, and what is left when something fails.
//!
//! Started under the name of one of the product's programs it is that program, so that nothing has to be built before.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use spand_tests::cluster::cases::{CASES, Programs, Size, Verdict};
use spand_tests::cluster::made::MadeCells;
use spand_tests::cluster::required_program;
use spand_tests::cluster::traffic::run_gateway;
use spand_tests::ending::{arguments, exit_code};
use spand_tests::product::standing_in::{link_programs, stand_in};

#[derive(Debug, Parser)]
#[command(about = "Tries several gateways that share over NATS (needs root)")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Small: what must be right is, and rates and times are not judged
    #[arg(long)]
    quick: bool,
    /// Cases by name; all without it
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Names the cases and ends
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A gateway to which made-up gateways send cells, as many a second as the last line of standard input says
    #[command(hide = true)]
    Load {
        #[arg(long)]
        config: PathBuf,
        #[arg(long)]
        networks: u32,
        #[arg(long, value_delimiter = ',', default_value = "2,3,4")]
        gateways: Vec<u16>,
    },
}

fn main() -> ExitCode {
    stand_in().unwrap_or_else(|| exit_code(run(&arguments())))
}

/// 0: every target that was judged was met; 1: one was not.
fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(Command::Load { config, networks, gateways }) = &arguments.command {
        run_gateway(config, MadeCells::new(gateways.clone(), *networks))?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.list {
        for (name, about, _) in CASES {
            println!("{name:12} {about}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = arguments.only.iter().find(|only| !CASES.iter().any(|(name, ..)| name == only)) {
        bail!("there is no case `{unknown}`: --list names them");
    }
    // Its load stands in for servers; a case that was not run must not look as if it had passed.
    if arguments.only.iter().any(|only| only != "cells") || arguments.only.is_empty() {
        required_program()?;
    }
    let links = tempfile::tempdir()?;
    link_programs(links.path())?;
    let own = std::env::current_exe().context("cannot find this program")?;
    let programs = Programs { gateway: links.path().join("spand-gateway"), own };
    let size = if arguments.quick { Size::Quick } else { Size::Full };
    let (mut short, mut failed) = (0, 0);
    for (name, about, case) in CASES {
        if !arguments.only.is_empty() && !arguments.only.iter().any(|only| only == name) {
            continue;
        }
        let begun = Instant::now();
        println!("\n{name}: {about}");
        match case(&programs, size) {
            Ok(rows) => {
                for row in rows {
                    short += usize::from(row.verdict == Verdict::Short);
                    println!("{row}");
                }
            }
            Err(error) => {
                failed += 1;
                println!("FAILED: {error:#}");
            }
        }
        println!("{name}: {:.0} s", begun.elapsed().as_secs_f64());
    }
    println!("\n{short} short, {failed} failed");
    Ok(ExitCode::from(u8::from(short + failed > 0)))
}
