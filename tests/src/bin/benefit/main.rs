//! What the product does to real transfers (`make benefit`): runs the scenarios that have no result yet, one after another,
//! and makes the results page.
//!
//! Each run has a process of its own and leaves one file, so a campaign can be cut at any point and go on later.

mod slice;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use spand_tests::benefit::plan::{Campaign, Planned};
use spand_tests::benefit::result::Learning;
use spand_tests::benefit::stage::Programs;
use spand_tests::benefit::{page, result, run};
use spand_tests::ending::{TOO_BUSY, arguments, exit_code};
use spand_tests::product::{ApplyMethod, Mode, StartVariant, interrupt, program};

#[derive(Debug, Parser)]
#[command(about = "Times real transfers with and without the product (needs root)")]
struct Arguments {
    /// How the agent applies starts; none: no agent, which shows what the lab itself adds
    #[arg(long, value_enum, default_value = "bpf")]
    way: ApplyMethod,
    /// Modes of the agent
    #[arg(long, value_enum, value_delimiter = ',', default_value = "careful")]
    modes: Vec<Mode>,
    /// The server does not state sizes: what the gateway learnt of the service must do
    #[arg(long)]
    unstated: bool,
    /// What the gateway learns from; advised: the agent runs from the start, so that estimates rest on their own effect
    #[arg(long, value_enum, default_value = "plain")]
    learning: Learning,
    /// What the product's starts are made of; a variant is timed in turns with plain
    #[arg(long, value_enum, value_delimiter = ',', default_value = "plain")]
    start: Vec<StartVariant>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Only these scenarios; a family's name, such as alone, stands for all of its parts
    #[arg(long, value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Begin no run that would end later than this
    #[arg(long, default_value_t = 55)]
    minutes: u64,
    /// Run one scenario with the first mode and seed here and now, whether or not it has a result
    #[arg(long, value_name = "SCENARIO")]
    one: Option<String>,
    /// Keep that run's recordings, logs and configurations in this folder
    #[arg(long, requires = "one")]
    keep: Option<PathBuf>,
    /// Where results go, one file a run
    #[arg(long, default_value = "target/benefit")]
    out: PathBuf,
    /// Where the tables go, as a page; its plots lie beside it
    #[arg(long, default_value = "target/benefit.md")]
    page: PathBuf,
    /// Only print the plan
    #[arg(long)]
    plan: bool,
    /// Only make the tables
    #[arg(long)]
    report: bool,
    /// The gateway's program; default: beside this one
    #[arg(long, env = "SPAND_GATEWAY")]
    gateway: Option<PathBuf>,
    /// The agent's program; default: beside this one
    #[arg(long, env = "SPAND_AGENT")]
    agent: Option<PathBuf>,
    /// A file whose lines are added to the agent's configuration
    #[arg(long)]
    agent_config: Option<PathBuf>,
}

impl Arguments {
    /// The options that say what to run, for the process of a run.
    fn programs(&self) -> Vec<OsString> {
        let named = [("--gateway", &self.gateway), ("--agent", &self.agent), ("--agent-config", &self.agent_config)];
        let given = named.into_iter().filter_map(|(name, path)| Some((name, path.as_ref()?)));
        given.flat_map(|(name, path)| [OsString::from(name), path.clone().into_os_string()]).collect()
    }
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<ExitCode> {
    let arguments: Arguments = arguments();
    let scenarios = match &arguments.one {
        Some(name) => vec![name.clone()],
        None => arguments.scenarios.clone(),
    };
    let campaign = Campaign {
        way: arguments.way,
        modes: arguments.modes.clone(),
        stated: !arguments.unstated,
        learning: arguments.learning,
        starts: arguments.start.clone(),
        first_seed: arguments.seed,
        seeds: arguments.seeds,
        scenarios,
    };
    let needs_programs = arguments.start.iter().any(|start| *start != StartVariant::Plain);
    ensure!(!needs_programs || arguments.way == ApplyMethod::Bpf, "--start other than plain needs --way bpf");
    ensure!(
        !needs_programs || arguments.learning == Learning::Plain,
        "--start other than plain needs --learning plain: the agent is another from round to round"
    );
    let runs = campaign.runs();
    ensure!(!runs.is_empty(), "there is no scenario {}", campaign.scenarios.join(" or "));
    if arguments.one.is_some() {
        return run_one(runs.first().context("a run")?, &arguments).map(|()| ExitCode::SUCCESS);
    }
    let seconds: f64 = runs.iter().map(Planned::seconds).sum();
    println!(
        "way {}, seeds {} to {}: {} runs, about {:.0} minutes in all",
        campaign.way.name(),
        campaign.first_seed,
        campaign.first_seed + campaign.seeds.saturating_sub(1),
        runs.len(),
        seconds / 60.0
    );
    if arguments.plan {
        for planned in &runs {
            println!("{:>5.0} s  {}", planned.seconds(), planned.run.name());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    if !arguments.report {
        interrupt::install()?;
        let deadline = Instant::now() + Duration::from_secs(arguments.minutes * 60);
        if slice::run(&runs, &arguments.out, deadline, &arguments.programs())? {
            code = ExitCode::from(TOO_BUSY);
        }
    }
    let results = result::read_all(&arguments.out)?;
    if results.is_empty() {
        ensure!(code != ExitCode::SUCCESS, "no run has a result yet in {}", arguments.out.display());
        return Ok(code);
    }
    page::write(&arguments.page, &results)?;
    println!("{} results; {} written", results.len(), arguments.page.display());
    Ok(code)
}

/// Runs one scenario in this process.
fn run_one(planned: &Planned, arguments: &Arguments) -> Result<()> {
    interrupt::install()?;
    let agent_more = arguments
        .agent_config
        .as_ref()
        .map(|file| std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display())))
        .transpose()?
        .unwrap_or_default();
    let programs = Programs {
        gateway: program(arguments.gateway.as_deref(), "spand-gateway")?,
        agent: program(arguments.agent.as_deref(), "spand-agent")?,
        agent_more,
        keep: arguments.keep.clone(),
    };
    let begin = Instant::now();
    let say = |what: &str| println!("[{:>5.1} s] {what}", begin.elapsed().as_secs_f64());
    let result = run::run(&planned.scenario, &planned.run, &programs, &say)?;
    result::write(&arguments.out, &result)?;
    print!("{}", page::summary(&result));
    Ok(())
}
