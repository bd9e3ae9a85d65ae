//! Records the small truth cases of `tests/cases` (`make cases`), and writes what was measured of them.
//!
//! One after the other, so that none disturbs another's path. A recording on which the path was late, or that does not show
//! what the case is for, is thrown away and made again.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use spand_tests::accuracy::cell::{self, Recording};
use spand_tests::accuracy::compare::compare;
use spand_tests::accuracy::factors::Cell;
use spand_tests::cases::judge::{Verdict, facts, judge};
use spand_tests::cases::keep::{self, Recorded};
use spand_tests::cases::list::{Case, List};
use spand_tests::cases::page;
use spand_tests::ending::{arguments, exit_code, progress};
use spand_tests::kernels::fetch::{self, kernel};
use spand_tests::kernels::guest::{self, Console, boot};
use spand_tests::kernels::image;
use spand_tests::lab::truth::{Record, read_csv};

/// Tries before a case counts as failed.
const TRIES: usize = 4;
/// What a guest gets of this machine's time.
const GUEST_LIMIT: Duration = Duration::from_secs(900);
/// What a recording leaves, in this machine or in a guest.
const CAPTURE: &str = "capture.pcap";
const ROWS: &str = "rows.csv";
const ABOUT: &str = "about.json";

#[derive(Debug, Parser)]
#[command(about = "Records the small truth cases (needs root), and writes down how far the engine is off in each")]
struct Arguments {
    /// Record these again; without a name: record those never recorded
    names: Vec<String>,
    /// Record nothing, only replay and write the figures and the page
    #[arg(long)]
    write: bool,
    /// In a guest: record this cell
    #[arg(long, hide = true)]
    cell: Option<String>,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<ExitCode> {
    let arguments: Arguments = arguments();
    if let Some(cell) = &arguments.cell {
        return record_as_guest(&serde_json::from_str(cell)?);
    }
    let list = List::read()?;
    let mut recorded = keep::read_recorded()?;
    let mut failed = 0;
    for case in list.cases.iter().filter(|_| !arguments.write) {
        let named = arguments.names.contains(&case.name);
        if named || (arguments.names.is_empty() && !recorded.contains_key(&case.name)) {
            match record(&list, case)? {
                Some(done) => {
                    recorded.insert(case.name.clone(), done);
                    keep::write_recorded(&recorded)?;
                }
                None => failed += 1,
            }
        }
    }
    recorded.retain(|name, _| list.cases.iter().any(|case| case.name == *name));
    keep::write_recorded(&recorded)?;
    let mut verdicts = Vec::new();
    for case in &list.cases {
        let Some(recorded) = recorded.get(&case.name) else { continue };
        let verdict = judge(&list, case, recorded).with_context(|| format!("replaying {}", case.name))?;
        say(case, &verdict);
        verdicts.push(verdict);
    }
    if verdicts.len() == list.cases.len() {
        page::write(&list, &recorded, &verdicts)?;
    } else {
        println!("{} of {} cases are recorded: nothing is written yet", verdicts.len(), list.cases.len());
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Counts with their names.
fn words(facts: &BTreeMap<String, u64>) -> String {
    let words: Vec<String> = facts.iter().map(|(fact, count)| format!("{count} {fact}")).collect();
    words.join(", ")
}

fn record(list: &List, case: &Case) -> Result<Option<Recorded>> {
    let cell = list.cell(case);
    for _ in 0..TRIES {
        let folder = tempfile::tempdir()?;
        let capture = folder.path().join(CAPTURE);
        let (recording, kernel) = match &case.kernel {
            None => cell::run(&cell, &capture).map(|recording| (recording, None)),
            Some(suite) => record_in_guest(suite, &cell, folder.path()),
        }
        .with_context(|| format!("recording {}", case.name))?;
        let result = compare(&cell, &recording, &capture)?;
        let facts = facts(&recording.rows, &result);
        let lacking = case.needs.iter().find(|(fact, least)| facts.get(*fact).copied().unwrap_or(0) < **least);
        if let Some(fault) = recording.health.fault() {
            println!("{}: again, {fault}", case.name);
        } else if let Some((fact, least)) = lacking {
            println!("{}: again, fewer than {least} of {fact}: {}", case.name, words(&facts));
        } else {
            println!("{}: {} packets, {}", case.name, recording.health.captured, words(&facts));
            keep::keep(&case.name, &capture, &recording)?;
            return Ok(Some(Recorded { kernel, network: recording.network, health: recording.health }));
        }
    }
    println!("{}: failed after {TRIES} tries", case.name);
    Ok(None)
}

/// Records a cell on the kernel of a release of Debian; `out` has the capture afterwards. Returns the kernel's own name as well.
fn record_in_guest(suite: &str, cell: &Cell, out: &Path) -> Result<(Recording, Option<String>)> {
    let folder = fetch::folder();
    if !folder.join(suite).exists() {
        println!("fetching the kernel of Debian's {suite} to {}", folder.display());
    }
    let kernel = kernel(&folder, suite)?;
    progress(&format!("recording in a guest with the kernel of {suite}, {}", kernel.release()));
    let command = [image::OWN, "--cell", &serde_json::to_string(cell)?].map(str::to_owned);
    let parts = [image::common(&[])?, image::modules(&kernel)?, image::run(&command, &[])?];
    let console = folder.join(format!("{suite}.console"));
    let parts = parts.each_ref().map(Vec::as_slice);
    let status = boot(&kernel, &parts, GUEST_LIMIT, Console::File(&console), Some(out), |_| {})?;
    ensure!(status == 0, "it ended with {status} in the guest; the console is in {}", console.display());
    let rows = read_csv(&out.join(ROWS))?;
    let Recorded { network, health, .. } = serde_json::from_str(&std::fs::read_to_string(out.join(ABOUT))?)?;
    Ok((Recording { rows, health, network }, Some(kernel.release().to_owned())))
}

/// The guest's part of it.
fn record_as_guest(cell: &Cell) -> Result<ExitCode> {
    let out = Path::new(guest::OUT);
    let recording = cell::run(cell, &out.join(CAPTURE))?;
    let about = Recorded { kernel: None, network: recording.network, health: recording.health };
    std::fs::write(out.join(ABOUT), serde_json::to_string(&about)?)?;
    let record = Record::default();
    recording.rows.into_iter().for_each(|row| record.add(row));
    record.write_csv(&out.join(ROWS))?;
    Ok(ExitCode::SUCCESS)
}

fn say(case: &Case, verdict: &Verdict) {
    for figure in verdict.figures.iter().filter(|figure| !figure.is_within()) {
        let known = case.known_error(&figure.name).is_some();
        println!(
            "{}{}: {} is {:.4} of {} samples, above {:.4}",
            case.name,
            if known { " (known)" } else { "" },
            figure.name,
            figure.error,
            figure.count,
            figure.bound
        );
    }
}
