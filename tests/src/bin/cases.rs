//! Records the small truth cases of `tests/cases` (`make cases`), and writes what was measured of them.
//!
//! One after the other, so that none disturbs another's path. A recording on which the path was late, or that does not show
//! what the case is for, is thrown away and made again.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use spand_tests::accuracy::cell;
use spand_tests::accuracy::compare::compare;
use spand_tests::accuracy::result::Worst;
use spand_tests::cases::judge::{Verdict, facts, judge};
use spand_tests::cases::keep::{self, Recorded};
use spand_tests::cases::list::{Case, List};
use spand_tests::cases::page;
use spand_tests::ending::{arguments, exit_code};

/// Tries before a case counts as failed.
const TRIES: usize = 4;

#[derive(Debug, Parser)]
#[command(about = "Records the small truth cases (needs root), and writes down how far the engine is off in each")]
struct Arguments {
    /// Record these again, and show where the window is furthest off; without a name: record those never recorded
    names: Vec<String>,
    /// Record nothing, only replay and write the figures and the page
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<ExitCode> {
    let arguments: Arguments = arguments();
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
        if arguments.names.contains(&case.name) {
            for worst in &verdict.worst {
                let Worst { kind, remote, at_s, kernel, engine, state } = worst;
                println!(
                    "  {kind} of {remote} at {at_s:.3} s ({state}): kernel {kernel:.2}, engine {engine:.2} segments"
                );
            }
        }
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
        let capture = folder.path().join("capture.pcap");
        let recording = cell::run(&cell, &capture).with_context(|| format!("recording {}", case.name))?;
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
            return Ok(Some(Recorded { network: recording.network, health: recording.health }));
        }
    }
    println!("{}: failed after {TRIES} tries", case.name);
    Ok(None)
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
