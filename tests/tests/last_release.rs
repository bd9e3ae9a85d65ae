//! What the release before left: each program accepts its example configuration without the keys that went, which it refuses by name,
//! and warns of every key and value with a new name; the gateway reads its store and keeps it, and sets one of a newer gateway aside; the contract's numbers are what they were.
//!
//! It starts itself as the programs, so that what an administrator sees is what is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use spand_core::window::bucket::QueueSum;
use spand_gateway::store::{EstimateStore, SledStore};
use spand_tests::product::standing_in::{link_programs, stand_in};
use toml::{Table, Value};

fn main() -> ExitCode {
    if let Some(code) = stand_in() {
        return code;
    }
    let mut failed = false;
    for program in ["agent", "gateway"] {
        match check(program) {
            Ok(renamed) => println!("last_release: {program}: accepted, {renamed} warnings"),
            Err(error) => {
                failed = true;
                println!("last_release: {program}: FAILED: {error:#}");
            }
        }
    }
    match check_contract() {
        Ok(entries) => println!("last_release: contract: {entries} fields, values and calls are unchanged"),
        Err(error) => {
            failed = true;
            println!("last_release: contract: FAILED: {error:#}");
        }
    }
    match check_store() {
        Ok(networks) => println!("last_release: store: {networks} networks read and kept"),
        Err(error) => {
            failed = true;
            println!("last_release: store: FAILED: {error:#}");
        }
    }
    ExitCode::from(u8::from(failed))
}

/// Checks that each field, value and call of the last release keeps its number and its type.
fn check_contract() -> Result<usize> {
    let mut now = BTreeSet::new();
    for file in std::fs::read_dir(repository("proto/spand/v1"))? {
        now.extend(entries(&std::fs::read_to_string(file?.path())?));
    }
    let before = std::fs::read_to_string(repository("tests/fixtures/last-release/contract.txt"))?;
    let gone: Vec<_> = before.lines().filter(|line| !now.contains(*line)).collect();
    ensure!(
        gone.is_empty(),
        "an agent or a gateway of the release before does not understand what took the place of {gone:?}"
    );
    Ok(before.lines().count())
}

/// Lists the definitions of a `.proto` file, one a line: `Message.field number type` or `Service.Call request answer`.
fn entries(text: &str) -> Vec<String> {
    let (mut places, mut entries) = (Vec::new(), Vec::new());
    for line in text.lines().map(|line| line.split("//").next().unwrap_or_default().trim()) {
        let words: Vec<&str> = line.split([' ', '(', ')', ';']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            ["message" | "enum" | "service", name, "{"] => places.push(name),
            // Its fields are the message's.
            ["oneof", _, "{"] => places.push(""),
            ["}"] => drop(places.pop()),
            ["rpc", name, ref types @ ..] => {
                let types = types.join(" ").replace("returns ", "").replace("stream ", "stream_");
                entries.push(format!("{}.{name} {types}", place(&places)));
            }
            [ref kind @ .., name, "=", number] if !places.is_empty() => {
                let kind = if kind.is_empty() { "value".to_owned() } else { kind.join("_") };
                entries.push(format!("{}.{name} {number} {kind}", place(&places)));
            }
            _ => {}
        }
    }
    entries
}

fn place(places: &[&str]) -> String {
    places.iter().filter(|name| !name.is_empty()).copied().collect::<Vec<_>>().join(".")
}

