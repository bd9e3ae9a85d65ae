//! Every part of every script of `scripts/` is a test: `cargo test -p spand-engine-tests --test scripts -- losses` runs those of
//! `losses.script`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use spand_engine_tests::script::{Part, parts, run};

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    match trials(&folder) {
        Ok(trials) => libtest_mimic::run(&Arguments::from_args(), trials).exit_code(),
        Err(fault) => {
            eprintln!("{fault}");
            ExitCode::FAILURE
        }
    }
}

fn trials(folder: &Path) -> Result<Vec<Trial>, String> {
    let mut trials = Vec::new();
    let shown = |fault: &dyn std::fmt::Display, path: &Path| format!("{}: {fault}", path.display());
    let mut paths: Vec<_> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|fault| shown(&fault, folder))?;
    paths.sort();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|fault| shown(&fault, &path))?;
        let file = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for part in parts(&text).map_err(|fault| shown(&fault, &path))? {
            trials.push(trial(&file, part));
        }
    }
    if trials.is_empty() { Err(format!("{} holds no script", folder.display())) } else { Ok(trials) }
}

fn trial(file: &str, part: Part) -> Trial {
    let (name, file) = (format!("{file}::{}", part.name), file.to_owned());
    Trial::test(name, move || run(&part).map_err(|fault| format!("{file}.script, {fault}").into()))
}
