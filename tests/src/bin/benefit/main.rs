//! What the product does to real transfers (`make benefit`): runs the scenarios that have no result yet, one after another,
//! and makes the results page.
//!
//! Each run has a process of its own and leaves one file, so a campaign can be cut at any point and go on later.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spand_tests::benefit::plan::{Campaign, Planned};
use spand_tests::benefit::result::Learning;
use spand_tests::benefit::stage::Programs;
use spand_tests::benefit::{page, result};
use spand_tests::ending::{TOO_BUSY, TooBusy, arguments, exit_code};
use spand_tests::lab::path::Carrier;
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
        paths: arguments.paths,
        first_seed: arguments.seed,
        seeds: arguments.seeds,
        scenarios,
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
        if run(&runs, &arguments.out, deadline, &arguments.programs())? {
            code = ExitCode::from(TOO_BUSY);
        }
    }
    let results = result::read_all(&arguments.out)?;
    if results.is_empty() {
        ensure!(code != ExitCode::SUCCESS, "no run has a result yet in {}", arguments.out.display());
        return Ok(code);
    }
    page::write(&arguments.page, &results)?;
    print!("{}", page::harm(&results));
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
    let result = spand_tests::benefit::run::run(&planned.scenario, &planned.run, &programs, &say)?;
    result::write(&arguments.out, &result)?;
    print!("{}{}", page::summary(&result), page::harm(&[result]));
    Ok(())
}

// Runs what is missing, one run at a time in a process of its own: two at once would disturb each other.

/// A run without a sound result is tried this often in all.
const TRIES: u32 = 2;

/// Runs until the deadline; what is left is printed. `programs`: options of this program that say what to run. Returns whether a
/// run has no sound result since the machine was too busy.
pub(crate) fn run(runs: &[Planned], out: &Path, deadline: Instant, programs: &[OsString]) -> Result<bool> {
    let is_sound = |planned: &Planned| result::read(out, &planned.run).is_some_and(|result| result.fault.is_none());
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let (all, mut too_busy) = (runs.len(), false);
    for (number, planned) in (1..).zip(runs) {
        let mut was_busy = false;
        for attempt in 1..=TRIES {
            let left = deadline.saturating_duration_since(Instant::now());
            if is_sound(planned) || interrupt::came() || planned.seconds() > left.as_secs_f64() {
                break;
            }
            let again = if attempt > 1 { " again" } else { "" };
            println!("[{number}/{all}] {}{again}, about {:.0} s", planned.run.name(), planned.seconds());
            was_busy = start(planned, out, programs)?;
            match result::read(out, &planned.run).map(|result| result.fault) {
                None => println!("[{number}/{all}] left no result"),
                Some(Some(fault)) => println!("[{number}/{all}] counts for nothing: {fault}"),
                Some(None) => {}
            }
        }
        too_busy |= was_busy && !is_sound(planned);
    }
    let missing = runs.iter().filter(|planned| !is_sound(planned)).count();
    println!("{missing} of {all} runs have no sound result yet");
    Ok(too_busy)
}

/// A value as the command line takes it.
fn value_name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// One run in a process of its own, ended where it hangs: whether the machine was too busy for it.
fn start(planned: &Planned, out: &Path, programs: &[OsString]) -> Result<bool> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let run = &planned.run;
    let mut command = Command::new(program);
    command
        .args(["--one", &run.scenario, "--seed", &run.seed.to_string(), "--modes", run.mode.name()])
        .args(["--way", run.way.name(), "--start", run.start.name()])
        .args(["--learning", &value_name(&run.learning), "--paths", &value_name(&run.paths)])
        .args(programs)
        .arg("--out")
        .arg(out)
        .stdin(Stdio::null());
    if !run.stated {
        command.arg("--unstated");
    }
    let mut child = command.spawn().context("cannot start a run")?;
    let longest = Duration::from_secs_f64(planned.seconds() * 3.0 + 120.0);
    let begin = Instant::now();
    let mut signalled = false;
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a run")? {
            return Ok(status.code() == Some(TOO_BUSY.into()));
        }
        thread::sleep(Duration::from_millis(200));
        if interrupt::came() && !signalled {
            signalled = true;
            // It takes its lab down in order.
            kill(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGTERM).context("cannot stop a run")?;
        }
        if begin.elapsed() > longest {
            eprintln!("{}", TooBusy::new(format!("the end of {}", planned.run.name()), longest));
            // Its process alone: nothing of a run outlives it.
            child.kill().context("cannot end a run that hung")?;
            child.wait().context("cannot wait for a run")?;
            return Ok(true);
        }
    }
}