/// Opens the store of the release before twice, and once more as one of a release to come.
fn check_store() -> Result<usize> {
    let old = repository("tests/fixtures/last-release/store");
    let folder = tempfile::tempdir()?;
    let store = folder.path().join("estimates");
    std::fs::create_dir_all(store.join("sled"))?;
    std::fs::copy(old.join("VERSION"), store.join("VERSION"))?;
    for entry in std::fs::read_dir(old.join("sled"))? {
        let path = entry?.path();
        let bytes = std::fs::read(&path)?;
        let name = path.file_name().context("a name")?.to_string_lossy().into_owned();
        match name.strip_suffix(".zst") {
            Some(name) => std::fs::write(store.join("sled").join(name), zstd::decode_all(bytes.as_slice())?)?,
            None => std::fs::write(store.join("sled").join(name), bytes)?,
        }
    }
    let first = SledStore::open(&store)?;
    ensure!(
        first.set_aside.is_none() && first.unreadable == 0,
        "{:?}, {} unreadable",
        first.set_aside,
        first.unreadable
    );
    let parts = || first.records.iter().flat_map(|(_, record)| &record.contributions);
    ensure!(parts().count() > 0 && parts().all(|part| part.queued == QueueSum::default() && part.samples == 3));
    let version = std::fs::read_to_string(store.join("VERSION"))?;
    ensure!(version == "spand store 2\n", "it has {version:?} now");
    let mut saved = first.records.clone();
    for (_, record) in &mut saved {
        record
            .contributions
            .iter_mut()
            .for_each(|part| part.queued = QueueSum { losses: 1, bytes: 9.0, squares: 81.0 });
    }
    let (changes, mut store_now) =
        (saved.iter().cloned().map(|(network, record)| (network, Some(record))), first.store);
    store_now.save(&changes.collect::<Vec<_>>())?;
    store_now.flush()?;
    drop(store_now);
    let again = SledStore::open(&store)?;
    ensure!(again.set_aside.is_none() && again.unreadable == 0 && again.records == saved, "not as it was saved");
    drop(again);
    std::fs::write(store.join("VERSION"), "spand store 3\n")?;
    let newer = SledStore::open(&store)?.set_aside.context("a newer store was taken")?.to_string();
    ensure!(
        newer.contains("has version 3, newer than this gateway's 2") && newer.contains("estimates.newer-"),
        "{newer}"
    );
    Ok(saved.len())
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Keys that are refused with a sentence that names them: the program, the key.
const REMOVED: [(&str, &str); 1] = [("gateway", "limits.fragmented_packets")];

/// Has a program check its old example, and returns the number of warnings.
fn check(program: &str) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    link_programs(folder.path())?;
    let mut old = repository(&format!("tests/fixtures/last-release/{program}.example.toml"));
    let run = |path: &Path| {
        Command::new(folder.path().join(format!("spand-{program}")))
            .arg("check-config")
            .arg(path)
            .output()
            .context("cannot start the program")
    };
    for (_, key) in REMOVED.into_iter().filter(|(of, _)| *of == program) {
        let refused = String::from_utf8(run(&old)?.stderr)?;
        ensure!(refused.contains(&format!("{key} is no option any more")), "{key} is not refused: {refused}");
        let name = key.split('.').next_back().unwrap_or(key);
        let rest: Vec<_> = std::fs::read_to_string(&old)?
            .lines()
            .filter(|line| !line.starts_with(name))
            .map(|line| format!("{line}\n"))
            .collect();
        old = folder.path().join("old.toml");
        std::fs::write(&old, rest.concat())?;
    }
    let checked = |path: &Path| -> Result<(String, Vec<String>)> {
        let output = run(path)?;
        let warnings = String::from_utf8(output.stderr)?.lines().map(str::to_owned).collect();
        ensure!(output.status.success(), "{} is refused: {warnings:?}", path.display());
        Ok((String::from_utf8(output.stdout)?, warnings))
    };
    let (printed, warnings) = checked(&old)?;
    let (old, now) = (keys(&std::fs::read_to_string(&old)?)?, keys(&printed)?);
    ensure!(old.len() > 30, "only {} keys", old.len());
    for (key, value) in &old {
        let is_as_before = now.get(key).is_some_and(|now| now.as_str() == value.as_str());
        let is_warned = warnings.iter().any(|line| line.contains(key.as_str()) && line.contains(" is now "));
        ensure!(is_as_before || is_warned, "{key} has another name or value, without a warning: {warnings:?}");
    }
    // What is printed has the new names, so it is accepted without a warning.
    let new = folder.path().join("new.toml");
    std::fs::write(&new, printed)?;
    let (_, none) = checked(&new)?;
    ensure!(!none.iter().any(|line| line.contains(" is now ")), "the printed configuration has old names: {none:?}");
    Ok(warnings.len())
}

/// Every `section.key` of a configuration, with its value.
fn keys(text: &str) -> Result<BTreeMap<String, Value>> {
    let mut keys = BTreeMap::new();
    for (name, value) in text.parse::<Table>()? {
        match value {
            Value::Table(section) => {
                keys.extend(section.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            value => {
                keys.insert(name, value);
            }
        }
    }
    Ok(keys)
}
