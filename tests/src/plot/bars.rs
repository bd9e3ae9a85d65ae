//! Relative changes as bars.

use anyhow::{Context, Result};
use plotters::prelude::{BLACK, PathElement, RGBColor, Rectangle};
use plotters::style::Color as _;

use super::frame::{Coord, Frame, Key, LINE_WIDTH, Swatch};
use super::{Axis, COLOURS};

/// Height of a row, and of all that is not rows.
const HEIGHTS: (u32, u32) = (28, 200);
/// Room for the axis' title, and for a character of a row's label.
const LEFT: (u32, u32) = (60, 11);
/// Characters of a label for which there is room.
const LABEL_MAX: usize = 60;
/// Half the height of a bar and of a target's stroke, in rows.
const HALF_BAR: f64 = 0.3;
const HALF_STROKE: f64 = 0.45;

/// A relative change with half the width of its interval, and where it shall be.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What changed.
    pub label: String,
    /// By how much.
    pub value: f64,
    /// Half the width of its interval.
    pub half: f64,
    /// The most that it may be.
    pub mark: Option<f64>,
}

impl Bar {
    fn is_over(&self) -> bool {
        self.mark.is_some_and(|mark| self.value > mark)
    }
}

/// Relative changes as bars from zero, each with its 95 % interval and its target.
#[derive(Clone, Debug)]
pub struct Bars {
    /// What it shows, in one line.
    pub title: String,
    /// What changed, for the axis: its values are percent.
    pub what: String,
    /// What the rows are, with their unit.
    pub rows: Axis,
    /// From the top.
    pub bars: Vec<Bar>,
}

impl Bars {
    /// The whole SVG file. Changes beyond ±100 % end at the edge.
    pub fn svg(&self) -> Result<String> {
        let rows = u16::try_from(self.bars.len().max(1)).context("too many bars for one plot")?;
        let lengths = self.bars.iter().map(|bar| bar.label.chars().count());
        let longest = u32::try_from(lengths.max().unwrap_or(0).min(LABEL_MAX))?;
        let ends = self.bars.iter().flat_map(|bar| {
            [bar.value - bar.half, bar.value + bar.half, bar.mark.unwrap_or(0.0)]
                .map(|end| end.clamp(-1.0, 1.0) * 100.0)
        });
        let what = Axis::new(&self.what, "%");
        let x = Coord::new(&what, ends.filter(|end| end.is_finite()).chain([0.0]));
        let frame = Frame {
            title: &self.title,
            height: HEIGHTS.0 * u32::from(rows) + HEIGHTS.1,
            left: LEFT.0 + LEFT.1 * longest,
            axes: (&what.title(), &self.rows.title()),
            keys: self.keys(),
        };
        // Only whole numbers of rows are asked for.
        let label = |value: &f64| {
            let row = self.bars.iter().zip(0_u16..).find(|(_, row)| (f64::from(*row) - value).abs() < 0.5);
            row.map_or_else(String::new, |(bar, _)| bar.label.clone())
        };
        frame.svg(x, Coord::Rows(rows), &label, &mut |chart, x, _| {
            for (bar, row) in self.bars.iter().zip(0_u16..) {
                let row = f64::from(row);
                let at = |part: f64| x.clamp(part * 100.0);
                let corners = [(0.0, row - HALF_BAR), (at(bar.value), row + HALF_BAR)];
                chart.draw_series([Rectangle::new(corners, bar_colour(bar.is_over()).filled())])?;
                let line =
                    |from, to, colour: RGBColor, width| PathElement::new(vec![from, to], colour.stroke_width(width));
                let (low, high) = (at(bar.value - bar.half), at(bar.value + bar.half));
                chart.draw_series([line((low, row), (high, row), BLACK, LINE_WIDTH)])?;
                if let Some(mark) = bar.mark {
                    let stroke = [(at(mark), row - HALF_STROKE), (at(mark), row + HALF_STROKE)];
                    let [from, to] = stroke;
                    chart.draw_series([line(from, to, TARGET, LINE_WIDTH + 1)])?;
                }
            }
            Ok(())
        })
    }

    /// Only what is there.
    fn keys(&self) -> Vec<Key> {
        let key = |name: &str, colour, swatch| Key { name: name.to_owned(), colour, swatch };
        let mut keys = Vec::new();
        let has_targets = self.bars.iter().any(|bar| bar.mark.is_some());
        if self.bars.iter().any(|bar| !bar.is_over()) {
            let name = if has_targets { "change (its target met, or none)" } else { "change" };
            keys.push(key(name, bar_colour(false), Swatch::Box));
        }
        if self.bars.iter().any(Bar::is_over) {
            keys.push(key("change over its target", bar_colour(true), Swatch::Box));
        }
        keys.push(key("95 % interval", BLACK, Swatch::Line));
        if has_targets {
            keys.push(key("target (at most)", TARGET, Swatch::Stroke));
        }
        keys
    }
}

const TARGET: RGBColor = COLOURS[2];

fn bar_colour(is_over: bool) -> RGBColor {
    COLOURS[usize::from(is_over)]
}
