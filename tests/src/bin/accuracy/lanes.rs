//! Runs cells side by side, each in a process of its own, while the machine's emulators stay exact.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use spand_tests::accuracy::factors::Cell;
use spand_tests::accuracy::plan::Plan;
use spand_tests::accuracy::result::CellResult;

/// Seconds that a cell takes besides its traffic: building, and comparing.
pub(crate) const AROUND_S: f64 = 6.0;
/// Bottlenecks that run at one time may add up to this many bytes per second (160 Mbit/s): above, the emulators fall behind.
const RATE_MOST: u64 = 20_000_000;

/// What to run, and until when.
pub(crate) struct Slice<'a> {
    /// The plan.
    pub(crate) plan: &'a Plan,
    /// Where results of its seed go.
    pub(crate) out: &'a Path,
    /// Its seed, and its size by the option's name, for the processes of cells.
    pub(crate) seed: u64,
    pub(crate) size: (&'static str, usize),
    /// Cells side by side.
    pub(crate) lanes: usize,
    /// No cell ends later, if it takes as long as planned.
    pub(crate) deadline: Instant,
    /// Where captures are kept.
    pub(crate) keep: Option<&'a Path>,
    /// Where results of all seeds go.
    pub(crate) base: &'a Path,
}

struct Running {
    cell: Cell,
    child: Child,
    /// When it counts as hung.
    latest: Instant,
    tries: u32,
}

/// The result of a cell, where there is one.
pub(crate) fn result_of(out: &Path, cell: &Cell) -> Option<CellResult> {
    let text = std::fs::read_to_string(file(out, cell)).ok()?;
    let result: CellResult = serde_json::from_str(&text).ok()?;
    result.is_of(cell).then_some(result)
}

/// Leaves a result: whole, or not at all.
pub(crate) fn write_result(out: &Path, cell: &Cell, result: &CellResult) -> Result<()> {
    let file = file(out, cell);
    let beside = file.with_extension(format!("tmp-{}", std::process::id()));
    std::fs::write(&beside, serde_json::to_vec(result)?)
        .with_context(|| format!("cannot write {}", beside.display()))?;
    std::fs::rename(&beside, &file).with_context(|| format!("cannot write {}", file.display()))
}

fn file(out: &Path, cell: &Cell) -> PathBuf {
    out.join(format!("cell-{:03}.json", cell.number))
}

/// Runs what has no sound result until the deadline.
pub(crate) fn run(slice: &Slice<'_>) -> Result<()> {
    let missing = slice.plan.cells.iter().filter_map(|cell| match result_of(slice.out, cell) {
        None => Some((cell.clone(), 0)),
        Some(result) => result.is_tried_again().then(|| (cell.clone(), result.tries)),
    });
    let mut waiting: Vec<(Cell, u32)> = missing.collect();
    // Cells without a result go first.
    waiting.sort_by_key(|(_, tries)| *tries);
    let all = slice.plan.cells.len();
    println!("{} of {all} cells to run", waiting.len());
    let mut running: Vec<Running> = Vec::new();
    while !running.is_empty() || next(slice, &waiting, &running).is_some() {
        while let Some(index) = next(slice, &waiting, &running) {
            let (cell, tries) = waiting.remove(index);
            running.push(start(slice, cell, tries)?);
        }
        thread::sleep(Duration::from_millis(100));
        for index in (0..running.len()).rev() {
            let Some(one) = running.get_mut(index) else { continue };
            let hung = Instant::now() > one.latest;
            if hung {
                // Its process alone: nothing of a cell outlives it.
                one.child.kill().context("cannot end a hung cell")?;
            }
            if one.child.try_wait().context("cannot wait for a cell")?.is_none() && !hung {
                continue;
            }
            let again = finish(slice, running.swap_remove(index), hung, all - waiting.len())?;
            waiting.extend(again);
        }
    }
    println!("{} cells left", waiting.len());
    Ok(())
}

/// The first cell that fits beside the running ones and into the time.
fn next(slice: &Slice<'_>, waiting: &[(Cell, u32)], running: &[Running]) -> Option<usize> {
    if running.len() >= slice.lanes {
        return None;
    }
    let rate = |cell: &Cell| cell.numbers().rate.0;
    let used: u64 = running.iter().map(|one| rate(&one.cell)).sum();
    let left = slice.deadline.saturating_duration_since(Instant::now()).as_secs_f64();
    waiting.iter().position(|(cell, _)| {
        used + rate(cell) <= RATE_MOST && cell.numbers().seconds.is_some_and(|seconds| seconds + AROUND_S <= left)
    })
}

fn start(slice: &Slice<'_>, cell: Cell, tries: u32) -> Result<Running> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command
        .args(["--seed", &slice.seed.to_string(), slice.size.0, &slice.size.1.to_string()])
        .args(["--cell", &cell.number.to_string(), "--out"])
        .arg(slice.base)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(keep) = slice.keep {
        command.arg("--keep").arg(keep);
    }
    let child = command.spawn().context("cannot start a cell")?;
    let seconds = cell.numbers().seconds.unwrap_or(60.0);
    Ok(Running { cell, child, latest: Instant::now() + Duration::from_secs_f64(seconds * 3.0 + 240.0), tries })
}

/// Tells of a finished cell; gives it back where it shall run again.
fn finish(slice: &Slice<'_>, mut one: Running, hung: bool, taken: usize) -> Result<Option<(Cell, u32)>> {
    let status = one.child.wait().context("cannot wait for a cell")?;
    let mut output = String::new();
    if let Some(mut pipe) = one.child.stdout.take() {
        pipe.read_to_string(&mut output).ok();
    }
    if let Some(mut pipe) = one.child.stderr.take() {
        pipe.read_to_string(&mut output).ok();
    }
    let all = slice.plan.cells.len();
    // A try that failed leaves the result of the one before.
    let result = result_of(slice.out, &one.cell).filter(|result| status.success() && result.tries > one.tries);
    let fault = match &result {
        Some(result) => result.fault.clone(),
        None if hung => Some("it hung and was ended".to_owned()),
        None => Some(format!("it failed: {}", output.trim())),
    };
    let tries = one.tries + 1;
    match fault {
        Some(fault) if result.is_none() => {
            println!("[{taken}/{all}] cell {:>3} {}: {fault}", one.cell.number, one.cell.title());
            let cell = Some(one.cell.clone());
            let failed = CellResult { cell, fault: Some(fault), tries, ..CellResult::default() };
            write_result(slice.out, &one.cell, &failed)?;
        }
        _ => println!("[{taken}/{all}] {}", output.trim()),
    }
    let again = result_of(slice.out, &one.cell).is_some_and(|result| result.is_tried_again());
    Ok(again.then_some((one.cell, tries)))
}
