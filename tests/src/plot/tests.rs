use super::*;

/// One text of a plot, with the room that it takes.
#[derive(Debug)]
struct Label {
    text: String,
    x: (f64, f64),
    y: (f64, f64),
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    Some(rest.split_once('"')?.0)
}

/// Texts of a plot. Widths are generous: 0.6 of the font's size for each character.
fn labels(svg: &str) -> Vec<Label> {
    let mut labels = Vec::new();
    for part in svg.split("<text").skip(1) {
        let (tag, rest) = part.split_once('>').unwrap();
        let text = rest.split_once("</text>").unwrap().0.trim();
        let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&apos;", "'").replace("&amp;", "&");
        let number = |name: &str| attribute(tag, name).unwrap().parse::<f64>().unwrap();
        let (x, y, size) = (number("x"), number("y"), number("font-size"));
        let width = 0.6 * size * text.chars().count() as f64;
        let along = match attribute(tag, "text-anchor").unwrap() {
            "start" => (0.0, width),
            "middle" => (-width / 2.0, width / 2.0),
            "end" => (-width, 0.0),
            other => panic!("an anchor {other}"),
        };
        let (x, y) = if attribute(tag, "transform").is_some() {
            ((x, x + size), (y + along.0, y + along.1))
        } else {
            // How far the baseline is below the place says which part of the text is there.
            let above = match attribute(tag, "dy").unwrap() {
                "0.76em" => 0.0,
                "0.5ex" => 0.5,
                _ => 1.0,
            };
            ((x + along.0, x + along.1), (y - above * size, y + (1.0 - above) * size))
        };
        labels.push(Label { text, x, y });
    }
    labels
}

/// Fails where a text reaches out of the view box or over another, or one of `once` is not there exactly once.
fn check(svg: &str, once: &[&str]) {
    let view = attribute(svg.split_once('>').unwrap().0, "viewBox").unwrap();
    let view: Vec<f64> = view.split(' ').map(|number| number.parse().unwrap()).collect();
    let labels = labels(svg);
    for (n, label) in labels.iter().enumerate() {
        let is_apart = |one: (f64, f64), other: (f64, f64)| one.1 <= other.0 || other.1 <= one.0;
        let over = labels[..n].iter().find(|other| !is_apart(label.x, other.x) && !is_apart(label.y, other.y));
        assert!(over.is_none(), "{label:?} and {over:?}");
        let is_inside = label.x.0 >= 0.0 && label.x.1 <= view[2] && label.y.0 >= 0.0 && label.y.1 <= view[3];
        assert!(is_inside, "{label:?} is not inside {view:?}");
    }
    for text in once {
        let count = labels.iter().filter(|label| label.text == *text).count();
        assert_eq!(count, 1, "{text:?} is there {count} times: {labels:#?}");
    }
}

fn plot() -> Plot {
    let series = |name: &str, mark, colour| Series {
        name: name.to_owned(),
        mark,
        colour,
        points: vec![(0.0, 1.0), (0.5, 20.0), (1.25, 300.0)],
    };
    Plot {
        title: "Bytes of a transfer & its <acknowledgments>".to_owned(),
        x: Axis::new("time since the request", "s"),
        y: Axis::new("sequence", "KB"),
        series: vec![
            series("sent, with advice", Mark::Steps, 0),
            series("acknowledged, with advice", Mark::Dashed, 0),
            series("sent, without advice, the sender's own", Mark::Line, 1),
            series("acknowledged, without advice", Mark::Dots, 1),
            series("what the path allows, as long as it is not shared", Mark::Line, 2),
        ],
    }
}

#[test]
fn a_plot_has_its_title_both_axes_with_units_and_each_series_once() {
    let plot = plot();
    let mut once = vec![plot.title.as_str(), "time since the request (s)", "sequence (KB)"];
    once.extend(plot.series.iter().map(|series| series.name.as_str()));
    let svg = plot.svg().unwrap();
    check(&svg, &once);
    assert_eq!(svg, plot.svg().unwrap(), "the same input gives the same bytes");
    let log = Plot { x: plot.x.clone().log(), y: plot.y.clone().log(), ..plot.clone() };
    check(&log.svg().unwrap(), &once);
}

#[test]
fn axes_use_their_area() {
    // The highest and the last value of the only line lie within a tenth of the plotting area's edges.
    let mut plot = plot();
    plot.series.truncate(1);
    let svg = plot.svg().unwrap();
    let line = svg.split("<polyline").skip(1).max_by_key(|tag| attribute(tag, "points").map_or(0, str::len)).unwrap();
    let points: Vec<(f64, f64)> = attribute(line, "points")
        .unwrap()
        .split_whitespace()
        .map(|point| point.split_once(',').unwrap())
        .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
        .collect();
    let (width, height) = (f64::from(frame::WIDTH), f64::from(frame::HEIGHT));
    let most = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(f64::NEG_INFINITY, f64::max);
    let least = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(f64::INFINITY, f64::min);
    assert!(most(|p| p.0) - least(|p| p.0) > 0.75 * width, "{points:?}");
    assert!(most(|p| p.1) - least(|p| p.1) > 0.65 * height, "{points:?}");
}

#[test]
fn a_value_that_has_no_place_is_left_out_and_one_beyond_the_axis_ends_at_its_edge() {
    let with = |points: Vec<(f64, f64)>| {
        let series = vec![Series { name: "one".to_owned(), mark: Mark::Dots, colour: 0, points }];
        Plot { x: Axis::new("a", "s").log().within(0.1, 1_000.0), y: Axis::new("b", "s"), series, ..plot() }
    };
    let dots = |points| with(points).svg().unwrap().matches("<circle").count();
    assert_eq!(dots(vec![(0.0, 1.0), (-1.0, 1.0), (1.0, f64::NAN), (1.0, 1.0)]), 1 + 1, "one dot and the legend's");
    assert_eq!(with(vec![(1e9, 1.0)]).svg().unwrap(), with(vec![(1e3, 1.0)]).svg().unwrap());
    check(&with(Vec::new()).svg().unwrap(), &["one"]);
    check(&Plot { series: Vec::new(), ..plot() }.svg().unwrap(), &[]);
}

#[test]
fn a_distribution_names_its_axes_and_counts_its_series() {
    let values = |n: u32| (0..n).map(|value| f64::from(value) / 10.0).collect();
    let series = [("cwnd".to_owned(), values(12_000)), ("round-trip time".to_owned(), values(7))];
    let svg = distribution("Errors of Reno and CUBIC", "error", &series).unwrap();
    check(
        &svg,
        &["Errors of Reno and CUBIC", "error (%)", "samples at or below (%)", "cwnd (12,000)", "round-trip time (7)"],
    );
    assert!(svg.len() < 40_000, "{} bytes", svg.len());
}

#[test]
fn numbers_have_no_zeros_that_say_nothing() {
    let numbers = [0.0, -0.0, 0.05, 1.0, 2.5, -50.0, 1_000.0, 1_234_567.0, 0.1 + 0.2];
    let texts: Vec<String> = numbers.into_iter().map(frame::number).collect();
    assert_eq!(texts, ["0", "0", "0.05", "1", "2.5", "-50", "1,000", "1,234,567", "0.3"]);
}
