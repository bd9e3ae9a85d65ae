//! What the `doctor` of a program finds: one check for each usual fault, with a verdict, a sentence and what to do.

use std::fmt;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use strum::IntoStaticStr;

use super::{ConfigError, printable};

/// How a check came out.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It could not be found out.
    Unknown,
    /// It works, but less well than it could, or not as one would expect.
    Warn,
    /// It does not work.
    Fail,
}

impl Verdict {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Check {
    /// Its stable name.
    pub name: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found: one sentence.
    pub found: String,
    /// What to do; absent where nothing has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_do: Option<String>,
}

impl Check {
    /// A check that came out well.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), to_do: None }
    }

    /// A check that came out as `verdict`, with what to do about it.
    pub fn to_do(name: &'static str, verdict: Verdict, found: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self { name, verdict, found: found.into(), to_do: Some(to_do.into()) }
    }

    /// [`Verdict::Warn`].
    pub fn warn(name: &'static str, found: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self::to_do(name, Verdict::Warn, found, to_do)
    }

    /// [`Verdict::Fail`].
    pub fn fail(name: &'static str, found: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self::to_do(name, Verdict::Fail, found, to_do)
    }

    /// [`Verdict::Unknown`].
    pub fn unknown(name: &'static str, found: impl Into<String>, to_do: impl Into<String>) -> Self {
        Self::to_do(name, Verdict::Unknown, found, to_do)
    }
}

/// Everything that was looked at. This is the shape of `doctor --json`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Diagnosis {
    verdict: Verdict,
    checks: Vec<Check>,
}

impl Diagnosis {
    /// Of these checks; the worst verdict is that of the whole.
    pub fn new(checks: Vec<Check>) -> Self {
        let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Unknown);
        Self { verdict, checks }
    }

    /// The checks, in the order in which they were made.
    pub fn checks(&self) -> &[Check] {
        &self.checks
    }

    /// For people: a line for each check, and one below it where something is to be done.
    pub fn text(&self) -> String {
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for check in &self.checks {
            // Writing to a string cannot fail.
            _ = writeln!(text, "{:7}  {:width$}  {}", check.verdict.name(), check.name, printable(&check.found));
            if let Some(to_do) = &check.to_do {
                _ = writeln!(text, "{:7}  {:width$}  -> {}", "", "", printable(to_do));
            }
        }
        let count = |verdict| self.checks.iter().filter(|check| check.verdict == verdict).count();
        let warnings = count(Verdict::Warn);
        let plural = if warnings == 1 { "" } else { "s" };
        let (ok, unknown, failed) = (count(Verdict::Ok), count(Verdict::Unknown), count(Verdict::Fail));
        _ = write!(text, "{ok} ok, {unknown} unknown, {warnings} warning{plural}, {failed} failed");
        text
    }

    /// A failure where a check failed; its exit code is [`super::FINDINGS`].
    pub fn outcome(&self) -> Result<(), Failure> {
        let mut failed = self.checks.iter().filter(|check| check.verdict == Verdict::Fail).map(|check| check.name);
        match failed.next() {
            None => Ok(()),
            Some(first) => Err(Failure::Findings(match failed.count() {
                0 => format!("the check {first} failed: see the line below it"),
                more => format!("the check {first} and {more} more failed: see the line below each"),
            })),
        }
    }
}

/// Judges the configuration of the file `path`, which was read without a fault or is not there (`was_read`).
pub fn judge_configuration(path: &Path, was_read: bool) -> Check {
    const NAME: &str = "configuration";
    let path = path.display();
    if was_read {
        return Check::ok(NAME, format!("{path} is valid"));
    }
    let found = format!("{path} does not exist, so that the service does not start; the defaults are examined");
    Check::fail(NAME, found, "create it, or name another one with --config")
}

/// Judges a configuration that cannot be used for the reason `fault`.
pub fn judge_broken(fault: &ConfigError) -> Check {
    let found = format!("{fault}; the defaults are examined");
    Check::fail(
        "configuration",
        found,
        "correct the file, repeat `check-config` until it finds no fault, then run the doctor again",
    )
}

/// Least room that a directory in which a program writes should have, in bytes.
pub const LEAST_ROOM_BYTES: u64 = 64 << 20;

