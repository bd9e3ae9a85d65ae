//! Reconstruction against two other tools and a plain interval count, on every capture of the corpus.
//!
//! Prints one table, writes every direction that differs to `target/corpus-accuracy.tsv` with the class of its difference,
//! and fails where a figure falls below its threshold. Without the corpus it says so and counts what it could not do.

#[cfg(test)]
mod compare;
#[cfg(test)]
mod corpus;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use crate::compare::{Figures, Share};

/// Files that must give a result: the others hold nothing that any tool reads.
const FILES_LEAST: usize = 240;
/// Resident memory that no capture may need.
const MEMORY_MOST_MIB: u64 = 300;
/// Time that no damaged capture may take.
const TIME_MOST: Duration = Duration::from_secs(10);

#[test]
fn reconstruction_agrees_with_the_reference() {
    let Some(corpus) = corpus::real() else { return };
    let mut figures = Figures::default();
    let mut empty = Vec::new();
    for file in &corpus.files {
        let rows = corpus::rows_of(&corpus.reference, &file.name);
        match corpus::directions(&file.path) {
            Ok(outcome) if outcome.segments > 0 || rows.is_empty() => {
                figures.compare(&file.name, &rows, &outcome.reports);
            }
            Ok(_) => empty.push((file.name.clone(), "no TCP segment was found".to_owned())),
            Err(error) => empty.push((file.name.clone(), error)),
        }
    }
    let mut text = String::new();
    figures.write_summary(&mut text);
    writeln!(text, "files with a result: {} of {}", corpus.files.len() - empty.len(), corpus.files.len()).unwrap();
    for (file, reason) in &empty {
        writeln!(text, "  no result: {file}: {reason}").unwrap();
    }
    println!("{text}");
    let list = corpus::write_differences(&figures.differences);
    println!("every difference: {}", list.display());

    assert!(corpus.files.len() - empty.len() >= FILES_LEAST, "{empty:?}");
    let short: Vec<&Share> = figures.shares().into_iter().filter(|share| !share.is_reached()).collect();
    assert!(short.is_empty(), "below the threshold: {short:#?}");
    let memory_mib = corpus::peak_memory_mib();
    assert!(memory_mib < MEMORY_MOST_MIB, "{memory_mib} MiB resident at most");
}

#[test]
fn damaged_captures_neither_panic_nor_hang() {
    let Some(files) = corpus::malformed() else { return };
    let mut slow = Vec::new();
    let (mut read, mut refused) = (0, 0);
    for file in &files {
        let begun = Instant::now();
        match corpus::directions(&file.path) {
            Ok(_) => read += 1,
            Err(_) => refused += 1,
        }
        let took = begun.elapsed();
        if took > TIME_MOST {
            slow.push((file.name.clone(), took));
        }
    }
    println!("malformed: {read} read to their end or damage, {refused} refused at once");
    assert!(slow.is_empty(), "over 10 s: {slow:?}");
    assert!(files.len() >= 301, "{} files", files.len());
    let memory_mib = corpus::peak_memory_mib();
    assert!(memory_mib < MEMORY_MOST_MIB, "{memory_mib} MiB resident at most");
}

#[test]
fn the_same_capture_twice_gives_the_same_reports() {
    let Some(corpus) = corpus::real() else { return };
    let mut compared = 0;
    for file in corpus.files.iter().step_by(8) {
        let (Ok(first), Ok(second)) = (corpus::directions(&file.path), corpus::directions(&file.path)) else {
            continue;
        };
        assert_eq!(first.reports, second.reports, "{}", file.name);
        compared += first.reports.len();
    }
    assert!(compared > 100, "only {compared} reports compared");
}
