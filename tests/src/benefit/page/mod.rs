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

use anyhow::{Context, Result};

use self::cells::{Which, cases, side};
use self::starts::Finding;
use self::tables::{Summary, percent};
use super::result::{Learning, Run, RunResult};
use super::scenario::{Question, Scenario};
use super::scenarios;
use crate::lab::path::Carrier;
use crate::plot::{Axis, Bars};
use crate::product::{ApplyMethod, Mode, StartVariant};

/// Runs that stand in one section: how starts were applied, the mode, whether sizes were stated, what was learnt from, what
/// starts were made of, what carried the paths.
type Kind = (ApplyMethod, Mode, bool, Learning, StartVariant, Carrier);

/// One section of the page.
struct Section<'a> {
    kind: Kind,
    results: Vec<&'a RunResult>,
}

/// Writes the page, and its plots beside it.
pub fn write(page: &Path, results: &[RunResult]) -> Result<()> {
    if let Some(folder) = page.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
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
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
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
         [the method](../benefit.md).\n",
        results.len(),
        seconds / 60.0,
        kernels.join(", "),
        std::thread::available_parallelism().map_or(0, usize::from),
        loads.fold(0.0, f64::max),
    )
}

fn verdicts(text: &mut String, mut findings: Vec<(Kind, Finding)>) {
    findings.retain(|(kind, _)| kind.0 != ApplyMethod::None);
    let mut missed: Vec<_> = findings.iter().filter(|(_, finding)| finding.is_missed()).collect();
    missed.sort_by(|a, b| b.1.beyond.total_cmp(&a.1.beyond));
    writeln!(text, "\n## Short of its target: {} of {} figures\n", missed.len(), findings.len()).ok();
    text.push_str("| figure | section | found | target |\n| --- | --- | --- | --- |\n");
    for (kind, Finding { what, found, target, .. }) in missed {
        writeln!(text, "| {what} | {} | {found} | {target} |", words(*kind)).ok();
    }
}

fn faults(results: &[RunResult]) -> String {
    let mut text = String::new();
    for result in results {
        if let Some(fault) = &result.fault {
            writeln!(text, "| {} | {fault} |", result.run.name()).ok();
        }
    }
    if text.is_empty() {
        text
    } else {
        format!("\n## Runs that count for nothing\n\n| run | why |\n| --- | --- |\n{text}")
    }
}

impl Section<'_> {
    /// Writes its tables and plots; returns what was held against targets.
    fn write(&self, text: &mut String, page: &Path) -> Result<Vec<Finding>> {
        writeln!(text, "\n## {}", words(self.kind))?;
        let mut findings = Vec::new();
        if let Some(plot) = windows::write(text, &self.results) {
            let file = self.plot_file("bound")?;
            let place = page.with_file_name(&file);
            std::fs::write(&place, plot.svg()?).with_context(|| format!("cannot write {}", place.display()))?;
            writeln!(text, "\n![part of all paths and sizes that end within a multiple of the bound]({file})")?;
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
            let summary = match question {
                Question::Alone | Question::Together | Question::Grid | Question::Rough | Question::OnBbr => {
                    tables::against(text, &results, *question)
                }
                Question::Crowd => crowd::write(text, &results),
                Question::Harm => harm::write(text, &results),
                Question::Fairness => tables::fairness(text, &results, family.trim_start_matches("fairness-")),
                Question::Burst => {
                    let mut summary = tables::against(text, &results, *question);
                    summary.findings.extend(tables::burst(text, &results).findings);
                    summary
                }
                Question::FirstFlight => {
                    let which = if *family == "flight-active" { "server" } else { "client" };
                    tables::flights(text, &results, which)
                }
            };
            self.plot(text, page, family, &summary)?;
            shares(text, &results)?;
            findings.extend(summary.findings);
        }
        findings.extend(self.repeats(text)?);
        Ok(findings)
    }

    fn plot(&self, text: &mut String, page: &Path, name: &str, summary: &Summary) -> Result<()> {
        if summary.bars.is_empty() {
            return Ok(());
        }
        let file = self.plot_file(name)?;
        let plot = Bars {
            title: format!("{name}: change of completion time, {}", words(self.kind).replace('`', "")),
            what: "change of the mean completion time".to_owned(),
            rows: Axis::new("path", "size"),
            bars: summary.bars.clone(),
        };
        let place = page.with_file_name(&file);
        std::fs::write(&place, plot.svg()?).with_context(|| format!("cannot write {}", place.display()))?;
        Ok(writeln!(text, "\n![change of completion time with its interval, and the target]({file})")?)
    }

    /// A plot of this section is called so.
    fn plot_file(&self, name: &str) -> Result<String> {
        let run = self.results.first().context("a section has results")?.run.name();
        let folder = run.split('/').next().unwrap_or_default();
        Ok(format!("benefit-{folder}-{name}.svg"))
    }

    /// Repeated packets over all cases with a CUBIC beside the product.
    fn repeats(&self, text: &mut String) -> Result<Option<Finding>> {
        let (mut ours, mut theirs) = (0.0, 0.0);
        for case in cases(&self.results, "product") {
            let of = |arm| side(&self.results, &case, Which::of(arm));
            if let (Some(is), Some(was)) = (of("product"), of("cubic")) {
                ours += is.again;
                theirs += was.again;
            }
        }
        if theirs == 0.0 {
            return Ok(None);
        }
        let ratio = ours / theirs;
        writeln!(text, "\nRepeats a transfer, summed over all cases: cubic {theirs:.2}, product {ours:.2}.")?;
        Ok(Some(Finding {
            what: "repeats over all cases against cubic".to_owned(),
            found: format!("{} of cubic's", percent(ratio).trim_start_matches('+')),
            target: "50.0 % or less".to_owned(),
            beyond: ratio - 0.5,
        }))
    }
}

/// What the gateway had estimated.
fn shares(text: &mut String, results: &[&RunResult]) -> Result<()> {
    let mut paths: Vec<(String, Vec<String>)> = Vec::new();
    for learnt in results.iter().flat_map(|result| &result.learnt) {
        let share = |share: Option<u64>| share.map_or("none".to_owned(), |share| share.to_string());
        let word = format!("{} to {}", share(learnt.share_before), share(learnt.share_after));
        match paths.iter_mut().find(|(case, _)| *case == learnt.case) {
            Some((_, words)) => words.push(word),
            None => paths.push((learnt.case.clone(), vec![word])),
        }
    }
    let words: Vec<String> = paths.iter().map(|(case, words)| format!("{case}: {}", words.join(", "))).collect();
    Ok(writeln!(
        text,
        "\nThe gateway's share in segments, from when timing began to its end, by seed. {}.",
        words.join("; ")
    )?)
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
