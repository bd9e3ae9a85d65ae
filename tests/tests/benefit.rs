//! The harness of `make benefit` from end to end in some seconds of real traffic: learning through the gateway, both ways of
//! the agent, transfers with and without it, and what their packets show.
//!
//! A program of its own: started under the name of one of the product's programs it is that program, so that the whole needs
//! nothing built before. Needs root. Without it the test says so, and counts itself as skipped on standard error.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use spand_needs::{Need, needs};
use spand_tests::benefit::page;
use spand_tests::benefit::plan::Campaign;
use spand_tests::benefit::result::{self, RunResult};
use spand_tests::benefit::run::run;
use spand_tests::benefit::stage::Programs;
use spand_tests::lab::path::Carrier;
use spand_tests::product::standing_in::{link_programs, stand_in_or};
use spand_tests::product::{ApplyMethod, Mode, StartVariant};

/// Runs of one way at most, where the machine was late.
const ATTEMPTS: u32 = 3;

fn main() -> ExitCode {
    stand_in_or(test)
}

fn test() -> Result<()> {
    if !needs(Need::Root) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    link_programs(folder.path())?;
    let programs = Programs {
        gateway: folder.path().join("spand-gateway"),
        agent: folder.path().join("spand-agent"),
        agent_more: String::new(),
        keep: None,
    };
    for way in [ApplyMethod::Route, ApplyMethod::Bpf] {
        test_way(way, &programs, folder.path())?;
    }
    println!("benefit: passed");
    Ok(())
}

fn test_way(way: ApplyMethod, programs: &Programs, folder: &Path) -> Result<()> {
    let campaign = Campaign {
        way,
        modes: vec![Mode::Careful],
        stated: true,
        learning: None,
        paths: Carrier::Emulator,
        starts: vec![StartVariant::Plain],
        first_seed: 1,
        seeds: 1,
        scenarios: vec!["quick".to_owned()],
    };
    let planned = campaign.runs().pop().context("a campaign of one run")?;
    let mut attempt = 1;
    let result = loop {
        let result = run(&planned.scenario, &planned.run, programs, &|what| println!("{what}"))?;
        print!("{}", page::summary(&result));
        check(&result)?;
        match check_pacing(&result, way) {
            Ok(()) => break result,
            // A stall can look like pacing, so a run that the machine made late shows nothing.
            Err(why) if result.fault.is_some() && attempt < ATTEMPTS => println!("once more: {why}"),
            Err(why) => return Err(why),
        }
        attempt += 1;
    };
    result::write(folder, &result)?;
    let kept = result::read(folder, &planned.run).context("the result is not read back")?;
    let page = folder.join("pages").join("page.md");
    page::write(&page, &[kept])?;
    let text = std::fs::read_to_string(&page)?;
    let section = format!("way `{}`, mode `careful`", way.name());
    // What counts for nothing, since the machine was late, is named without its figures.
    let named = if result.fault.is_none() { "| quick, 100 KB |" } else { "-careful/quick-1 |" };
    ensure!(text.contains(named) && text.contains(&section), "the page:\n{text}");
    Ok(())
}

/// What must hold however busy the machine is.
fn check(result: &RunResult) -> Result<()> {
    // A busy machine may make the path late, which is no fault of the harness; anything else is.
    let sound = result.fault.as_ref().is_none_or(|fault| fault.starts_with("the path was off"));
    ensure!(sound, "the run counts for nothing: {:?}", result.fault);
    let learnt = result.learnt.first().context("a path of the product")?;
    ensure!(learnt.transfers >= 20 && learnt.share_before.is_some(), "learnt: {learnt:?}");
    let flights = |arm: &str, bytes: u64| -> BTreeSet<u32> {
        let of_it = result.transfers.iter().filter(|one| one.arm == arm && one.bytes == bytes);
        of_it.map(|one| one.first_flight).collect()
    };
    ensure!(flights("cubic", 100_000) == BTreeSet::from([10]), "cubic starts with {:?}", flights("cubic", 100_000));
    let advised = flights("product", 100_000);
    let least = advised.first().copied().unwrap_or(0);
    ensure!(least > 10, "the product starts with {advised:?}, the agent reported {:?}", learnt.agent);
    // Seven segments, and nothing to gain.
    ensure!(flights("product", 10_000) == BTreeSet::from([7]), "10 KB: {:?}", flights("product", 10_000));
    for one in &result.transfers {
        ensure!(one.completion_ms >= one.bound_ms - 0.1, "faster than the wire: {one:?}");
        ensure!(one.packets - one.again >= u32::try_from(one.bytes.div_ceil(1_448))?, "packets are missing: {one:?}");
    }
    Ok(())
}

/// How long first flights take. A stall only lengthens a flight, so an arm is judged by its shortest one.
fn check_pacing(result: &RunResult, way: ApplyMethod) -> Result<()> {
    let shortest = |arm: &str| {
        let of_it = result.transfers.iter().filter(|one| one.arm == arm && one.bytes == 100_000);
        of_it.map(|one| one.first_flight_ms).fold(f64::INFINITY, f64::min)
    };
    let (product, cubic) = (shortest("product"), shortest("cubic"));
    // The kernel programs pace what is above ten segments; a route and plain TCP cannot.
    let as_applied = if way == ApplyMethod::Bpf { product > 4.0 } else { product < 4.0 };
    ensure!(as_applied && cubic < 4.0, "first flights by `{}` take {product} ms, plain ones {cubic} ms", way.name());
    Ok(())
}
