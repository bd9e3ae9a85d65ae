//! The results page: what was found beside its targets, then a table for each question, worst rows first.

mod cells;
mod crowd;
mod harm;
mod starts;
mod tables;
#[cfg(test)]
mod testing;
mod windows;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use self::cells::{Which, cases, side};
use self::starts::Finding;
use super::result::{Learning, Run, RunResult};
use super::scenario::{Question, Scenario};
use super::scenarios;
use crate::campaign::page;
use crate::lab::path::Carrier;
use crate::product::{ApplyMethod, Mode, StartVariant};

/// Runs that stand in one section: how starts were applied, the mode, whether sizes were stated, what was learnt from, what
/// starts were made of, what carried the paths.
type Kind = (ApplyMethod, Mode, bool, Learning, StartVariant, Carrier);

/// One section of the page.
struct Section<'a> {
    kind: Kind,
    results: Vec<&'a RunResult>,
}

/// Writes the page, and its plots of time over the bound beside it.
pub fn write(page: &Path, results: &[RunResult]) -> Result<()> {
    let mut kinds: Vec<Kind> = results.iter().map(|result| kind(&result.run)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut body = String::new();
    let mut findings: Vec<(Kind, Finding)> = Vec::new();
    let of_kind = |kind: Kind| -> Vec<&RunResult> {
        results.iter().filter(|result| self::kind(&result.run) == kind && result.fault.is_none()).collect()
    };
    for kind in kinds {
        let section = Section { kind, results: of_kind(kind) };
        let mut found = section.write(&mut body, page)?;
        if kind.4 != StartVariant::Plain {
            // Targets of its own: the others are those of the default.
            found = starts::write(&mut body, kind.4, &section.results);
        }
        findings.extend(found.into_iter().map(|finding| (kind, finding)));
    }
    let mut text = header(results);
    verdicts(&mut text, findings);
    text += &body;
    text += &faults(results);
    page::write(page, &text)
}

fn kind(run: &Run) -> Kind {
    (run.way, run.mode, run.stated, run.learning, run.start, run.paths)
}

fn words((way, mode, stated, learning, start, paths): Kind) -> String {
    let sizes = if stated { "sizes stated" } else { "sizes not stated" };
    let learnt = if learning == Learning::Plain { "" } else { ", learnt on advice" };
    let on = if paths == Carrier::Kernel { ", the kernel's paths" } else { "" };
    match way {
        ApplyMethod::None => format!("no agent{on}"),
        way => format!("way `{}`, mode `{}`, {sizes}{learnt}{}{on}", way.name(), mode.name(), start_words(start)),
    }
}

fn start_words(start: StartVariant) -> String {
    if start == StartVariant::Plain { String::new() } else { format!(", start `{}`", start.name()) }
}

fn header(results: &[RunResult]) -> String {
    let mut kernels: Vec<&str> =
        results.iter().map(|result| result.kernel.split('-').next().unwrap_or_default()).collect();
    kernels.sort_unstable();
    kernels.dedup();
    let seconds: f64 = results.iter().map(|result| result.seconds).sum();
    let loads = results.iter().map(|result| result.health.load);
    format!(
        "# What the product does to real transfers\n\n`make benefit`: {} runs, {:.0} minutes, Linux {}, {} cores, up to two \
         runs at a time beside other work; the machine's load at the end of a run was at most {:.1}.\n\nIn each run the gateway learns from at least 20 transfers over the product's paths, through \
         its mirror port and nothing else; then transfers are timed. Every kind of sender has a host and paths of its own \
         (the same emulated path, another address), so all kinds run in the same minutes without meeting; starts are drawn \
         alike for all of them. A time runs from a transfer's first packet to the acknowledgement of its last byte at the \
         sender's interface; the handshake is not in it. The wire's bound is all packets through the narrowest link and one \
         round trip, which no sender alone on the path can beat. Repeats are packets whose bytes had all been sent before. \
         Changes compare the means of the same seed; intervals are Student's over seeds. What is timed: \
         [the method](../explain/benefit.md).\n",
        results.len(),
        seconds / 60.0,
        kernels.join(", "),
        std::thread::available_parallelism().map_or(0, usize::from),
        loads.fold(0.0, f64::max),
    )
}

fn verdicts(text: &mut String, mut findings: Vec<(Kind, Finding)>) {
    findings.retain(|(kind, _)| kind.0 != ApplyMethod::None);
    let of = findings.len();
    findings.retain(|(_, finding)| finding.is_missed());
    let row = |(kind, Finding { what, found, target, beyond }): &(Kind, Finding)| {
        (*beyond, format!("{what} | {} | {found} | {target}", words(*kind)))
    };
    let missed = page::sorted("figure | section | found | target", findings.iter().map(row).collect());
    page::add(text, &format!("\n## Short of its target: {} of {of} figures\n\n{missed}", findings.len()));
}

fn faults(results: &[RunResult]) -> String {
    let rows = results.iter().filter_map(|one| Some(format!("{} | {}", one.run.name(), one.fault.as_ref()?)));
    let table = page::table("run | why", rows);
    if table.is_empty() { table } else { format!("\n## Runs that count for nothing\n\n{table}") }
}

impl Section<'_> {
    /// Writes its tables and its plot; returns what was held against targets.
    fn write(&self, text: &mut String, page: &Path) -> Result<Vec<Finding>> {
        writeln!(text, "\n## {}", words(self.kind))?;
        let mut findings = Vec::new();
        if let Some(plot) = windows::write(text, &self.results) {
            let run = self.results.first().context("a section has results")?.run.name();
            let file = format!("benefit-{}-bound.svg", run.split('/').next().unwrap_or_default());
            let what = "part of all paths and sizes that end within a multiple of the bound";
            *text += &page::plot(page, &file, what, &plot)?;
        }
        let all = scenarios::all();
        let mut families: Vec<&Scenario> = all.iter().collect();
        families.dedup_by_key(|scenario| scenario.family);
        for Scenario { family, question, .. } in families {
            let parts: Vec<String> =
                all.iter().filter(|scenario| scenario.family == *family).map(Scenario::name).collect();
            let results: Vec<&RunResult> =
                self.results.iter().copied().filter(|result| parts.contains(&result.run.scenario)).collect();
            if results.is_empty() {
                continue;
            }
            let mut seeds: Vec<u64> = results.iter().map(|result| result.run.seed).collect();
            seeds.sort_unstable();
            seeds.dedup();
            let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
            let many = if seeds.len() == 1 { "1 seed" } else { &format!("{} seeds", seeds.len()) };
            writeln!(text, "\n### {family} ({}; {many}: {})", words(self.kind), seeds.join(", "))?;
            findings.extend(match question {
                Question::Alone
                | Question::Together
                | Question::Grid
                | Question::Rough
                | Question::Burst
                | Question::OnBbr => tables::against(text, &results, *question),
                Question::Crowd => crowd::write(text, &results),
                Question::Harm => harm::write(text, &results),
                Question::Fairness => tables::fairness(text, &results, family.trim_start_matches("fairness-")),
                Question::FirstFlight => {
                    let which = if *family == "flight-active" { "server" } else { "client" };
                    tables::flights(text, &results, which)
                }
            });
        }
        Ok(findings)
    }
}

