//! Plots without a library: what a results page needs, in a few lines of SVG.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 24.0;
const COLOURS: [&str; 6] = ["#1b6ca8", "#c44536", "#3a7d44", "#8e5ea2", "#b8860b", "#555555"];

/// Shares of values at or below x, x from 0.1 to 1,000 % on a logarithmic axis: one line for each series.
pub fn distribution(title: &str, series: &[(String, Vec<f64>)]) -> String {
    let x = |percent: f64| LEFT + (percent.clamp(0.1, 1_000.0).log10() + 1.0) / 4.0 * (WIDTH - LEFT - 180.0);
    let y = |part: f64| TOP + (1.0 - part) * (HEIGHT - TOP - BOTTOM);
    let mut svg = begin(title);
    for percent in [0.1, 1.0, 5.0, 15.0, 100.0, 1_000.0] {
        line(&mut svg, (x(percent), y(0.0)), (x(percent), y(1.0)));
        label(&mut svg, (x(percent), y(0.0) + 16.0), "middle", &format!("{percent} %"));
    }
    for part in [0.0, 0.5, 0.95, 1.0] {
        line(&mut svg, (x(0.1), y(part)), (x(1_000.0), y(part)));
        label(&mut svg, (LEFT - 6.0, y(part) + 4.0), "end", &format!("{:.0} %", part * 100.0));
    }
    for ((name, values), (colour, n)) in series.iter().zip(COLOURS.iter().zip(0_u8..)) {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let mut points = String::new();
        // A few hundred points show what there is.
        let step = (sorted.len() / 300).max(1);
        for (index, value) in sorted.iter().enumerate().step_by(step) {
            let part = (index + 1) as f64 / sorted.len() as f64;
            write!(points, "{:.1},{:.1} ", x(*value), y(part)).ok();
        }
        writeln!(svg, r#"<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{points}"/>"#).ok();
        let at = (WIDTH - 170.0, TOP + 16.0 + 18.0 * f64::from(n));
        writeln!(svg, r#"<rect x="{}" y="{}" width="10" height="10" fill="{colour}"/>"#, at.0, at.1 - 9.0).ok();
        label(&mut svg, (at.0 + 16.0, at.1), "start", &format!("{name} ({})", values.len()));
    }
    svg + "</svg>\n"
}

/// Points by two values, both on logarithmic axes from 1 to 10,000, with the diagonal.
pub fn scatter(title: &str, axes: (&str, &str), points: &[(f64, f64, usize)], names: &[&str]) -> String {
    let x = |value: f64| LEFT + value.clamp(1.0, 1e4).log10() / 4.0 * (WIDTH - LEFT - 180.0);
    let y = |value: f64| HEIGHT - BOTTOM - value.clamp(1.0, 1e4).log10() / 4.0 * (HEIGHT - TOP - BOTTOM);
    let mut svg = begin(title);
    for value in [1.0, 10.0, 100.0, 1_000.0, 10_000.0] {
        line(&mut svg, (x(value), y(1.0)), (x(value), y(1e4)));
        line(&mut svg, (x(1.0), y(value)), (x(1e4), y(value)));
        label(&mut svg, (x(value), y(1.0) + 16.0), "middle", &value.to_string());
        label(&mut svg, (LEFT - 6.0, y(value) + 4.0), "end", &value.to_string());
    }
    line(&mut svg, (x(1.0), y(1.0)), (x(1e4), y(1e4)));
    for (a, b, series) in points {
        let colour = COLOURS.get(*series % COLOURS.len()).unwrap_or(&"#000");
        writeln!(svg, r#"<circle cx="{:.1}" cy="{:.1}" r="3" fill="{colour}" fill-opacity="0.7"/>"#, x(*a), y(*b)).ok();
    }
    for ((name, colour), n) in names.iter().zip(COLOURS).zip(0_u8..) {
        let at = (WIDTH - 170.0, TOP + 16.0 + 18.0 * f64::from(n));
        writeln!(svg, r#"<rect x="{}" y="{}" width="10" height="10" fill="{colour}"/>"#, at.0, at.1 - 9.0).ok();
        label(&mut svg, (at.0 + 16.0, at.1), "start", name);
    }
    label(&mut svg, (f64::midpoint(LEFT, WIDTH - 180.0), HEIGHT - 6.0), "middle", axes.0);
    label(&mut svg, (LEFT + 6.0, TOP + 12.0), "start", axes.1);
    svg + "</svg>\n"
}

/// Values over time from 0 on, both axes linear: one line for each series.
pub fn lines(title: &str, axes: (&str, &str), series: &[(String, Vec<(f64, f64)>)]) -> String {
    let points = || series.iter().flat_map(|(_, points)| points);
    let most = |of: fn(&(f64, f64)) -> f64| points().map(of).fold(1.0, f64::max);
    let (last, highest) = (most(|point| point.0), most(|point| point.1) * 1.1);
    let x = |time: f64| LEFT + time / last * (WIDTH - LEFT - 180.0);
    let y = |value: f64| HEIGHT - BOTTOM - value / highest * (HEIGHT - TOP - BOTTOM);
    let mut svg = begin(title);
    for tenth in 0..=4 {
        let (time, value) = (last * f64::from(tenth) / 4.0, highest * f64::from(tenth) / 4.0);
        line(&mut svg, (x(time), y(0.0)), (x(time), y(highest)));
        label(&mut svg, (x(time), y(0.0) + 16.0), "middle", &format!("{time:.0}"));
        line(&mut svg, (x(0.0), y(value)), (x(last), y(value)));
        label(&mut svg, (LEFT - 6.0, y(value) + 4.0), "end", &format!("{value:.0}"));
    }
    for ((name, values), (colour, n)) in series.iter().zip(COLOURS.iter().zip(0_u8..)) {
        let mut points = String::new();
        for (time, value) in values {
            write!(points, "{:.1},{:.1} ", x(*time), y(*value)).ok();
        }
        writeln!(svg, r#"<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{points}"/>"#).ok();
        let at = (WIDTH - 170.0, TOP + 16.0 + 18.0 * f64::from(n));
        writeln!(svg, r#"<rect x="{}" y="{}" width="10" height="10" fill="{colour}"/>"#, at.0, at.1 - 9.0).ok();
        label(&mut svg, (at.0 + 16.0, at.1), "start", name);
    }
    label(&mut svg, (f64::midpoint(LEFT, WIDTH - 180.0), HEIGHT - 6.0), "middle", axes.0);
    label(&mut svg, (LEFT + 6.0, TOP + 12.0), "start", axes.1);
    svg + "</svg>\n"
}

fn begin(title: &str) -> String {
    begin_with(title, HEIGHT)
}

fn begin_with(title: &str, height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    label(&mut svg, (LEFT, 15.0), "start", title);
    svg
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    writeln!(svg, r##"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="#dddddd"/>"##).ok();
}

fn label(svg: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#).ok();
}

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

/// Relative changes as bars from zero, each with its interval and its target, from -100 % to +100 %.
pub fn changes(title: &str, bars: &[Bar]) -> String {
    const ROW: f64 = 18.0;
    const NAMES: f64 = 230.0;
    let height = TOP + bars.len() as f64 * ROW + BOTTOM;
    let x = |change: f64| NAMES + f64::midpoint(change.clamp(-1.0, 1.0), 1.0) * (WIDTH - NAMES - 20.0);
    let mut svg = begin_with(title, height);
    for change in [-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0] {
        line(&mut svg, (x(change), TOP), (x(change), height - BOTTOM));
        label(&mut svg, (x(change), height - BOTTOM + 16.0), "middle", &format!("{:+.0} %", change * 100.0));
    }
    for (bar, row) in bars.iter().zip(0_u16..) {
        let y = TOP + f64::from(row) * ROW;
        label(&mut svg, (NAMES - 8.0, y + 13.0), "end", &bar.label);
        let (left, right) = (x(bar.value.min(0.0)), x(bar.value.max(0.0)));
        let missed = bar.mark.is_some_and(|mark| bar.value > mark);
        let colour = if missed { "#c44536" } else { "#1b6ca8" };
        let width = right - left;
        writeln!(svg, r#"<rect x="{left:.1}" y="{:.1}" width="{width:.1}" height="10" fill="{colour}"/>"#, y + 4.0)
            .ok();
        let (low, high) = (x(bar.value - bar.half), x(bar.value + bar.half));
        let middle = y + 9.0;
        writeln!(svg, r#"<line x1="{low:.1}" y1="{middle}" x2="{high:.1}" y2="{middle}" stroke="black"/>"#).ok();
        if let Some(at) = bar.mark.map(x) {
            let (from, to) = (y + 1.0, y + 17.0);
            writeln!(
                svg,
                r##"<line x1="{at:.1}" y1="{from}" x2="{at:.1}" y2="{to}" stroke="#3a7d44" stroke-width="2"/>"##
            )
            .ok();
        }
    }
    svg + "</svg>\n"
}
