//! The commands' end.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use spand_proto::operator::Failure;

use super::{Reply, Request};

/// Largest reply that is read, in bytes.
const MOST_REPLY_BYTES: u64 = 64 << 20;

/// Asks the agent that listens at `path`.
pub fn ask(path: &Path, request: &Request) -> Result<Reply, Failure> {
    let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => Failure::Environment(format!(
            "no agent runs here: nobody answers at {}; start one with `spand-agent run`, or name its configuration \
             with --config",
            path.display()
        )),
        ErrorKind::PermissionDenied => Failure::Environment(format!(
            "not allowed to ask the agent at {}: run this as root or as the agent's user",
            path.display()
        )),
        _ => Failure::Environment(format!("cannot reach the agent at {}: {error}", path.display())),
    })?;
    talk(stream, request)
        .map_err(|error| Failure::Environment(format!("the agent at {} does not answer: {error}", path.display())))
}

fn talk(mut stream: UnixStream, request: &Request) -> std::io::Result<Reply> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut line = String::new();
    BufReader::new(stream.take(MOST_REPLY_BYTES)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}
