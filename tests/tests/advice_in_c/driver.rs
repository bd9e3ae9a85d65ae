//! Compiles the client, and gives it commands.

use spand_needs::{Need, lacks};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tempfile::TempDir;

pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The messages of the compiler where it finds a fault.
pub(crate) fn compile(compiler: &mut Command, source: &Path, out: &Path) -> Result<(), String> {
    compiler.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror"]).arg("-I").arg(repository().join("agent/advice/c"));
    let output = compiler.arg("-o").args([out, source]).output().map_err(|error| error.to_string())?;
    output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A program with the client, by its source; each is compiled once.
pub(crate) fn program(source: &str) -> PathBuf {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    static BUILT: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    let at = usize::from(source.ends_with("driver.c"));
    let build = || {
        let out = FOLDER.get_or_init(|| tempfile::tempdir().unwrap()).path().join(at.to_string());
        let source = repository().join(source);
        let sanitized = ["-std=c99", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
        if let Err(messages) = compile(Command::new("cc").args(sanitized), &source, &out) {
            compile(Command::new("cc").arg("-std=c99"), &source, &out).unwrap_or_else(|messages| panic!("{messages}"));
            lacks(Need::Sanitizers, format_args!("the memory of the client in C was not checked: {messages}"));
        }
        out
    };
    BUILT[at].get_or_init(build).clone()
}

/// A started command with the client. Nothing in it allocates, and looking for leaks needs rights that a container may lack.
pub(crate) fn command(source: &str, socket: &Path) -> Command {
    let mut command = Command::new(program(source));
    command.arg(socket).env("ASAN_OPTIONS", "detect_leaks=0");
    command
}

/// A running client.
pub(crate) struct Driver {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    pub(crate) is_connected: bool,
}

/// Its answer to `start`.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Start {
    /// Window, threshold, burst, rate and lifetime; or the reason against a start.
    pub(crate) given: Result<[u64; 5], String>,
    pub(crate) took: Duration,
}

impl Driver {
    pub(crate) fn new(socket: &Path) -> Self {
        let mut command = command("tests/tests/advice_in_c/driver.c", socket);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut driver = Self { child, commands, answers, is_connected: false };
        driver.is_connected = driver.next() == "1";
        driver
    }

    fn next(&mut self) -> String {
        let mut line = String::new();
        assert!(self.answers.read_line(&mut line).unwrap() > 0, "the client ended: {:?}", self.child.wait());
        line.trim_end().to_owned()
    }

    /// A command, without its answer yet.
    pub(crate) fn send(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
    }

    /// Whether a command had success.
    pub(crate) fn does(&mut self, command: &str) -> bool {
        self.send(command);
        self.next() == "1"
    }

    pub(crate) fn started(&mut self) -> Start {
        let line = self.next();
        let words: Vec<&str> = line.split(' ').collect();
        let [advised, numbers @ .., reason, took_us] = &words[..] else { panic!("{line}") };
        let numbers: Vec<u64> = numbers.iter().map(|word| word.parse().unwrap()).collect();
        let given = match (*advised, *reason) {
            ("1", "-") => Ok(numbers.try_into().unwrap()),
            ("0", reason) if reason != "-" && numbers == [0; 5] => Err(reason.to_owned()),
            _ => panic!("{line}"),
        };
        Start { given, took: Duration::from_micros(took_us.parse().unwrap()) }
    }

    pub(crate) fn start(&mut self, question: &str) -> Start {
        self.send(&format!("start {question}"));
        self.started()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
