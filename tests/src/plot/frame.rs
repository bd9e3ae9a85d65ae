//! What every plot has around its data: title, legend, axes.

use std::ops::Range;

use anyhow::Result;
use plotters::chart::{ChartBuilder, ChartContext};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::prelude::{BLACK, Cartesian2d, Circle, PathElement, RGBColor, SVGBackend, TRANSPARENT, Text, WHITE};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, IntoTextStyle, TextStyle};

use super::{Axis, Scale};

/// Size of every plot.
pub(super) const WIDTH: u32 = 1_200;
pub(super) const HEIGHT: u32 = 640;
/// Room for the vertical axis' numbers and its title.
const Y_LABELS: u32 = 100;
/// Strength of lines.
pub(super) const LINE_WIDTH: u32 = 2;
const TITLE_PX: f64 = 24.0;
const TEXT_PX: f64 = 18.0;
const MARGIN: u32 = 20;
/// So that the last number of the horizontal axis is whole.
const MARGIN_RIGHT: u32 = 44;
const TITLE_HEIGHT: i32 = 48;
const KEY_HEIGHT: i32 = 28;
const SWATCH_WIDTH: i32 = 32;
/// Between a swatch, its name, and the next swatch.
const KEY_GAPS: (i32, i32) = (8, 30);
const X_LABELS: u32 = 66;
const GRID: RGBColor = RGBColor(221, 221, 221);

/// What draws data.
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Coord, Coord>>;

/// How the legend shows a series.
#[derive(Clone, Copy, Debug)]
pub(super) enum Swatch {
    Line,
    Dashed,
    Dot,
}

/// One entry of the legend.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) colour: RGBColor,
    pub(super) swatch: Swatch,
}

/// A plot without its data.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    /// Titles of both axes.
    pub(super) axes: (&'a str, &'a str),
    pub(super) keys: Vec<Key>,
}

impl Frame<'_> {
    /// The SVG file; `draw` puts the data in.
    pub(super) fn svg(
        &self,
        x: Coord,
        y: Coord,
        draw: &mut dyn FnMut(&mut Chart<'_, '_>, Coord, Coord) -> Result<()>,
    ) -> Result<String> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
            root.fill(&WHITE)?;
            let left = MARGIN.cast_signed();
            let title = text(TITLE_PX).pos(Pos::new(HPos::Left, VPos::Top));
            root.draw(&Text::new(self.title.to_owned(), (left, MARGIN.cast_signed()), title))?;
            let top = self.legend(&root, (left, TITLE_HEIGHT))?;
            let (_, area) = root.split_vertically(top);
            let mut chart = ChartBuilder::on(&area)
                .margin(MARGIN)
                .margin_right(MARGIN_RIGHT)
                .x_label_area_size(X_LABELS)
                .y_label_area_size(Y_LABELS)
                .build_cartesian_2d(x, y)?;
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID)
                .axis_style(BLACK)
                .x_labels(10)
                .y_labels(8)
                .x_label_formatter(&|value| number(*value))
                .y_label_formatter(&|value| number(*value))
                .label_style(text(TEXT_PX))
                .axis_desc_style(text(TEXT_PX))
                .x_desc(self.axes.0)
                .y_desc(self.axes.1)
                .draw()?;
            draw(&mut chart, x, y)?;
            root.present()?;
        }
        Ok(svg)
    }

    /// Draws the legend from `at` on, in as many rows as it needs; returns where it ends.
    fn legend(&self, root: &DrawingArea<SVGBackend<'_>, Shift>, at: (i32, i32)) -> Result<i32> {
        let style = text(TEXT_PX).pos(Pos::new(HPos::Left, VPos::Center));
        let (mut left, mut middle) = (at.0, at.1 + KEY_HEIGHT / 2);
        for key in &self.keys {
            let (width, _) = root.estimate_text_size(&key.name, &style)?;
            let width = SWATCH_WIDTH + KEY_GAPS.0 + width.cast_signed();
            if left > at.0 && left + width > WIDTH.cast_signed() - MARGIN.cast_signed() {
                (left, middle) = (at.0, middle + KEY_HEIGHT);
            }
            key.draw(root, (left, middle))?;
            root.draw(&Text::new(key.name.clone(), (left + SWATCH_WIDTH + KEY_GAPS.0, middle), style.clone()))?;
            left += width + KEY_GAPS.1;
        }
        Ok(middle + KEY_HEIGHT / 2)
    }
}

