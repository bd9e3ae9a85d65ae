//! A folder with the programs, and what `/proc` says of one that runs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use spand_tests::lab::namespace::Namespace;
use spand_tests::patience::PATIENCE;
use spand_tests::product::standing_in::link_programs;
use spand_tests::product::{Api, Daemon};
use tempfile::TempDir;

/// A folder that everyone may enter, with the programs in it.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        link_programs(folder.path())?;
        Ok(Self(folder))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        fs::write(&path, text).with_context(|| format!("cannot write {name}"))?;
        Ok(path)
    }

    /// Starts a program with this configuration in `namespace`.
    pub(super) fn start(&self, name: &'static str, config: &str, namespace: &Namespace) -> Result<Daemon> {
        let file = self.write(&format!("{name}.toml"), config)?;
        let arguments = ["run", "--config", file.to_str().context("a path")?];
        Daemon::start(name, &self.path(name), &arguments, namespace, self.0.path())
    }
}

/// Waits until `done` gives something; fails where the program ends before, with its log.
pub(super) fn wait<T>(daemon: &mut Daemon, what: &str, mut done: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        daemon.check()?;
        if let Some(found) = done()? {
            return Ok(found);
        }
        thread::sleep(Duration::from_millis(50));
    }
    bail!("no sign within {PATIENCE:?} that {what}:\n{}", daemon.log_end())
}

/// Waits until a gateway answers and says that it works, or does not.
pub(super) fn wait_ready(daemon: &mut Daemon, api: &Api, wanted: bool) -> Result<String> {
    let code = if wanted { 200 } else { 503 };
    wait(daemon, &format!("/readyz answers {code}"), || {
        Ok(api.get("/readyz").ok().filter(|(status, _)| *status == code).map(|(_, body)| body))
    })
}

/// A number of `/metrics`, by its name with labels.
pub(super) fn metric(api: &Api, name: &str) -> Result<f64> {
    let (_, text) = api.get("/metrics")?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(value.with_context(|| format!("{name} is not among the metrics"))?.parse()?)
}

/// Of a thread, what `/proc` says (`proc_pid_status(5)`).
pub(super) struct Thread {
    pub(super) name: String,
    fields: BTreeMap<String, String>,
}

/// Every thread of a process.
pub(super) fn threads(process: u32) -> Result<Vec<Thread>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))?;
    let mut threads = Vec::new();
    for task in tasks {
        let Ok(text) = fs::read_to_string(task?.path().join("status")) else { continue };
        let fields: BTreeMap<String, String> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.split_whitespace().next().unwrap_or_default().to_owned()))
            .collect();
        threads.push(Thread { name: fields.get("Name").cloned().unwrap_or_default(), fields });
    }
    ensure!(!threads.is_empty(), "the process {process} has no threads");
    Ok(threads)
}

impl Thread {
    pub(super) fn field(&self, name: &str) -> Result<&str> {
        Ok(self.fields.get(name).with_context(|| format!("/proc does not say {name}"))?)
    }

    /// A set of capabilities.
    pub(super) fn set(&self, name: &str) -> Result<u64> {
        Ok(u64::from_str_radix(self.field(name)?, 16)?)
    }

    /// Fails unless the thread has these capabilities and no way to others, in force and for programs that it starts, and
    /// the filter of system calls.
    pub(super) fn is_confined(&self, capabilities: u64, handed_on: u64) -> Result<()> {
        let sets = [
            ("CapEff", capabilities),
            ("CapPrm", capabilities),
            ("CapInh", handed_on),
            ("CapAmb", handed_on),
            ("CapBnd", handed_on),
        ];
        for (name, wanted) in sets {
            let found = self.set(name)?;
            ensure!(found == wanted, "{name} of the thread {} is {found:x}, not {wanted:x}", self.name);
        }
        for (name, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
            let found = self.field(name)?;
            ensure!(found == wanted, "{name} of the thread {} is {found}, not {wanted}", self.name);
        }
        Ok(())
    }
}

/// Processes that this one started.
pub(super) fn children(process: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{process}/task/{process}/children");
    let text = fs::read_to_string(Path::new(&path)).with_context(|| format!("cannot read {path}"))?;
    text.split_whitespace().map(|word| Ok(word.parse()?)).collect()
}
