//! What the commands print.
//!
//! Each prints one object with `--json`, in the shapes of [`crate::control`], and a few lines for people otherwise.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::errno::Errno;
use serde::Serialize;
use spand_proto::operator::{Failure, printable, printable_json};

mod explain;
pub(crate) mod metrics;
mod pause;
mod probe;
mod query;
mod status;
mod undo;

pub(crate) use explain::explain;
pub(crate) use metrics::metrics;
pub(crate) use pause::{pause, resume};
pub(crate) use probe::probe;
pub(crate) use query::query;
pub(crate) use status::status;
pub(crate) use undo::undo;

use crate::apply::bpf;
use crate::config::{ApplyMethod, Config};
use crate::destination::Destination;
use crate::doctor;
use crate::subscriber::Dialer;

pub(crate) fn check_config(path: &Path) -> Result<(), Failure> {
    let config = Config::load(path)?;
    Dialer::new(&config)?;
    if config.apply == ApplyMethod::Bpf {
        bpf::is_cgroup2(&config.bpf.cgroup)?;
    }
    let exposed = config.tls.key.as_deref().and_then(spand_confine::exposed);
    let closed = config.applications.socket.as_deref().and_then(no_room_for);
    for warning in config.renamed.iter().map(ToString::to_string).chain(exposed).chain(closed) {
        // Standard output is the configuration.
        writeln!(io::stderr().lock(), "warning: {warning}").map_err(Failure::environment)?;
    }
    let text = toml::to_string(&config)
        .map_err(|error| Failure::Environment(format!("cannot print the configuration: {error}")))?;
    print(&format!("# {} is valid. In force:\n{text}", path.display()))
}

/// Why no socket can be made there, with the way out.
fn no_room_for(socket: &Path) -> Option<String> {
    if fs::symlink_metadata(socket).is_ok_and(|file| !file.file_type().is_socket()) {
        return Some(format!(
            "applications.socket: {} is a file that is no socket: remove it, or name another",
            socket.display()
        ));
    }
    let folder = socket.parent()?;
    // The agent makes it only where it starts as root.
    let fault = if folder.is_dir() { doctor::may_write(folder).err() } else { Some(Errno::ENOENT) };
    fault.map(|error| {
        format!(
            "applications.socket: no socket can be made in {} ({}): name a folder that the agent's user may write to, such as \
             /run/spand-agent, which the packaged service makes",
            folder.display(),
            error.desc()
        )
    })
}

/// The addresses that a question is about.
fn addresses(destination: &Destination) -> Result<Vec<IpAddr>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)?;
    let resolved = runtime.block_on(destination.resolve());
    // A resolver that does not answer must not hold up the end of the program.
    runtime.shutdown_background();
    resolved.map_err(Failure::Environment)
}

/// Prints what there is to say of each address of a destination.
fn print_answers<T>(answers: &[T], for_people: impl Fn(&T) -> String) -> Result<(), Failure> {
    print(&answers.iter().map(for_people).collect::<Vec<_>>().join("\n\n"))
}

/// The same in JSON: one object for an address, and for a name one with all of them.
fn print_json_answers(destination: &Destination, answers: &[impl Serialize]) -> Result<(), Failure> {
    match (destination.name(), answers) {
        (None, [answer]) => print_json(answer),
        (name, answers) => print_json(&serde_json::json!({ "name": name, "answers": answers })),
    }
}

pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::environment)?;
    print(&printable_json(&text))
}

/// Prints, and takes a reader that had enough (`| head`) for success.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let lines: Vec<_> = text.trim_end().lines().map(printable).collect();
    print_raw(&lines.join("\n"))
}

/// The same, of text of our own.
pub(crate) fn print_raw(text: &str) -> Result<(), Failure> {
    match writeln!(io::stdout().lock(), "{}", text.trim_end()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Environment(format!("cannot print: {error}")))
        }
        _ => Ok(()),
    }
}
