//! Simulated senders that start on advice.

use anyhow::{Result, ensure};
use spand_needs::{Need, needs};
use spand_tests::papers::ns;

/// What a short run of six senders prints, without its processor time.
fn printed(more: &[&str]) -> Result<String> {
    let oracle = concat!("oracle=", env!("CARGO_BIN_EXE_spand-oracle"));
    let words = ["scheme=spand", "n=6", "rounds=8", "telnets=5", oracle];
    let words: Vec<String> = words.iter().chain(more).map(|word| (*word).to_owned()).collect();
    let output = ns::run(&ns::scripts().join("spand.tcl"), &words)?;
    let lines: Vec<_> = output.lines("transfers").chain(output.lines("starts")).map(|line| line.join(" ")).collect();
    Ok(lines.join("\n"))
}

#[test]
fn the_same_seed_gives_the_same_starts_and_another_does_not() -> Result<()> {
    if !needs(Need::Program("ns")) {
        return Ok(());
    }
    for rule in ["rule=spand", "rule=robust"] {
        let first = printed(&["seed=1", rule])?;
        // Eight rounds of six transfers; all but those before the first sample start on advice.
        ensure!(
            first.starts_with("spand 48 ") && first.lines().nth(1).is_some_and(|line| line.starts_with('4')),
            "{first}"
        );
        ensure!(first == printed(&["seed=1", rule])?, "two runs with one seed differ");
        ensure!(first != printed(&["seed=2", rule])?, "the seed changes nothing");
    }
    Ok(())
}

#[test]
fn a_question_that_the_oracle_refuses_makes_the_run_fail() -> Result<()> {
    if !needs(Need::Program("ns")) {
        return Ok(());
    }
    for (option, reason) in [
        ("rule=median", "`median` is not an estimation rule"),
        ("mode=brave", "`brave` is not a mode"),
        ("scheme=vegas", "`vegas` is not a scheme"),
        ("timeouts=all", "sample or none"),
        ("seeds=1", "there is no option `seeds=1`"),
    ] {
        let fault = printed(&[option]).expect_err("a figure from a conversation gone wrong");
        ensure!(format!("{fault:#}").contains(reason), "{option}: {fault:#}");
    }
    Ok(())
}
