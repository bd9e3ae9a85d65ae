//! The commands' end.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use spand_proto::operator::Failure;

use super::{Reply, Request};

/// Largest reply that is read, in bytes.
const MOST_REPLY_BYTES: u64 = 64 << 20;

/// How long a question may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a change may take: thousands of routes are removed one by one.
const PATIENCE_FOR_CHANGES: Duration = Duration::from_secs(20);

/// An agent that gave no reply.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// None runs.
    #[error(
        "no agent runs here: nobody answers at {}; start one with `spand-agent run`, or name the socket of one with --socket",
        .0.display()
    )]
    NoAgent(PathBuf),
    /// The socket is not for this user.
    #[error("not allowed to ask the agent at {}: run this as root or as the agent's user", .0.display())]
    NotAllowed(PathBuf),
    /// The socket cannot be used.
    #[error("cannot reach the agent at {}: {source}", path.display())]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another program than an agent of this release answers there.
    #[error(
        "{} is not the control socket of an agent of this release ({source}): name control.sock in the agent's state_dir with \
         --socket",
        path.display()
    )]
    NoReply {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// It did not answer in time.
    #[error("the agent at {} does not answer: {source}", path.display())]
    Silent {
        /// The socket.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
}

/// Asks the agent that listens at `path`.
pub fn ask(path: &Path, request: &Request) -> Result<Reply, Failure> {
    try_ask(path, request).map_err(Failure::environment)
}

/// The same, for whom it matters why there is no reply.
pub(crate) fn try_ask(path: &Path, request: &Request) -> Result<Reply, AskError> {
    let at = || path.to_owned();
    let stream = UnixStream::connect(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => AskError::NoAgent(at()),
        ErrorKind::PermissionDenied => AskError::NotAllowed(at()),
        _ => AskError::Unreachable { path: at(), source },
    })?;
    talk(stream, request).map_err(|source| match source.kind() {
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
            AskError::NoReply { path: at(), source }
        }
        _ => AskError::Silent { path: at(), source },
    })
}

fn talk(mut stream: UnixStream, request: &Request) -> io::Result<Reply> {
    stream.set_read_timeout(Some(if request.changes() { PATIENCE_FOR_CHANGES } else { PATIENCE }))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_REPLY_BYTES)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