/// Judges the directory `path`, named by the option `key`, in which a program writes: `may_write` is whether this process
/// may, or why not; `room` its file system's free bytes, where they could be read.
pub fn judge_directory(
    name: &'static str,
    key: &str,
    path: &Path,
    may_write: Result<(), String>,
    room: Option<u64>,
) -> Check {
    let path = path.display();
    if let Err(why) = may_write {
        let to_do = format!("give the program's user the right to write there, or name another directory in {key}");
        return Check::fail(name, format!("{path} cannot be written: {why}"), to_do);
    }
    match room {
        Some(room) if room < LEAST_ROOM_BYTES => Check::fail(
            name,
            format!("{path} has {} MiB left", room >> 20),
            format!("make room ({} MiB at least), or name another directory in {key}", LEAST_ROOM_BYTES >> 20),
        ),
        Some(room) => Check::ok(name, format!("{path} can be written and has {} MiB left", room >> 20)),
        None => Check::ok(name, format!("{path} can be written")),
    }
}

/// Judges the kernel's release (`/proc/sys/kernel/osrelease`) against the `least` one, whose lack means `means`.
pub fn judge_kernel(release: &str, least: (u32, u32), means: &str, verdict: Verdict) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return Check::unknown("kernel", format!("`{release}` names no release of Linux"), "run this on Linux");
    };
    let (least_major, least_minor) = least;
    if (major, minor) >= least {
        return Check::ok("kernel", format!("Linux {release}"));
    }
    let found = format!("Linux {release} is older than {least_major}.{least_minor}: {means}");
    Check::to_do("kernel", verdict, found, format!("use Linux {least_major}.{least_minor} or later"))
}

// How a program ends: 0, or one sentence on standard error and one of three codes.

/// Exit code of a fault in the command line or the configuration (`EX_USAGE` of sysexits.h).
pub const USAGE: u8 = 64;
/// Exit code of a fault in the environment.
pub const ENVIRONMENT: u8 = 1;
/// Exit code of a `doctor` that found something at fault.
pub const FINDINGS: u8 = 2;

/// Why a command failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The command line or the configuration is wrong: exit code 64.
    Usage(String),
    /// The world is: a file or interface that cannot be read, a port in use, a program that does not run, a missing
    /// privilege. Exit code 1.
    Environment(String),
    /// What was looked at is at fault; the looking itself went well. Exit code 2.
    Findings(String),
}

impl Failure {
    /// The code the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(USAGE),
            Self::Environment(_) => ExitCode::from(ENVIRONMENT),
            Self::Findings(_) => ExitCode::from(FINDINGS),
        }
    }

    /// A fault of the environment with the text of `error`.
    pub fn environment(error: impl fmt::Display) -> Self {
        Self::Environment(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(sentence) | Self::Environment(sentence) | Self::Findings(sentence) => {
                f.write_str(&printable(sentence))
            }
        }
    }
}

impl std::error::Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Unreadable { .. } => Self::environment(error),
            ConfigError::Syntax { .. } | ConfigError::Contradiction { .. } => Self::Usage(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_check_is_the_verdict_and_only_a_failed_one_fails() {
        let ok = Check::ok("a", "fine");
        let warn = Check::warn("b", "so-so", "do this");
        let unknown = Check::unknown("c", "no right to look", "run as root");
        let calm = Diagnosis::new(vec![ok.clone(), warn.clone(), unknown.clone()]);
        assert_eq!((calm.verdict, calm.outcome()), (Verdict::Warn, Ok(())));
        let bad = Diagnosis::new(vec![ok, Check::fail("d", "broken", "mend it"), warn, unknown]);
        assert_eq!(bad.verdict, Verdict::Fail);
        assert!(matches!(bad.outcome(), Err(Failure::Findings(text)) if text.starts_with("the check d failed")));
        let text = bad.text();
        assert!(text.contains("fail     d  broken\n            -> mend it\n"), "{text}");
        assert!(text.ends_with("1 ok, 1 unknown, 1 warning, 1 failed"), "{text}");
    }

    #[test]
    fn directories_and_kernels_are_judged_by_their_figures() {
        let of =
            |write: Result<(), String>, room| judge_directory("store", "store.directory", Path::new("/s"), write, room);
        assert_eq!(of(Ok(()), Some(LEAST_ROOM_BYTES)).verdict, Verdict::Ok);
        assert_eq!(of(Ok(()), Some(LEAST_ROOM_BYTES - 1)).verdict, Verdict::Fail);
        assert_eq!(of(Ok(()), None).verdict, Verdict::Ok);
        assert!(of(Err("EROFS".to_owned()), None).found.contains("/s cannot be written: EROFS"));
        let kernel = |release| judge_kernel(release, (5, 8), "it lacks a thing", Verdict::Warn).verdict;
        assert_eq!(kernel("6.1.0-9-amd64"), Verdict::Ok);
        assert_eq!(kernel("5.8"), Verdict::Ok);
        assert_eq!(kernel("5.7.19"), Verdict::Warn);
        assert_eq!(kernel("4.19.0"), Verdict::Warn);
        assert_eq!(kernel("plan9"), Verdict::Unknown);
    }
}
