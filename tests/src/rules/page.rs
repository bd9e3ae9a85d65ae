//! The results page.

use std::path::Path;

use anyhow::Result;
use strum::VariantArray;

use super::judge::{Figure, judge};
use super::scenario::Question;
use super::series::Series;
use super::variants::{self, Variant};
use crate::campaign::page::{self, list, percent, sorted, table};

/// A rule's figures on a recording.
struct Judged<'a> {
    series: &'a Series,
    variant: &'static Variant,
    figures: Vec<Figure>,
}

impl Judged<'_> {
    fn is_default(&self) -> bool {
        self.variant.name == "robust"
    }
}

impl Figure {
    fn is_missed(&self) -> bool {
        self.most.is_some_and(|most| self.value.abs() > most)
    }
}

/// Writes the page.
pub fn write(page: &Path, header: &str, all: &[Series]) -> Result<()> {
    let mut judged = Vec::new();
    for series in all {
        judged.extend(variants::ALL.iter().map(|variant| Judged {
            series,
            variant,
            figures: judge(series, variant.rule),
        }));
    }
    let default: Vec<&Judged<'_>> = judged.iter().filter(|judged| judged.is_default()).collect();
    let mut text = format!("# Which rule\n\n{header}\n{}", missed(&default));
    for &question in Question::VARIANTS {
        text += &of_question(question, &judged);
    }
    page::add(
        &mut text,
        &format!(
            "\n## The recordings, and every figure of the default\n\n{}",
            table(
                "recording | what | samples | packets | late by 1 ms | figures",
                default.iter().map(|one| recording(one))
            )
        ),
    );
    let rules = variants::ALL.iter().map(|variant| format!("{} | {}", variant.name, variant.what));
    page::add(&mut text, &format!("\n## The rules\n\n{}", table("name | what", rules)));
    page::write(page, &text)
}

fn missed(default: &[&Judged<'_>]) -> String {
    let figures = || default.iter().flat_map(|judged| judged.figures.iter().map(move |figure| (judged, figure)));
    let asked = figures().filter(|(_, figure)| figure.most.is_some()).count();
    let rows: Vec<(f64, String)> = figures()
        .filter(|(_, figure)| figure.is_missed())
        .map(|(judged, figure)| {
            let most = figure.most.unwrap_or_default();
            let (recording, value) = (&judged.series.scenario.name, percent(figure.value));
            (figure.value.abs() / most, format!("{recording} | {} | {value} | {:.0} %", figure.name, most * 100.0))
        })
        .collect();
    let count = rows.len();
    let table = sorted("recording | figure | value | target", rows);
    format!("\n## What the default misses\n\n{count} of {asked} figures that have a target.\n\n{table}")
}

fn of_question(question: Question, judged: &[Judged<'_>]) -> String {
    let (heading, what) = question.words();
    let of: Vec<_> = judged.iter().filter(|judged| judged.series.scenario.question == question).collect();
    let names: Vec<&str> =
        of.iter().filter(|judged| judged.is_default()).map(|judged| judged.series.scenario.name.as_str()).collect();
    let cell = |judged: &&&Judged<'_>| {
        let shown = question.columns().iter().filter_map(|column| judged.figures.get(*column));
        let cells = shown.map(|figure| {
            let value = percent(figure.value);
            if figure.is_missed() { format!("**{value}**") } else { value }
        });
        cells.collect::<Vec<_>>().join(" / ")
    };
    let row = |variant: &Variant| {
        let own = of.iter().filter(|judged| judged.variant.name == variant.name);
        format!("{} | {}", variant.name, own.map(|judged| cell(&judged)).collect::<Vec<_>>().join(" | "))
    };
    let rows = variants::ALL.iter().map(row);
    format!("\n## {heading}\n\n{what} Bold: missed.\n\n{}", table(&format!("rule | {}", names.join(" | ")), rows))
}

fn recording(Judged { series, figures, .. }: &Judged<'_>) -> String {
    let health = &series.recorded.health;
    format!(
        "{} | {} | {} | {} | {:.2} % | {}",
        series.scenario.name,
        series.scenario.words(),
        series.samples.len(),
        health.delivered,
        health.late_1ms as f64 / health.delivered.max(1) as f64 * 100.0,
        list(figures.iter().map(|figure| format!("{} {}", figure.name, percent(figure.value))))
    )
}
