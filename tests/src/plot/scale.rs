//! Where values lie along an axis, and where its ticks are.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

use super::{Axis, Scale};

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
    /// Rows from the top: row n is at n.
    Rows(u16),
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
            // The first row is at the top, where the other axes have their highest value.
            Self::Rows(rows) => (f64::from(rows) - 0.5, -0.5),
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
            Self::Linear(..) | Self::Rows(_) => RangedCoordf64::from(low..high).map(value, limit),
            Self::Log(..) => RangedCoordf64::from(low.log10()..high.log10()).map(&value.log10(), limit),
        }
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let (low, high) = self.ends();
        match *self {
            Self::Linear(..) => RangedCoordf64::from(low..high).key_points(hint),
            Self::Rows(rows) => (0..rows).map(f64::from).collect(),
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
