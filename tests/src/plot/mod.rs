//! Plots of results as SVG files: a title, axes with their units, and a legend above the plotting area.
//!
//! Rendering is deterministic: the same input gives the same bytes. The background is white, so a plot reads the same on a
//! light and on a dark page.

mod frame;
#[cfg(test)]
mod tests;

use anyhow::Result;
use plotters::prelude::{Circle, DashedLineSeries, LineSeries, RGBColor};
use plotters::style::{Color as _, ShapeStyle};

use self::frame::{Coord, Frame, Key, LINE_WIDTH, Swatch};

/// Colours that stay distinct for colour-blind readers (Okabe and Ito), on white.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(140, 100, 0),
    RGBColor(90, 90, 90),
];
const DOT_RADIUS: u32 = 4;
/// Dash and gap of a dashed line.
const DASH: (u32, u32) = (10, 6);

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Scale {
    /// In proportion; from zero on where no value is below.
    #[default]
    Linear,
    /// By their logarithm: only values above zero can be shown.
    Log,
}

/// What an axis shows.
#[derive(Clone, Debug)]
pub struct Axis {
    what: String,
    unit: String,
    scale: Scale,
    range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis as long as its values need.
    pub fn new(what: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { what: what.into(), unit: unit.into(), scale: Scale::Linear, range: None }
    }

    /// The same with a logarithmic scale.
    #[must_use]
    pub fn log(self) -> Self {
        Self { scale: Scale::Log, ..self }
    }

    /// The same from `low` to `high`, whatever the values are; values beyond are drawn at the edge.
    #[must_use]
    pub fn within(self, low: f64, high: f64) -> Self {
        Self { range: Some((low, high)), ..self }
    }

    fn title(&self) -> String {
        if self.unit.is_empty() { self.what.clone() } else { format!("{} ({})", self.what, self.unit) }
    }

    /// Whether a value has a place on this axis.
    fn holds(&self, value: f64) -> bool {
        value.is_finite() && (self.scale == Scale::Linear || value > 0.0)
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mark {
    /// A line from point to point.
    Line,
    /// The same, dashed.
    Dashed,
    /// A line that stays at a value until the next point.
    Steps,
    /// One dot for each point.
    Dots,
}

/// Points under one name.
#[derive(Clone, Debug)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// How it is drawn.
    pub mark: Mark,
    /// Which of the six colours; counted on from the first after the last.
    pub colour: usize,
    /// Where it goes through, by the first axis in order.
    pub points: Vec<(f64, f64)>,
}

/// Series over two axes.
#[derive(Clone, Debug)]
pub struct Plot {
    /// What it shows, in one line.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, later ones on top.
    pub series: Vec<Series>,
}

impl Plot {
    /// The whole SVG file.
    pub fn svg(&self) -> Result<String> {
        let shown: Vec<Vec<(f64, f64)>> = self.series.iter().map(|series| self.shown(series)).collect();
        let points = || shown.iter().flatten();
        let x = Coord::new(&self.x, points().map(|point| point.0));
        let y = Coord::new(&self.y, points().map(|point| point.1));
        let keys = self.series.iter().map(|series| Key {
            name: series.name.clone(),
            colour: colour(series.colour),
            swatch: match series.mark {
                Mark::Line | Mark::Steps => Swatch::Line,
                Mark::Dashed => Swatch::Dashed,
                Mark::Dots => Swatch::Dot,
            },
        });
        let axes = (self.x.title(), self.y.title());
        let frame = Frame { title: &self.title, axes: (&axes.0, &axes.1), keys: keys.collect() };
        frame.svg(x, y, &mut |chart, x, y| {
            for (series, points) in self.series.iter().zip(&shown) {
                let colour = colour(series.colour);
                let points = points.iter().map(|(a, b)| (x.clamp(*a), y.clamp(*b)));
                match series.mark {
                    Mark::Line => chart.draw_series(LineSeries::new(points, stroke(colour)))?,
                    Mark::Steps => chart.draw_series(LineSeries::new(steps(points), stroke(colour)))?,
                    Mark::Dashed => chart.draw_series(DashedLineSeries::new(points, DASH.0, DASH.1, stroke(colour)))?,
                    Mark::Dots => {
                        let dot = |at| Circle::new(at, DOT_RADIUS, colour.mix(0.7).filled());
                        chart.draw_series(points.map(dot))?
                    }
                };
            }
            Ok(())
        })
    }

    /// The points that have a place.
    fn shown(&self, series: &Series) -> Vec<(f64, f64)> {
        series.points.iter().copied().filter(|(x, y)| self.x.holds(*x) && self.y.holds(*y)).collect()
    }
}

/// Shares of values at or below x in percent: one line for each name, which the legend gives with its count. Values are in
/// percent and shown from 0.1 to 1,000.
pub fn distribution(title: &str, what: &str, series: &[(String, Vec<f64>)]) -> Result<String> {
    /// A few hundred points show what there is.
    const POINTS_MAX: usize = 300;
    let line = |(colour, (name, values)): (usize, &(String, Vec<f64>))| {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let step = sorted.len().div_ceil(POINTS_MAX).max(1);
        let last = sorted.len().saturating_sub(1);
        let points = sorted.iter().enumerate().filter(|(index, _)| index % step == 0 || *index == last);
        Series {
            name: format!("{name} ({})", frame::number(sorted.len() as f64)),
            mark: Mark::Line,
            colour,
            points: points
                // No error at all lies at the left edge.
                .map(|(index, value)| (value.max(0.1), (index + 1) as f64 / sorted.len() as f64 * 100.0))
                .collect(),
        }
    };
    Plot {
        title: title.to_owned(),
        x: Axis::new(what, "%").log().within(0.1, 1_000.0),
        y: Axis::new("samples at or below", "%").within(0.0, 100.0),
        series: series.iter().enumerate().map(line).collect(),
    }
    .svg()
}

fn colour(n: usize) -> RGBColor {
    COLOURS.get(n % COLOURS.len()).copied().unwrap_or(RGBColor(0, 0, 0))
}

fn stroke(colour: RGBColor) -> ShapeStyle {
    colour.stroke_width(LINE_WIDTH)
}

/// The corners of a line that stays at a value until the next point.
fn steps(points: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (x, y) in points {
        if let Some((_, before)) = corners.last().copied() {
            corners.push((x, before));
        }
        corners.push((x, y));
    }
    corners
}
