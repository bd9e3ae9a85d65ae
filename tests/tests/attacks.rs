//! One peer that attacks the gateway's listeners with all it has, in a process of its own, and what others get meanwhile.
//!
//! ```text
//! SPAND_ATTACK_SECONDS=10 cargo test --release -p spand-tests --test attacks
//! ```
//!
//! plays each attack for as long, in turns with as long without it, and holds what it prints against the targets of
//! docs/results/robustness.md. In the suite, where it shares the machine with other tests, each takes a second and no time is judged.
//! A program of its own: it starts itself as the gateway and as the attacker.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use spand_tests::attacks::{Attack, Plan, Row, Stage, role};
use strum::VariantArray;

/// Turns of each attack at length.
const TURNS: u32 = 5;
/// Longest time to an honest snapshot.
const SNAPSHOT: Duration = Duration::from_secs(1);
/// The slowest hundredth of pushes against the same without the attack.
const RATIO: f64 = 2.0;

fn main() -> ExitCode {
    match role().unwrap_or_else(all) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("attacks: FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn all() -> Result<()> {
    let seconds = std::env::var("SPAND_ATTACK_SECONDS").ok().map(|text| text.parse::<u32>()).transpose()?;
    let plan = match seconds {
        Some(seconds) => Plan { turns: TURNS, turn: Duration::from_secs(seconds.into()) / TURNS },
        None => Plan { turns: 1, turn: Duration::from_millis(500) },
    };
    let only = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let mut stage = Stage::start()?;
    println!("{}", Row::HEAD);
    let mut failed = Vec::new();
    for &attack in Attack::VARIANTS {
        let name: &str = attack.into();
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let row = stage.play(attack, plan)?;
        println!("{row}");
        let (before, beside) = (&row.undisturbed, &row.disturbed);
        ensure!(beside.asked > 0 && beside.answered == beside.asked, "{name}: health was not answered each time");
        ensure!(!before.pushes.is_empty() && !beside.pushes.is_empty(), "{name}: no start was pushed");
        let short = beside.snapshot() <= SNAPSHOT && row.ratio() <= RATIO;
        failed.extend((seconds.is_some() && !short).then_some(name));
    }
    ensure!(
        failed.is_empty(),
        "beyond a snapshot of {SNAPSHOT:?} or {RATIO} times the slowest hundredth of pushes: {failed:?}"
    );
    Ok(())
}
