//! `grow CONNECTION KIND PARAMETERS.. WINDOW SSTHRESH ACKED`: the window of a sender before its first loss after an
//! acknowledgement, in segments; `standard` where the rule leaves growth to standard TCP.

use super::line::{Fault, Words};

/// Answers what follows the word `grow`.
pub(super) fn grow(words: &mut Words<'_>) -> Result<String, Fault> {
    let _connection: u32 = words.whole("connection")?;
    match words.word("growth")? {
        "standard" => {
            let (_window, _ssthresh, _acked) = state(words)?;
            Ok("standard".to_owned())
        }
        other => Err(Fault::new(format!("there is no growth `{other}`"))),
    }
}

/// Window and ssthresh of the sender and the segments that the acknowledgement covers.
fn state(words: &mut Words<'_>) -> Result<(f64, u32, u32), Fault> {
    Ok((words.positive("window")?, words.whole("ssthresh")?, words.whole("segments acknowledged")?))
}
