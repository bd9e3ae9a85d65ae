//! Networks' estimates, and the plots.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::estimates::error;
use super::figures::TARGETS;
use super::{LOSS_BASED, cc, pooled, title};
use crate::accuracy::result::CellResult;
use crate::plot::{self, Axis, Mark, Plot, Series};

/// Rows of the table.
const WORST: usize = 20;

pub(super) fn networks(text: &mut String, results: &[&CellResult]) -> Result<()> {
    writeln!(
        text,
        "\n## Networks\n\nThe rule `spand` at each cell's end, in segments, against the mean of the kernel's windows at the same instants and against what a perfect observer would have sampled. BBR left out: its window is no share.\n"
    )?;
    writeln!(
        text,
        "| cell | what | estimate | same instants | off | perfect | off | samples |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    )?;
    let off = |estimate: f64, truth: Option<f64>| truth.map(|truth| estimate / truth - 1.0);
    let percent = |off: Option<f64>| off.map_or("-".to_owned(), |off| format!("{:+.1} %", off * 100.0));
    let with = results.iter().filter(|r| cc(r) != "bbr");
    let mut rows: Vec<_> = with.filter_map(|r| r.network.estimate.map(|estimate| (estimate, *r))).collect();
    rows.sort_by(|a, b| {
        let size = |(estimate, r): &(f64, &CellResult)| off(*estimate, r.network.same_instants).unwrap_or(0.0).abs();
        size(b).total_cmp(&size(a))
    });
    let count = rows.len();
    for (estimate, result) in rows.iter().take(WORST) {
        let network = &result.network;
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
        writeln!(
            text,
            "| {} | {estimate:.1} | {} | {} | {} | {} | {} |",
            title(result),
            number(network.same_instants),
            percent(off(*estimate, network.same_instants)),
            number(network.perfect),
            percent(off(*estimate, network.perfect)),
            network.samples
        )?;
    }
    writeln!(text, "\nThe worst {} of {count}; how many are right is in the first table.", count.min(WORST))?;
    Ok(())
}

pub(super) fn plots(text: &mut String, directory: &Path, results: &[&CellResult]) -> Result<()> {
    let series = |of: &'static [&'static str]| -> Vec<(String, Vec<f64>)> {
        TARGETS
            .iter()
            .filter(|target| target.of == of)
            .take(6)
            .map(|target| {
                let name = target.name.split(',').next().unwrap_or_default();
                let all = pooled(results, target).into_iter().map(|value| f64::from(value.abs()) * 100.0).collect();
                (name.chars().take(24).collect(), all)
            })
            .collect()
    };
    let write = |name: &str, svg: String| {
        let file = directory.join(name);
        std::fs::write(&file, svg).with_context(|| format!("cannot write {}", file.display()))
    };
    write(
        "accuracy-loss-based.svg",
        plot::distribution("Errors against the kernel, Reno and CUBIC", "error", &series(LOSS_BASED))?,
    )?;
    write("accuracy-bbr.svg", plot::distribution("Errors against the kernel, BBR", "error", &series(&["bbr"]))?)?;
    write("accuracy-networks.svg", scatter(results).svg()?)?;
    write("accuracy-confidence.svg", confidence(results).svg()?)?;
    writeln!(
        text,
        "\n## Plots\n\n![errors of reno and cubic](accuracy-loss-based.svg)\n\n![errors of bbr](accuracy-bbr.svg)\n\n![networks](accuracy-networks.svg)\n\n![confidence against error](accuracy-confidence.svg)"
    )?;
    Ok(())
}

/// Each network's estimate against the kernel's windows.
fn scatter(results: &[&CellResult]) -> Plot {
    /// Segments that both axes show.
    const SHOWN: (f64, f64) = (1.0, 10_000.0);
    let points = |name: &str| {
        let of = results.iter().filter(|result| cc(result) == name);
        of.filter_map(|result| Some((result.network.same_instants?, result.network.estimate?))).collect()
    };
    let equal = Series {
        name: "equal".to_owned(),
        mark: Mark::Line,
        colour: 5,
        points: vec![(SHOWN.0, SHOWN.0), (SHOWN.1, SHOWN.1)],
    };
    let dots = LOSS_BASED.iter().enumerate().map(|(colour, name)| Series {
        name: (*name).to_owned(),
        mark: Mark::Dots,
        colour,
        points: points(name),
    });
    let axis = |what: &str| Axis::new(what, "segments").log().within(SHOWN.0, SHOWN.1);
    Plot {
        title: "Each network's estimate against the kernel".to_owned(),
        x: axis("mean of the kernel's windows at the same instants"),
        y: axis("estimate"),
        series: std::iter::once(equal).chain(dots).collect(),
    }
}

/// The default rule's error by its confidence, on networks with the web's traffic.
fn confidence(results: &[&CellResult]) -> Plot {
    /// Percent that the plot shows.
    const SHOWN: f64 = 100.0;
    let points = |ccs: &[&str]| {
        let of = results.iter().filter(|result| ccs.contains(&cc(result)));
        of.filter_map(|result| {
            let (error, is_bound) = error(&result.network)?;
            Some((result.network.confidence?, (error * 100.0).min(SHOWN))).filter(|_| !is_bound)
        })
        .collect()
    };
    let limit = |name: &str, percent: f64| Series {
        name: name.to_owned(),
        mark: Mark::Line,
        colour: 5,
        points: vec![(0.0, percent), (1.0, percent)],
    };
    let dots = |name: &str, ccs: &[&str], colour| Series {
        name: name.to_owned(),
        mark: Mark::Dots,
        colour,
        points: points(ccs),
    };
    Plot {
        title: "Error of shares by their confidence".to_owned(),
        x: Axis::new("confidence", "").within(0.0, 1.0),
        y: Axis::new("share against the kernel's account", "%").within(-SHOWN, SHOWN),
        series: vec![
            limit("20 % too large", 20.0),
            limit("20 % too small", -20.0),
            dots("Reno and CUBIC", LOSS_BASED, 0),
            dots("BBR", &["bbr"], 1),
        ],
    }
}
