//! What a test needs of the machine that runs it, for the tests of all crates. No program of ours depends on this crate.
//!
//! A test checks nothing where the machine lacks a need. It prints one line to standard error itself, since the test runner captures output,
//! and `make test` ends with all of these lines. A need that [`REQUIRED_ENV`] names fails the test instead.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// The environment variable that lists the needs which this machine has to meet, separated by commas.
pub const REQUIRED_ENV: &str = "SPAND_REQUIRE";

/// The environment variable that names the file to which each test that checks nothing appends a line.
const COLLECTED_ENV: &str = "SPAND_SKIPPED";

/// Something that not every machine has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// Root, for network namespaces, mounts, capabilities and kernel programs.
    Root,
    /// The captures with reference values, which are no part of the repository: `../shared/corpus`, or where `SPAND_CORPUS` points.
    Corpus,
    /// A program of another project, by its name on `PATH`.
    Program(&'static str),
    /// A NATS server.
    Nats,
    /// Debian kernels for guests.
    Kernels,
    /// PF_RING's library.
    PfRing,
    /// A C compiler with sanitizers.
    Sanitizers,
    /// The kernel's trace events.
    Trace,
    /// System calls of 32 bits.
    Calls32,
}

impl Need {
    const fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Corpus => "corpus",
            Self::Program(name) => name,
            Self::Nats => "nats",
            Self::Kernels => "kernels",
            Self::PfRing => "pf_ring",
            Self::Sanitizers => "sanitizers",
            Self::Trace => "trace",
            Self::Calls32 => "calls32",
        }
    }
}

/// Whether this machine meets [`Need::Root`] or [`Need::Program`]. A test finds out about other needs itself, and calls [`lacks`].
///
/// # Panics
/// The machine does not meet the need, and [`REQUIRED_ENV`] names it.
#[must_use]
pub fn needs(need: Need) -> bool {
    let (found, why) = match need {
        Need::Root => (nix::unistd::geteuid().is_root(), "another user runs it"),
        Need::Program(name) => (on_path(name), "it is not on PATH"),
        _ => (true, ""),
    };
    if !found {
        lacks(need, why);
    }
    found
}

fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// A folder of the corpus, `.` for all of it.
///
/// # Panics
/// Where there is none and [`REQUIRED_ENV`] names `corpus`.
#[must_use]
pub fn needs_corpus(set: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let corpus = std::env::var_os("SPAND_CORPUS").map_or_else(beside, PathBuf::from).join(set);
    if !corpus.is_dir() {
        lacks(Need::Corpus, format_args!("{} is no folder", corpus.display()));
        return None;
    }
    Some(corpus)
}

/// Notes that the running test, or a part of it, checks nothing.
///
/// # Panics
/// Where [`REQUIRED_ENV`] names the need.
pub fn lacks(need: Need, why: impl Display) {
    let name = need.name();
    let required = std::env::var(REQUIRED_ENV).unwrap_or_default();
    assert!(!required.split(',').any(|word| word == name), "{REQUIRED_ENV} names {name}, and {why}");
    let program = std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let program = program.unwrap_or_default();
    // Cargo closes the name of a test program by a hash.
    let program = program.rsplit_once('-').map_or(program.as_str(), |(program, _)| program);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main");
    let line = format!("SKIPPED for lack of {name}: {program} {test}: {why}\n");
    // Where standard error is closed nobody reads it.
    let _closed = std::io::stderr().write_all(format!("\n{line}").as_bytes());
    if let Some(file) = std::env::var_os(COLLECTED_ENV) {
        let written = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&file)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "cannot write to {}, which {COLLECTED_ENV} names", file.display());
    }
}

/// Runs `act` on a thread whose fsync(2) and fdatasync(2) fail with `EIO`. A function that reports success there loses its writes in a
/// power cut.
///
/// # Panics
/// Where the kernel has no seccomp, or `act` panics.
pub fn without_sync<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let calls = [libc::SYS_fsync, libc::SYS_fdatasync].map(|call| (call, Vec::new()));
    let failing = SeccompAction::Errno(libc::EIO.cast_unsigned());
    let filter = std::env::consts::ARCH
        .try_into()
        .and_then(|arch| SeccompFilter::new(BTreeMap::from(calls), SeccompAction::Allow, failing, arch))
        .and_then(BpfProgram::try_from);
    let filter = filter.expect("a filter of two calls");
    let confined = move || {
        apply_filter(&filter).expect("seccomp");
        act()
    };
    std::thread::scope(|scope| scope.spawn(confined).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
