//! The command line: all kernels at once, or one guest for any program.

use spand_needs::{Need, lacks};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use super::Finding;
use super::fetch::{Kernel, SUITES, folder, kernel};
use super::guest::{Console, boot};
use super::image;
use super::page::{Tried, page};
use super::trial::{self, Extent};
use crate::ending::progress;

/// Guests at a time: each takes a core.
const GUESTS: usize = 2;

/// What is asked for.
#[derive(Debug, Parser)]
#[command(about = "Tries the product on Debian's kernels under qemu")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tries the product on each kernel
    Try {
        /// Debian's releases
        #[arg(long, value_delimiter = ',', default_values_t = SUITES.map(str::to_owned))]
        kernels: Vec<String>,
        /// Only whether the agent starts a connection and leaves nothing
        #[arg(long)]
        short: bool,
        /// Releases whose kernels may be too old for the agent's programs
        #[arg(long, value_delimiter = ',')]
        may_refuse: Vec<String>,
        /// Programs in place of the product's, by their names
        #[arg(long)]
        with: Vec<PathBuf>,
        /// Writes the results here
        #[arg(long)]
        page: Option<PathBuf>,
    },
    /// The same transfer ten times while this machine runs two busy loops a core
    Repeat {
        /// Debian's release
        #[arg(long, default_value = "trixie")]
        kernel: String,
    },
    /// Runs a program in a guest, with this terminal, and ends with its exit code
    Run {
        /// Debian's release
        #[arg(long, default_value = "trixie")]
        kernel: String,
        /// Programs of this machine to take along; the guest finds them by name
        #[arg(long)]
        with: Vec<PathBuf>,
        /// Files to take along, under their own paths
        #[arg(long)]
        file: Vec<PathBuf>,
        /// Folder of this machine for what the program leaves in /out
        #[arg(long)]
        out: Option<PathBuf>,
        /// Seconds of this machine that the guest gets
        #[arg(long, default_value_t = 600)]
        limit_s: u64,
        /// The program, a file of this machine or a name in the guest (sh, ip, tc, ss, spand-agent, spand-gateway), and its arguments
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
    /// The trial, inside a guest
    #[command(hide = true)]
    Trial { extent: Extent },
}

/// Does it. Fails with 1 where something was found that should not be.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Run { kernel: suite, with, file, out, limit_s, mut program } => {
            let kernel = kernel(&folder(), &suite)?;
            let mut programs: Vec<&Path> = with.iter().map(PathBuf::as_path).collect();
            let own = program.first().filter(|name| name.contains('/')).map(PathBuf::from);
            if let (Some(own), Some(name)) = (&own, program.first_mut()) {
                programs.push(own);
                *name = format!("/{}/{}", image::PROGRAMS, own.file_name().unwrap_or_default().to_string_lossy());
            }
            let files: Vec<&Path> = file.iter().map(PathBuf::as_path).collect();
            let parts = [image::common(&programs)?, image::modules(&kernel)?, image::run(&program, &files)?];
            let parts = parts.each_ref().map(Vec::as_slice);
            let status = boot(&kernel, &parts, Duration::from_secs(limit_s), Console::Here, out.as_deref(), |line| {
                if line.starts_with('{') {
                    println!("{line}");
                }
            })?;
            Ok(ExitCode::from(u8::try_from(status)?))
        }
        Command::Try { kernels, short, may_refuse, with, page: to } => {
            let extent = if short { Extent::Short } else { Extent::Full };
            let common = image::common(&with.iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
            let (tried, missing) = try_all(&kernels, extent, &common)?;
            let repeated = if short { Vec::new() } else { under_load("trixie", &common)? };
            if let Some(to) = to {
                std::fs::write(&to, page(&tried, repeated.first()))
                    .with_context(|| format!("cannot write {}", to.display()))?;
            }
            let faults = report(&tried, &may_refuse) + report(&repeated, &[]);
            println!("{} kernels tried, {missing} missing, {faults} faults", tried.len());
            Ok(ExitCode::from(u8::from(faults > 0 || tried.is_empty())))
        }
        Command::Repeat { kernel } => {
            let repeated = under_load(&kernel, &image::common(&[])?)?;
            Ok(ExitCode::from(u8::from(report(&repeated, &[]) > 0 || repeated.is_empty())))
        }
        Command::Trial { extent } => trial::run(extent).map(|()| ExitCode::SUCCESS),
    }
}

