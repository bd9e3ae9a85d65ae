//! The papers' figures as plots, beside what the papers say of them, from `rows.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use spand_proto::timer::{BsdTimer, scheduled};

use super::query::{Filling, Lists, value};
use super::result::Results;
use super::row::{Outcomes, Row};
use crate::campaign::page;
use crate::plot::{Axis, Mark, Plot, Series};

#[derive(Deserialize)]
struct Sheet {
    plot_lists: Lists,
    plot: Vec<Written>,
}

/// Plots as they are written. Texts are templates.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// A plot for each combination of these lists' entries.
    #[serde(default)]
    each: Vec<String>,
    /// Whose results it shows.
    row: String,
    file: String,
    title: String,
    x: [String; 2],
    y: [String; 2],
    /// Of the vertical axis.
    within: Option<(f64, f64)>,
    /// The list whose first fields are the horizontal values.
    at: String,
    lines: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    name: String,
    #[serde(default)]
    mark: Style,
    colour: usize,
    row: Option<String>,
    at: Option<String>,
    /// The query of each point, or all points.
    y: Option<String>,
    #[serde(default)]
    points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Style {
    #[default]
    Line,
    Dashed,
    Dots,
}

/// Writes every plot into `folder`.
pub fn write(folder: &Path, results: &Results, rows: &[Row]) -> Result<()> {
    all(results, rows)?.into_iter().try_for_each(|(name, svg)| page::write(&folder.join(name), &svg))
}

/// Every plot of which something was measured, by its file's name.
pub fn all(results: &Results, rows: &[Row]) -> Result<Vec<(String, String)>> {
    let outcomes: BTreeMap<&str, Outcomes> = rows.iter().map(|row| (row.id.as_str(), results.of_row(row).0)).collect();
    let sheet: Sheet = toml::from_str(include_str!("rows.toml"))?;
    let mut plots = vec![("papers-aron-6.svg".to_owned(), timeouts())];
    for written in &sheet.plot {
        for filling in Filling::each(&sheet.plot_lists, &written.each)? {
            let file = filling.text(&written.file)?;
            plots.push((file.clone(), written.plot(&outcomes, &sheet.plot_lists, &filling).context(file)?));
        }
    }
    // Names of series that begin so show what a paper says.
    let measured = |series: &Series| !series.name.starts_with("paper: ") && !series.points.is_empty();
    plots
        .into_iter()
        .filter(|(_, plot)| plot.series.iter().any(measured))
        .map(|(file, plot)| plot.svg().with_context(|| file.clone()).map(|svg| (file, svg)))
        .collect()
}

impl Written {
    fn plot(&self, outcomes: &BTreeMap<&str, Outcomes>, lists: &Lists, filling: &Filling) -> Result<Plot> {
        let axis =
            |[what, unit]: &[String; 2]| Ok::<_, anyhow::Error>(Axis::new(filling.text(what)?, filling.text(unit)?));
        let mut series = Vec::new();
        for line in &self.lines {
            let row = filling.text(line.row.as_ref().unwrap_or(&self.row))?;
            let outcomes = outcomes.get(row.as_str()).with_context(|| format!("there is no row {row}"))?;
            let mut points = line.points.clone();
            for at in filling.over(lists, &filling.text(line.at.as_ref().unwrap_or(&self.at))?, "at")? {
                let Some(y) = &line.y else { break };
                let found = value(outcomes, &at.text(y)?)?;
                points.extend(found.map(|mean| Ok::<_, anyhow::Error>((at.number("at")?, mean.value))).transpose()?);
            }
            let mark = match line.mark {
                Style::Line => Mark::Line,
                Style::Dashed => Mark::Dashed,
                Style::Dots => Mark::Dots,
            };
            series.push(Series { name: filling.text(&line.name)?, mark, colour: line.colour, points });
        }
        let y = axis(&self.y)?;
        let y = match self.within {
            Some((low, high)) => y.within(low, high),
            None => y,
        };
        Ok(Plot { title: filling.text(&self.title)?, x: axis(&self.x)?, y, series })
    }
}

/// Round trips of Aron & Druschel's Figure 6 by a clock of half a second and by one of a millisecond.
const MEASURED: [(u32, u32); 12] =
    [(0, 60), (0, 150), (1, 60), (0, 60), (0, 61), (0, 60), (0, 61), (0, 60), (0, 60), (0, 61), (0, 60), (1, 61)];

/// That figure, by the product's own timers.
fn timeouts() -> Plot {
    let (mut coarse, mut fine) = (BsdTimer::default(), BsdTimer::default());
    let mut lines: [Vec<(f64, f64)>; 4] = Default::default();
    for (n, (coarse_rtt, fine_rtt)) in (1_u32..).zip(MEASURED) {
        let timeout = fine.measured(fine_rtt);
        let values = [
            f64::from(fine_rtt),
            coarse.measured(coarse_rtt) as f64 * 500.0,
            scheduled(timeout, 1_000, 2) as f64 * 500.0,
            timeout as f64,
        ];
        lines.iter_mut().zip(values).for_each(|(line, value)| line.push((f64::from(n), value)));
    }
    let kinds = [
        ("round trip", Mark::Dots, 5),
        ("original, clock of 500 ms", Mark::Line, 0),
        ("measured by 1 ms, scheduled by 500 ms", Mark::Line, 1),
        ("measured and scheduled by 1 ms", Mark::Line, 2),
    ];
    let series = |((name, mark, colour), points): ((&str, Mark, usize), _)| Series {
        name: name.to_owned(),
        mark,
        colour,
        points,
    };
    Plot {
        title: "Aron & Druschel, Figure 6: the timeout after each round trip; the paper's values exactly".to_owned(),
        x: Axis::new("round trip measured", ""),
        y: Axis::new("time", "ms"),
        series: kinds.into_iter().zip(lines).map(series).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::papers::rows;

    #[test]
    fn without_a_result_only_what_is_computed_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let none = Results::open(folder.path(), &folder.path().join("none")).unwrap();
        let plots = all(&none, &rows::all().unwrap()).unwrap();
        let names: Vec<&str> = plots.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["papers-aron-6.svg"]);
    }
}