/// The tables of the scenarios that show where advice might harm, for who ran them.
pub fn harm(results: &[RunResult]) -> String {
    let mut text = String::new();
    let all = scenarios::all();
    for scenario in all.iter().filter(|scenario| scenario.question == Question::Harm) {
        let of_it = |result: &&RunResult| result.run.scenario == scenario.name() && result.fault.is_none();
        let results: Vec<&RunResult> = results.iter().filter(of_it).collect();
        if !results.is_empty() {
            writeln!(text, "\n{}", scenario.name()).ok();
            harm::write(&mut text, &results);
        }
    }
    text
}

/// A run in a few lines, for who ran it.
pub fn summary(result: &RunResult) -> String {
    let mut text = format!("{}: ", result.run.name());
    match &result.fault {
        Some(fault) => writeln!(text, "counts for nothing: {fault}").ok(),
        None => writeln!(text, "{} transfers in {:.0} s", result.transfers.len(), result.seconds).ok(),
    };
    let mut arms: Vec<&str> = result.transfers.iter().map(|transfer| transfer.arm.as_str()).collect();
    arms.sort_unstable();
    arms.dedup();
    for arm in arms {
        for case in cases(&[result], arm) {
            if let Some(side) = side(&[result], &case, Which::of(arm)) {
                writeln!(
                    text,
                    "  {:<28} {:>9} B  {arm:<22} mean {:>7.1} median {:>7.1} p95 {:>7.1} bound {:>7.1} ms, repeats {:.2}, first \
                     flight {:.1} ({})",
                    case.case,
                    case.bytes,
                    side.mean.value,
                    side.median,
                    side.p95,
                    side.bound_ms,
                    side.again,
                    side.first_flight,
                    side.transfers
                )
                .ok();
            }
        }
    }
    for learnt in &result.learnt {
        writeln!(
            text,
            "  {}: share {:?} to {:?} after {} transfers; agent: {}",
            learnt.case,
            learnt.share_before,
            learnt.share_after,
            learnt.transfers,
            learnt.agent.as_deref().unwrap_or("none")
        )
        .ok();
    }
    if let Some(flights) = &result.flights {
        writeln!(text, "  {flights:?}").ok();
    }
    text
}
