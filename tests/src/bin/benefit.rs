//! What the product does to real transfers (`make benefit`): runs the scenarios that have no result yet, one after another,
//! and makes the results page.
//!
//! Each run has a process of its own and leaves one file, so a campaign can be cut at any point and go on later.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use spand_tests::benefit::plan::{Campaign, Planned};
use spand_tests::benefit::result::{Learning, Run, RunResult};
use spand_tests::benefit::stage::Programs;
use spand_tests::benefit::{page, result};
use spand_tests::campaign::lanes::{self, Job, Limits, Outcome};
use spand_tests::campaign::{self, kept};
use spand_tests::ending::{TOO_BUSY, arguments, exit_code};
use spand_tests::lab::path::Carrier;
use spand_tests::product::{ApplyMethod, Mode, StartVariant, interrupt, program};

const NAME: &str = "benefit";
const MINUTES: u64 = 55;
/// A run without a sound result is tried this often in all.
const TRIES: u32 = 2;

#[derive(Debug, Parser)]
#[command(about = "Times real transfers with and without the product (needs root)")]
struct Arguments {
    #[command(flatten)]
    campaign: campaign::Shared,
    /// How the agent applies starts; none: no agent, which shows what the lab itself adds
    #[arg(long, value_enum, default_value = "bpf")]
    way: ApplyMethod,
    /// Modes of the agent
    #[arg(long, value_enum, value_delimiter = ',', default_value = "careful")]
    modes: Vec<Mode>,
    /// The server does not state sizes: what the gateway learnt of the service must do
    #[arg(long)]
    unstated: bool,
    /// What the gateway learns from; advised: the agent runs from the start, so that estimates rest on their own effect. Default: advised
    /// for the scenarios of harm, plain for others
    #[arg(long, value_enum)]
    learning: Option<Learning>,
    /// What carries the paths; kernel: netem and tbf, as guests have them
    #[arg(long, value_enum, default_value = "emulator")]
    paths: Carrier,
    /// What the product's starts are made of; a variant is timed in turns with plain
    #[arg(long, value_enum, value_delimiter = ',', default_value = "plain")]
    start: Vec<StartVariant>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Only these scenarios; a family's name, such as alone, stands for all of its parts, and harm for all where advice might harm
    #[arg(long, value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Run one scenario with the first mode and seed here and now, whether or not it has a result
    #[arg(long, value_name = "SCENARIO")]
    one: Option<String>,
    /// Keep that run's recordings, logs and configurations in this folder
    #[arg(long, requires = "one")]
    keep: Option<PathBuf>,
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
    let (out, page) = (arguments.campaign.out(NAME), arguments.campaign.page(NAME));
    let campaign = Campaign {
        way: arguments.way,
        modes: arguments.modes.clone(),
        stated: !arguments.unstated,
        learning: arguments.learning,
        starts: arguments.start.clone(),
        paths: arguments.paths,
        first_seed: arguments.seed,
        seeds: arguments.seeds,
        scenarios: arguments.one.as_ref().map_or(arguments.scenarios.clone(), |name| vec![name.clone()]),
    };
    let needs_programs = arguments.start.iter().any(|start| *start != StartVariant::Plain);
    ensure!(!needs_programs || arguments.way == ApplyMethod::Bpf, "--start other than plain needs --way bpf");
    let runs = campaign.runs();
    ensure!(
        !needs_programs || runs.iter().all(|planned| planned.run.learning == Learning::Plain),
        "--start other than plain needs --learning plain: the agent is another from round to round"
    );
    ensure!(!runs.is_empty(), "there is no scenario {}", campaign.scenarios.join(" or "));
    if arguments.one.is_some() {
        return run_one(runs.first().context("a run")?, &arguments, &out).map(|()| ExitCode::SUCCESS);
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
    if arguments.campaign.plan {
        for planned in &runs {
            println!("{:>5.0} s  {}", planned.seconds(), planned.run.name());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    if !arguments.campaign.report && run(&arguments, &runs, &out)?.too_busy > 0 {
        code = ExitCode::from(TOO_BUSY);
    }
    let results: Vec<RunResult> = kept::read_all(&out)?;
    if results.is_empty() {
        ensure!(code != ExitCode::SUCCESS, "no run has a result yet in {}", out.display());
        return Ok(code);
    }
    page::write(&page, &results)?;
    print!("{}", page::harm(&results));
    println!("{} results; {} written", results.len(), page.display());
    Ok(code)
}

/// Runs one scenario in this process.
fn run_one(planned: &Planned, arguments: &Arguments, out: &Path) -> Result<()> {
    interrupt::install()?;
    let read =
        |file: &PathBuf| std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let programs = Programs {
        gateway: program(arguments.gateway.as_deref(), "spand-gateway")?,
        agent: program(arguments.agent.as_deref(), "spand-agent")?,
        agent_more: arguments.agent_config.as_ref().map_or(Ok(String::new()), read)?,
        keep: arguments.keep.clone(),
    };
    let begin = Instant::now();
    let say = |what: &str| println!("[{:>5.1} s] {what}", begin.elapsed().as_secs_f64());
    let result = spand_tests::benefit::run::run(&planned.scenario, &planned.run, &programs, &say)?;
    result::write(out, &result)?;
    print!("{}{}", page::summary(&result), page::harm(&[result]));
    Ok(())
}

/// Runs what has no sound result, one run at a time: two at once would disturb each other.
fn run(arguments: &Arguments, runs: &[Planned], out: &Path) -> Result<Outcome> {
    let fault = |run: &Run| match result::read(out, run) {
        None => Some("it left no result".to_owned()),
        Some(result) => result.fault,
    };
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let missing = runs.iter().filter(|planned| fault(&planned.run).is_some());
    let job = |of: &Planned| Job { name: of.run.name(), seconds: of.seconds(), of: of.clone(), weight: 0, tries: 0 };
    let deadline = arguments.campaign.deadline(Some(MINUTES));
    let limits = Limits { lanes: 1, weight: 0, deadline, tries: TRIES };
    lanes::run(missing.map(job).collect(), &limits, |job| {
        println!("{}, about {:.0} s", job.name, job.seconds);
        let run = &job.of.run;
        let (seed, learning, paths) = (run.seed.to_string(), value_name(&run.learning), value_name(&run.paths));
        let own = [
            ("--one", run.scenario.as_str()),
            ("--seed", &seed),
            ("--modes", run.mode.name()),
            ("--way", run.way.name()),
            ("--start", run.start.name()),
            ("--learning", &learning),
            ("--paths", &paths),
        ];
        let mut words: Vec<OsString> = own.into_iter().flat_map(|(name, value)| [name.into(), value.into()]).collect();
        words.extend(arguments.programs());
        words.extend(["--out".into(), out.into()]);
        words.extend((!run.stated).then(|| "--unstated".into()));
        lanes::process(&words, Duration::from_secs_f64(job.seconds * 3.0 + 120.0), true)?;
        match fault(run) {
            Some(fault) => bail!("it counts for nothing: {fault}"),
            None => Ok(job.name.clone()),
        }
    })
}

/// A value as the command line takes it.
fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
