//! The papers' experiments that come out exactly, and what makes a run fail.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use spand_needs::{Need, needs};
use spand_tests::papers::result::Results;
use spand_tests::papers::row::{Outcomes, Programs, Row, Verdict};
use spand_tests::papers::{ns, plan, plots, rows};

const ORACLE: &str = env!("CARGO_BIN_EXE_spand-oracle");

/// Runs all settings of a row: each figure is the one that is kept, and they come to this verdict.
fn comes_to(id: &str, verdict: Verdict) -> Result<()> {
    if !needs(Need::Program("ns")) {
        return Ok(());
    }
    let row = row(id);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    let kept = Results::open(&folder.join("none"), &folder.join("papers.jsonl"))?;
    let mut outcomes = Outcomes::default();
    for planned in plan::of_row(&row, false) {
        let (result, _) = planned.run(&Programs::beside(Path::new(ORACLE)))?;
        let kept = kept.read(&planned).with_context(|| format!("{} is not kept", planned.name()))?.figures;
        let is_kept = |(name, found): (&String, &f64)| kept.get(name).is_some_and(|kept| is_same(*kept, *found));
        let is_same_run = kept.len() == result.figures.len() && result.figures.iter().all(is_kept);
        ensure!(is_same_run, "{}: {:?}, kept: {kept:?}", planned.name(), result.figures);
        outcomes.0.entry(result.setting).or_default().insert(result.seed, result.figures);
    }
    let judged = row.judge(&outcomes)?;
    ensure!(judged.verdict() == verdict, "{:#?}", judged.0);
    Ok(())
}

/// To the digits that a number keeps in a file.
fn is_same(kept: f64, found: f64) -> bool {
    (kept - found).abs() <= 1e-12 * kept.abs()
}

fn row(id: &str) -> Row {
    rows::all().expect("rows").into_iter().find(|row| row.id == id).expect("a row")
}

#[test]
fn a_transfer_alone_takes_the_papers_time_to_the_microsecond() -> Result<()> {
    comes_to("T1", Verdict::Met)
}

#[test]
fn each_factor_takes_its_round_trips() -> Result<()> {
    comes_to("T2", Verdict::Met)
}

#[test]
fn medians_among_other_transfers_are_those_of_one_alone() -> Result<()> {
    comes_to("T4", Verdict::Met)
}

#[test]
fn a_threshold_at_the_models_window_keeps_slow_start_from_overflowing_a_buffer() -> Result<()> {
    comes_to("T12", Verdict::Met)
}

#[test]
fn byte_counting_overflows_it_where_it_did() -> Result<()> {
    comes_to("T13", Verdict::Reported)
}

#[test]
fn the_same_seed_gives_the_same_bytes() -> Result<()> {
    if !needs(Need::Program("ns")) {
        return Ok(());
    }
    let row = row("T4");
    let runs = plan::of_row(&row, false);
    let written = |index: usize| -> Result<Vec<u8>> {
        let (result, _) = runs[index].run(&Programs::beside(Path::new(ORACLE)))?;
        Ok(serde_json::to_vec(&result)?)
    };
    let eight = runs.iter().position(|planned| planned.setting.name == "burst8").expect("a setting");
    let first = written(eight)?;
    ensure!(first == written(eight)?, "two runs with one seed differ");
    let another = runs.iter().rposition(|planned| planned.setting.name == "burst8").expect("a setting");
    ensure!(first != written(another)?, "the seed changes nothing");
    Ok(())
}

/// A packet that is lost in a recovery is no loss of its own. The times between losses get longer, and with them the windows of MISS.
/// Rules that use no times of losses give the same as before.
#[test]
fn losses_that_count_each_are_not_packets() -> Result<()> {
    if !needs(Need::Program("ns")) {
        return Ok(());
    }
    let openings = |script, scheme: &str| -> Result<Vec<String>> {
        let words = [scheme, "losses=each", "seconds=200", "life=20", &format!("oracle={ORACLE}")].map(str::to_owned);
        let output = ns::run(&ns::scripts().join(script), &words)?;
        Ok(["openings", "total"].iter().map(|line| output.line(line)).collect::<Result<Vec<_>>>()?.concat())
    };
    let window = |script| -> Result<f64> {
        Ok(openings(script, "scheme=miss:measured")?.get(1).context("a mean window")?.parse()?)
    };
    let (losses, packets) = (window("yu-losses.tcl")?, window("yu.tcl")?);
    ensure!(losses > packets, "{losses} segments, {packets} with every packet");
    for scheme in ["scheme=liss:threshold", "scheme=averaged:threshold"] {
        let [one, other] = ["yu-losses.tcl", "yu.tcl"].map(|script| openings(script, scheme));
        ensure!(one? == other?, "{scheme} asks when losses were");
    }
    Ok(())
}

/// Whatever goes wrong between script and oracle, there is no output that could be read as a figure.
#[test]
fn a_fault_of_the_conversation_makes_the_run_fail() -> Result<()> {
    if !needs(Need::Program("ns")) {
        return Ok(());
    }
    let script = ns::scripts().join("btcp-single.tcl");
    for (words, reason) in [
        (["growth=burst 0 32".to_owned(), format!("oracle={ORACLE}")], "f is `0`, not a whole number in range"),
        (["growth=cubed 1".to_owned(), format!("oracle={ORACLE}")], "there is no growth `cubed`"),
        (["growth=burst 4".to_owned(), format!("oracle={ORACLE}")], "not a whole number in range"),
        // Whether the question or its answer finds the pipe closed is chance.
        (["growth=burst 4 32".to_owned(), "oracle=/bin/true".to_owned()], "exit status: 3"),
        (["growth=burst 4 32".to_owned(), "oracle=/nonexistent".to_owned()], "cannot start the oracle"),
        (["growth=burst 4 32".to_owned(), "oracle=/bin/cat".to_owned()], "expected floating-point number"),
        (["growth=standard".to_owned(), "packet=7".to_owned()], "there is no option `packet=7`"),
    ] {
        let fault = ns::run(&script, &words).expect_err("a figure from a conversation gone wrong");
        let fault = format!("{fault:#}");
        ensure!(fault.contains(reason), "{words:?}: {fault}");
    }
    Ok(())
}

/// The plots of the documentation are those of the results that lie beside them.
#[test]
fn the_plots_are_those_of_the_kept_results() -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results");
    let nowhere = folder.join("none");
    let results = Results::open(&nowhere, &folder.join("papers.jsonl"))?;
    for (name, svg) in plots::all(&results, &rows::all()?)? {
        let kept = std::fs::read_to_string(folder.join(&name)).with_context(|| format!("docs/results/{name}"))?;
        ensure!(kept == svg, "docs/results/{name} shows other results: make papers ARGS=\"--report --keep\"");
    }
    Ok(())
}