impl Key {
    fn draw(&self, root: &DrawingArea<SVGBackend<'_>, Shift>, (x, y): (i32, i32)) -> Result<()> {
        let right = x + SWATCH_WIDTH;
        let line = |from: (i32, i32), to: (i32, i32)| {
            PathElement::new(vec![from, to], self.colour.stroke_width(LINE_WIDTH + 1))
        };
        match self.swatch {
            Swatch::Line => root.draw(&line((x, y), (right, y)))?,
            Swatch::Dashed => {
                root.draw(&line((x, y), (x + 12, y)))?;
                root.draw(&line((x + 20, y), (right, y)))?;
            }
            Swatch::Dot => root.draw(&Circle::new((i32::midpoint(x, right), y), 5, self.colour.filled()))?,
        }
        Ok(())
    }
}

/// Text of a size on the page: the backend divides what it gets by 1.24.
fn text<'a>(px: f64) -> TextStyle<'a> {
    ("sans-serif", px * 1.24, &BLACK).into_text_style(&(WIDTH, WIDTH))
}

// Where values lie along an axis, and where its ticks are.

/// Room beyond the outermost values: part of the axis.
const ROOM: f64 = 0.04;
/// Decades up to which 2 and 5 of each have ticks as well.
const DECADES_WITH_MORE: f64 = 3.0;

/// One axis.
#[derive(Clone, Copy, Debug)]
pub(super) enum Coord {
    /// In proportion.
    Linear(f64, f64),
    /// By the logarithm.
    Log(f64, f64),
}

impl Coord {
    /// As long as `axis` demands or its values need.
    pub(super) fn new(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        let (mut low, mut high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        match (axis.scale, axis.range) {
            (Scale::Linear, Some((low, high))) => Self::Linear(low, high),
            (Scale::Log, Some((low, high))) => Self::Log(low, high),
            (Scale::Linear, None) => {
                let low = low.min(0.0);
                let room = if high > low { (high - low) * ROOM } else { 1.0 };
                Self::Linear(if low < 0.0 { low - room } else { low }, high + room)
            }
            (Scale::Log, None) => {
                let room = (high / low).powf(ROOM).max(1.1);
                Self::Log(low / room, high * room)
            }
        }
    }

    fn ends(&self) -> (f64, f64) {
        match *self {
            Self::Linear(low, high) | Self::Log(low, high) => (low, high),
        }
    }

    /// The value, or the end that it lies beyond.
    pub(super) fn clamp(&self, value: f64) -> f64 {
        let (one, other) = self.ends();
        value.clamp(one.min(other), one.max(other))
    }
}

impl Ranged for Coord {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let (low, high) = self.ends();
        match self {
            Self::Linear(..) => RangedCoordf64::from(low..high).map(value, limit),
            Self::Log(..) => RangedCoordf64::from(low.log10()..high.log10()).map(&value.log10(), limit),
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let (low, high) = self.ends();
        match *self {
            Self::Linear(..) => RangedCoordf64::from(low..high).key_points(hint),
            Self::Log(..) => decades(low, high),
        }
    }

    fn range(&self) -> Range<f64> {
        let (low, high) = self.ends();
        low..high
    }
}

/// Ticks of a logarithmic axis: powers of ten, and where these are few, 2 and 5 of each.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let of_each: &[f64] = if (high / low).log10() > DECADES_WITH_MORE { &[1.0] } else { &[1.0, 2.0, 5.0] };
    // What `f64` can hold: no axis reaches further.
    let exponents = (-300..=300).filter(|exponent| {
        let decade = f64::from(*exponent);
        decade >= low.log10().floor() && decade <= high.log10()
    });
    // A division keeps 0.1 what it is.
    let power = |exponent: i32| if exponent < 0 { 1.0 / 10_f64.powi(-exponent) } else { 10_f64.powi(exponent) };
    exponents
        .flat_map(|exponent| of_each.iter().map(move |digit| digit * power(exponent)))
        .filter(|tick| (low..=high).contains(tick))
        .collect()
}

/// A tick's number: no zeros that say nothing, and thousands set apart.
pub(super) fn number(value: f64) -> String {
    let text = format!("{:.6}", value.abs());
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let rest = rest.trim_end_matches('0');
    let mut digits = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            digits.push(',');
        }
        digits.push(digit);
    }
    let is_zero = digits == "0" && rest.is_empty();
    let sign = if value < 0.0 && !is_zero { "-" } else { "" };
    if rest.is_empty() { format!("{sign}{digits}") } else { format!("{sign}{digits}.{rest}") }
}