/// Prints the faults of each kernel and counts them.
fn report(all: &[Tried], may_refuse: &[String]) -> usize {
    let mut count = 0;
    for tried in all {
        for fault in tried.faults(may_refuse.contains(&tried.suite)) {
            println!("FAULT {}: {fault}", tried.suite);
            count += 1;
        }
    }
    count
}

/// Repeats a transfer in a guest beside busy loops.
fn under_load(suite: &str, common: &[u8]) -> Result<Vec<Tried>> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 * thread::available_parallelism()?.get() {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let tried = try_all(&[suite.to_owned()], Extent::Repeat, common);
        stop.store(true, Ordering::Relaxed);
        Ok(tried?.0)
    })
}

/// Tries kernels, at most two at a time, and counts those that cannot be fetched.
fn try_all(suites: &[String], extent: Extent, common: &[u8]) -> Result<(Vec<Tried>, usize)> {
    let mut kernels = Vec::new();
    for suite in suites {
        progress(&format!("fetching the kernel of {suite}"));
        match kernel(&folder(), suite) {
            Ok(kernel) => kernels.push(kernel),
            Err(why) => lacks(Need::Kernels, format_args!("{suite}: {why:#}")),
        }
    }
    let missing = suites.len() - kernels.len();
    let (queue, (sender, lines)) = (Mutex::new(kernels.iter()), channel());
    let begin = Instant::now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..GUESTS)
            .map(|_| {
                let (sender, queue) = (sender.clone(), &queue);
                scope.spawn(move || -> Result<Vec<Tried>> {
                    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    std::iter::from_fn(next).map(|kernel| try_one(kernel, extent, common, &sender)).collect()
                })
            })
            .collect();
        drop(sender);
        loop {
            match lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => {
                    progress("");
                    println!("{:4.0} s  {line}", begin.elapsed().as_secs_f64());
                }
                Err(RecvTimeoutError::Timeout) => progress(&format!("{:4} s", begin.elapsed().as_secs())),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let mut tried = Vec::new();
        for worker in workers {
            tried.extend(worker.join().ok().context("a worker panicked")??);
        }
        tried.sort_by_key(|one| suites.iter().position(|suite| *suite == one.suite));
        Ok((tried, missing))
    })
}

fn try_one(kernel: &Kernel, extent: Extent, common: &[u8], lines: &Sender<String>) -> Result<Tried> {
    let command = [image::OWN, "trial", extent.into()].map(str::to_owned);
    let (modules, own) = (image::modules(kernel)?, image::run(&command, &[])?);
    let limit = Duration::from_secs(if extent == Extent::Full { 1_800 } else { 240 });
    let console = folder().join(format!("{}.console", kernel.suite));
    let mut tried = Tried { suite: kernel.suite.clone(), ..Tried::default() };
    let status = boot(kernel, &[common, &modules, &own], limit, Console::File(&console), None, |line| {
        // The first process writes there, too.
        if let Ok(finding) = serde_json::from_str::<Finding>(line) {
            _ = lines.send(format!("{}: {finding}", kernel.suite));
            tried.findings.push(finding);
        }
    });
    tried.fault = match status {
        Ok(0) => None,
        Ok(code) => Some(format!("the trial ended with {code}")),
        Err(error) => Some(format!("{error:#}")),
    };
    if let Some(fault) = &mut tried.fault {
        let shown = std::fs::read_to_string(&console).unwrap_or_default();
        let last = shown.lines().rfind(|line| line.starts_with("error")).unwrap_or_default();
        *fault = format!("{fault} ({last}; the console is in {})", console.display());
    }
    Ok(tried)
}
