//! What the release before left: each program accepts its example configuration without the keys that went, which it refuses by name,
//! and warns of every key and value with a new name; the contract's numbers are what they were.
//!
//! It starts itself as the programs, so that what an administrator sees is what is checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
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

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// What the refusal of keys that are gone begins with; it names all of them.
const REMOVED: &str = "remove what is no option any more: ";

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
    let refused = String::from_utf8(run(&old)?.stderr)?;
    if let Some((_, gone)) = refused.split_once(REMOVED) {
        // `section.key (what holds instead), …`
        let is_key =
            |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.');
        let gone: Vec<&str> = gone.split([' ', ',']).filter(is_key).collect();
        let mut section = "";
        let mut rest = String::new();
        let text = std::fs::read_to_string(&old)?;
        for line in text.lines() {
            section = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')).unwrap_or(section);
            let key = line.split_once(" = ").map_or("", |(key, _)| key);
            if !gone.contains(&format!("{section}.{key}").as_str()) {
                rest.push_str(line);
                rest.push('\n');
            }
        }
        old = folder.path().join("old.toml");
        std::fs::write(&old, rest)?;
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
