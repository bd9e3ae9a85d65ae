//! A password on standard input, so that no list of processes shows it.

use std::io::{self, BufRead, Read};

use spand_proto::operator::Failure;

/// Longest line that is read, in bytes.
const MOST_BYTES: u64 = 4_096;

/// The first line of standard input.
pub(crate) fn read() -> Result<String, Failure> {
    let mut line = String::new();
    (io::stdin().lock().take(MOST_BYTES))
        .read_line(&mut line)
        .map_err(|error| Failure::Environment(format!("cannot read the password: {error}")))?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
