//! The results page.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use strum::VariantArray;

use super::judge::{Figure, judge};
use super::kept::Kept;
use super::scenario::{CHANGES_S, Question};
use super::series::Series;
use super::variants::{self, Variant};
use crate::plot::{Axis, Mark, Plot, Series as Line};

/// Networks of the accuracy campaign that the page lists.
const NETWORKS_LISTED: usize = 15;
/// Seconds over which the kernel's peaks are averaged in the plot.
const PLOT_S: f64 = 10.0;

/// Whether a network is of a group.
type IsIn = fn(&Kept) -> bool;

/// A rule's figures on a recording.
struct Judged<'a> {
    series: &'a Series,
    variant: &'static Variant,
    figures: Vec<Figure>,
}

/// Writes the page and its plots beside it.
pub fn write(page: &Path, header: &str, all: &[Series], kept: &[Kept]) -> Result<()> {
    let judged: Vec<Judged<'_>> = all
        .iter()
        .flat_map(|series| {
            variants::ALL.iter().map(move |variant| Judged { series, variant, figures: judge(series, variant.rule) })
        })
        .collect();
    let mut text = format!("# Which rule\n\n{header}\n");
    missed(&mut text, &judged)?;
    for &question in Question::VARIANTS {
        table(&mut text, question, &judged)?;
    }
    networks(&mut text, kept)?;
    recordings(&mut text, all, &judged)?;
    writeln!(text, "\n## The rules\n\n| name | what |\n| --- | --- |")?;
    variants::ALL.iter().try_for_each(|variant| writeln!(text, "| {} | {} |", variant.name, variant.what))?;
    plots(&mut text, page, all)?;
    std::fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

fn percent(value: f64) -> String {
    format!("{:+.1} %", value * 100.0)
}

fn is_missed(figure: &Figure) -> bool {
    figure.most.is_some_and(|most| figure.value.abs() > most)
}

fn missed(text: &mut String, judged: &[Judged<'_>]) -> Result<()> {
    let default: Vec<_> = judged.iter().filter(|judged| judged.variant.name == "robust").collect();
    let asked = default.iter().flat_map(|judged| &judged.figures).filter(|figure| figure.most.is_some()).count();
    let mut rows: Vec<(f64, String)> = Vec::new();
    for judged in &default {
        for figure in judged.figures.iter().filter(|figure| is_missed(figure)) {
            let most = figure.most.unwrap_or_default();
            let row = format!(
                "| {} | {} | {} | {:.0} % |",
                judged.series.scenario.name,
                figure.name,
                percent(figure.value),
                most * 100.0
            );
            rows.push((figure.value.abs() / most, row));
        }
    }
    rows.sort_by(|one, next| next.0.total_cmp(&one.0));
    writeln!(text, "\n## What the default misses\n\n{} of {asked} figures that have a target.\n", rows.len())?;
    if !rows.is_empty() {
        writeln!(text, "| recording | figure | value | target |\n| --- | --- | --- | --- |")?;
    }
    rows.iter().try_for_each(|(_, row)| writeln!(text, "{row}"))?;
    Ok(())
}

fn table(text: &mut String, question: Question, judged: &[Judged<'_>]) -> Result<()> {
    let (heading, what) = question.words();
    let of: Vec<_> = judged.iter().filter(|judged| judged.series.scenario.question == question).collect();
    let columns: Vec<_> =
        of.iter().filter(|judged| judged.variant.name == "robust").map(|judged| judged.series).collect();
    writeln!(text, "\n## {heading}\n\n{what} Bold: missed.\n")?;
    let names: Vec<&str> = columns.iter().map(|series| series.scenario.name.as_str()).collect();
    writeln!(text, "| rule | {} |\n| --- |{}", names.join(" | "), " --- |".repeat(names.len()))?;
    for variant in variants::ALL {
        let cells: Vec<String> = of
            .iter()
            .filter(|judged| judged.variant.name == variant.name)
            .map(|judged| {
                let shown = question.columns().iter().filter_map(|column| judged.figures.get(*column));
                let cells: Vec<String> = shown
                    .map(|figure| {
                        let value = percent(figure.value);
                        if is_missed(figure) { format!("**{value}**") } else { value }
                    })
                    .collect();
                cells.join(" / ")
            })
            .collect();
        writeln!(text, "| {} | {} |", variant.name, cells.join(" | "))?;
    }
    Ok(())
}

fn networks(text: &mut String, kept: &[Kept]) -> Result<()> {
    if kept.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\n## The networks of the accuracy campaign\n\nEstimates at the end of each Reno or CUBIC cell ([the campaign](accuracy.md)), from the same recordings. `spand` is held against the mean of the kernel's windows at its own samples, `robust` against the mean share of the kernel's peaks: that is what it is to find, and where there were ten or more. Below one segment counts as within.\n"
    )?;
    writeln!(text, "| networks | `spand` within 5 % | `robust` within 15 % |\n| --- | --- | --- |")?;
    let groups: [(&str, IsIn); 4] = [
        ("16 flows", |kept| kept.flows == "16"),
        ("4 flows", |kept| kept.flows == "4"),
        ("1 flow", |kept| kept.flows == "1"),
        ("all, with 100 samples or more", |kept| kept.samples >= 100),
    ];
    for (name, is_in) in groups {
        let count = |part: fn(&Kept) -> Option<(f64, f64)>, most: f64| {
            let all: Vec<_> = kept.iter().filter(|kept| is_in(kept)).filter_map(part).collect();
            let within = all.iter().filter(|(estimate, truth)| is_within(*estimate, *truth, most)).count();
            format!("{within} of {}", all.len())
        };
        writeln!(text, "| {name} | {} | {} |", count(Kept::plain, 0.05), count(Kept::peaks, 0.15))?;
    }
    let mut worst: Vec<_> = kept.iter().filter_map(|kept| Some((kept, kept.peaks()?))).collect();
    worst.retain(|(_, (estimate, truth))| !is_within(*estimate, *truth, 0.15));
    worst.sort_by(|one, next| {
        let off = |(estimate, truth): (f64, f64)| (estimate / truth).ln().abs();
        off(next.1).total_cmp(&off(one.1))
    });
    writeln!(text, "\nFurthest under `robust`, of {}:\n", worst.len())?;
    writeln!(
        text,
        "| cell | what | `robust` | peaks | off | peaks, losses, ends |\n| --- | --- | --- | --- | --- | --- |"
    )?;
    for (kept, (estimate, truth)) in worst.iter().take(NETWORKS_LISTED) {
        let off = percent(estimate / truth - 1.0);
        let counts = format!("{}, {}, {}", kept.kernel_peaks, kept.losses, kept.ends);
        writeln!(text, "| {} | {} | {estimate:.1} | {truth:.1} | {off} | {counts} |", kept.number, kept.what)?;
    }
    Ok(())
}

fn is_within(estimate: f64, truth: f64, most: f64) -> bool {
    (estimate / truth - 1.0).abs() <= most || (estimate - truth).abs() < 1.0
}

fn recordings(text: &mut String, all: &[Series], judged: &[Judged<'_>]) -> Result<()> {
    writeln!(text, "\n## The recordings, and every figure of the default\n")?;
    writeln!(
        text,
        "| recording | what | samples | packets | late by 1 ms | figures |\n| --- | --- | --- | --- | --- | --- |"
    )?;
    for series in all {
        let of = judged
            .iter()
            .find(|judged| judged.variant.name == "robust" && judged.series.scenario.name == series.scenario.name);
        let figures: Vec<String> = of
            .into_iter()
            .flat_map(|judged| &judged.figures)
            .map(|figure| format!("{} {}", figure.name, percent(figure.value)))
            .collect();
        let health = &series.recorded.health;
        writeln!(
            text,
            "| {} | {} | {} | {} | {:.2} % | {} |",
            series.scenario.name,
            series.scenario.words(),
            series.samples.len(),
            health.delivered,
            health.late_1ms as f64 / health.delivered.max(1) as f64 * 100.0,
            figures.join("; ")
        )?;
    }
    Ok(())
}

fn plots(text: &mut String, page: &Path, all: &[Series]) -> Result<()> {
    writeln!(text, "\n## Plots\n")?;
    for name in ["step-4-cubic", "step-16-reno", "peaks-16-cubic"] {
        let Some(series) = all.iter().find(|series| series.scenario.name == name) else { continue };
        let line = |variant: &Variant| {
            let points = series.estimates(variant.rule, |_| true);
            let points = points.iter().filter_map(|point| Some((point.at_s, point.share?))).collect();
            (variant.name.to_owned(), points)
        };
        let mut lines: Vec<(String, Vec<(f64, f64)>)> =
            variants::ALL.iter().filter(|variant| ["spand", "robust"].contains(&variant.name)).map(line).collect();
        let mut kernel = Vec::new();
        let mut from = 0.0;
        while from < series.scenario.seconds as f64 {
            let mean = super::judge::mean(series, |kernel, at| kernel.peak && (from..from + PLOT_S).contains(&at));
            kernel.extend(mean.map(|mean| (from + PLOT_S / 2.0, mean)));
            from += PLOT_S;
        }
        lines.push(("kernel's peaks".to_owned(), kernel));
        let title = match series.scenario.question {
            Question::Follow => {
                format!("{name}: the bottleneck halves after {} s and doubles after {} s", CHANGES_S[0], CHANGES_S[1])
            }
            _ => name.to_owned(),
        };
        let file = page.with_file_name(format!("rules-{name}.svg"));
        let plot = Plot {
            title: title.clone(),
            x: Axis::new("time", "s"),
            y: Axis::new("share of the path", "segments"),
            series: lines
                .into_iter()
                .enumerate()
                .map(|(colour, (name, points))| Line { name, mark: Mark::Line, colour, points })
                .collect(),
        };
        std::fs::write(&file, plot.svg()?).with_context(|| format!("cannot write {}", file.display()))?;
        writeln!(text, "![{title}](rules-{name}.svg)\n")?;
    }
    while text.ends_with("\n\n") {
        text.pop();
    }
    Ok(())
}
