//! The small truth cases of `tests/cases`: the engine against the kernel's own account, figure by figure.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result};
use spand_tests::cases::judge::{Figure, judge};
use spand_tests::cases::keep::{capture_file, read_recorded};
use spand_tests::cases::list::{Case, List, folder};
use spand_tests::cases::page::{Measured, read_figures};

/// How much an error may grow: a part of it, and half a point or half an event.
const GROWTH_PART: f64 = 0.1;
const GROWTH: f64 = 0.005;
const GROWTH_EVENTS: f64 = 0.5;
/// What must be left of the samples behind a figure, less one: of few, one more or less joined is no tenth.
const SAMPLES_LEFT: f64 = 0.9;

#[test]
fn the_engine_agrees_with_the_kernel_in_every_case() -> Result<()> {
    let list = List::read()?;
    let recorded = read_recorded()?;
    let measured = read_figures()?;
    let mut faults = Vec::new();
    let mut better = Vec::new();
    for case in &list.cases {
        let recorded = recorded.get(&case.name).with_context(|| format!("{} was never recorded", case.name))?;
        assert_eq!(recorded.health.fault(), None, "{} was recorded on a path that was off", case.name);
        let verdict = judge(&list, case, recorded)?;
        for (fact, least) in &case.needs {
            let found = verdict.facts.get(fact).copied().unwrap_or(0);
            assert!(found >= *least, "{} holds {found} of {fact}", case.name);
        }
        check(case, &verdict.figures, &measured, &mut faults, &mut better);
    }
    for line in &better {
        writeln!(std::io::stderr(), "BETTER: {line}: take it out of tests/cases/cases.toml")?;
    }
    assert!(faults.is_empty(), "{} figures are worse than they were:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

fn check(case: &Case, figures: &[Figure], all: &[Measured], faults: &mut Vec<String>, better: &mut Vec<String>) {
    let by_name: BTreeMap<&str, &Figure> = figures.iter().map(|figure| (figure.name.as_str(), figure)).collect();
    for figure in figures {
        let Figure { name, count, error, bound } = figure;
        match case.known_error(name) {
            Some(_) if figure.is_within() => {
                better.push(format!("{}: {name} is {error:.4}, within {bound}", case.name));
            }
            Some(before) => {
                let growth = if *bound == 0.0 { GROWTH_EVENTS } else { GROWTH };
                if *error > before * (1.0 + GROWTH_PART) + growth {
                    faults.push(format!("{}: {name} is {error:.4} of {count}, a miss of {before} before", case.name));
                }
            }
            None if !figure.is_within() => {
                faults.push(format!("{}: {name} is {error:.4} of {count}, above {bound:.4}", case.name));
            }
            None => {}
        }
    }
    for before in all.iter().filter(|measured| measured.case == case.name) {
        let left = by_name.get(before.figure.as_str()).map_or(0, |figure| figure.count);
        if left == 0 && before.count > 0 || (left as f64) < before.count as f64 * SAMPLES_LEFT - 1.0 {
            faults.push(format!("{}: {} has {left} samples of {} before", case.name, before.figure, before.count));
        }
        // Within the bound of its class, too, a figure stays what it was.
        let Some(figure) = by_name.get(before.figure.as_str()).filter(|figure| figure.is_within()) else { continue };
        let growth = if figure.bound == 0.0 { GROWTH_EVENTS } else { GROWTH };
        if figure.error > before.error * (1.0 + GROWTH_PART) + growth {
            let (name, error, once) = (&figure.name, figure.error, before.error);
            faults.push(format!(
                "{}: {name} is {error:.4}, {once:.4} when it was written (make cases ARGS=--write)",
                case.name
            ));
        }
    }
}

#[test]
fn every_congestion_control_meets_every_limiter() -> Result<()> {
    let list = List::read()?;
    assert!(list.cases.len() >= 40, "{} cases", list.cases.len());
    let measured = read_figures()?;
    for congestion_control in ["reno", "cubic", "bbr"] {
        let cases: Vec<&Case> = list.cases.iter().filter(|case| list.cell(case).is("cc", congestion_control)).collect();
        for limiter in ["window", "receiver", "application"] {
            let figure = format!("limited by {limiter} missed");
            let is_there = |case: &&Case| measured.iter().any(|m| m.case == case.name && m.figure == figure);
            assert!(cases.iter().any(is_there), "{congestion_control} is never limited by its {limiter}");
        }
    }
    Ok(())
}

#[test]
fn the_list_and_the_folder_hold_the_same() -> Result<()> {
    let list = List::read()?;
    let mut bytes = 0;
    let mut captures = 0;
    for entry in std::fs::read_dir(folder())? {
        let entry = entry?;
        bytes += entry.metadata()?.len();
        captures += usize::from(entry.file_name().to_string_lossy().ends_with(".pcap.zst"));
    }
    assert_eq!(captures, list.cases.len(), "captures without a case, or cases without a capture");
    assert!(bytes < 9_000_000, "{bytes} bytes: the folder is to stay small");
    let page = std::fs::read_to_string(folder().join("README.md"))?;
    for case in &list.cases {
        assert!(capture_file(&case.name).exists(), "{} has no capture", case.name);
        assert!(page.contains(&format!("\n## {}\n", case.name)), "README.md lacks {}", case.name);
        for miss in &case.misses {
            assert!(miss.reason.len() > 20, "{}: say why {:?} are off", case.name, miss.errors);
        }
    }
    Ok(())
}
