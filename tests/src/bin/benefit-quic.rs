//! What advice does to QUIC (`make benefit WHAT=quic`): the example server of `docs/explain/applications.md` with advice and without, and TCP on
//! paths of the same kind. Resumable: each set of paths and seed leaves one file.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use spand_tests::benefit::quic::{FAMILIES, Timed, run, table};
use spand_tests::benefit::stage::Programs;
use spand_tests::campaign::kept;
use spand_tests::ending::{arguments, exit_code};
use spand_tests::product::{interrupt, program};

#[derive(Debug, Parser)]
#[command(about = "Times QUIC and TCP transfers with and without advice (needs root)")]
struct Arguments {
    /// Only these sets of paths
    #[arg(long, value_delimiter = ',')]
    sets: Vec<String>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds
    #[arg(long, default_value_t = 2)]
    seeds: u64,
    /// Rounds in each set of paths
    #[arg(long, default_value_t = 2)]
    rounds: u32,
    /// Where results go
    #[arg(long, default_value = "target/benefit-quic")]
    out: PathBuf,
    /// Only make the table
    #[arg(long)]
    report: bool,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<ExitCode> {
    let arguments: Arguments = arguments();
    std::fs::create_dir_all(&arguments.out).with_context(|| format!("cannot make {}", arguments.out.display()))?;
    interrupt::install()?;
    let known = |name: &String| FAMILIES.contains(&name.as_str());
    ensure!(arguments.sets.iter().all(known), "the sets of paths are {}", FAMILIES.join(", "));
    let programs = || -> Result<Programs> {
        let (gateway, agent) = (program(None, "spand-gateway")?, program(None, "spand-agent")?);
        Ok(Programs { gateway, agent, agent_more: String::new(), keep: None })
    };
    for seed in (arguments.seed..).take(usize::try_from(arguments.seeds)?).filter(|_| !arguments.report) {
        for family in FAMILIES {
            let file = arguments.out.join(format!("{family}-{seed}.json"));
            let wanted = arguments.sets.is_empty() || arguments.sets.iter().any(|name| name == family);
            if !wanted || file.exists() {
                continue;
            }
            let begin = Instant::now();
            println!("{family}, seed {seed}");
            let say = |what: &str| println!("[{:>5.1} s] {what}", begin.elapsed().as_secs_f64());
            let quic = program(None, "quic")?;
            let timed = run(family, (seed, arguments.rounds), &programs()?, &quic, &say)?;
            kept::write(&file, &timed)?;
        }
    }
    let all: Vec<Vec<Timed>> = kept::read_all(&arguments.out)?;
    print!("{}", table(&all.concat()));
    Ok(ExitCode::SUCCESS)
}
