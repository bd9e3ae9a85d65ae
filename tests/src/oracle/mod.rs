//! What a simulated network asks the project's own code, line by line (`spand-oracle`): the scripts of `tests/papers` start
//! it as a child and put a question each time that a simulated sender has a decision to make.
//!
//! One line is one question and has exactly one line for an answer. A line that the oracle does not understand is answered
//! `% ` and the reason; the script then ends the run with a failure, so that no figure comes from a question gone wrong.

mod growth;
mod line;
mod network;

use std::io::{self, BufRead, Read as _, Write};

pub use line::Fault;

use line::Words;
use network::Networks;

/// A longer question is a fault of the script.
const LONGEST_LINE: u64 = 1024;

/// Everything that the oracle remembers between two questions.
#[derive(Debug, Default)]
pub struct Oracle {
    networks: Option<Networks>,
    measured: growth::Measured,
}

impl Oracle {
    /// The answer to one question, without the newline at its end.
    pub fn answer(&mut self, question: &str) -> Result<String, Fault> {
        let mut words = Words::of(question);
        let answer = match words.word("a question")? {
            "grow" => growth::grow(&mut words)?,
            "measure" => self.measured.measure(&mut words)?,
            "paced" => growth::paced(&mut words)?,
            "rule" if self.networks.is_some() => return Err(Fault::new("there is a rule already".to_owned())),
            "rule" => {
                self.networks = Some(Networks::of(&mut words)?);
                network::OK.to_owned()
            }
            other if network::QUESTIONS.contains(&other) => {
                let networks = self.networks.as_mut();
                let networks = networks.ok_or_else(|| Fault::new(format!("`{other}` comes before `rule`")))?;
                networks.answer(other, &mut words)?
            }
            other => return Err(Fault::new(format!("there is no question `{other}`"))),
        };
        words.end()?;
        Ok(answer)
    }
}

/// Answers questions until the input ends.
pub fn serve(mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut oracle = Oracle::default();
    let mut question = Vec::new();
    loop {
        question.clear();
        if input.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut question)? == 0 {
            return Ok(());
        }
        let answer = match question.strip_suffix(b"\n").map(str::from_utf8) {
            Some(Ok(question)) => oracle.answer(question),
            Some(Err(_)) => Err(Fault::new("the line is not UTF-8".to_owned())),
            None => Err(Fault::new(format!("the line has no end within {LONGEST_LINE} bytes"))),
        };
        match answer {
            Ok(answer) => writeln!(output, "{answer}")?,
            Err(fault) => writeln!(output, "% {fault}")?,
        }
        output.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(questions: &[u8]) -> String {
        let mut answers = Vec::new();
        serve(questions, &mut answers).unwrap();
        String::from_utf8(answers).unwrap()
    }

    #[test]
    fn a_question_that_is_not_understood_is_answered_with_the_reason() {
        for (question, reason) in [
            ("", "a question is missing"),
            ("shrink 1", "there is no question `shrink`"),
            ("grow 1 standard 1 64", "segments covered is missing"),
            ("grow 1 standard 1 64 1 1", "`1` is one word too many"),
            ("grow 1 standard NaN 64 1", "window is `NaN`, not a positive number"),
            ("grow 1 standard -1 64 1", "window is `-1`, not a positive number"),
            ("grow 1 standard inf 64 1", "window is `inf`, not a positive number"),
            ("grow 1 standard 1 -64 1", "ssthresh is `-64`, not a whole number in range"),
            ("grow 1 cubed 1 64 1", "there is no growth `cubed`"),
        ] {
            assert_eq!(served(format!("{question}\n").as_bytes()), format!("% {reason}\n"), "{question}");
        }
        assert_eq!(served(b"grow 1 standard 1 64 1"), "% the line has no end within 1024 bytes\n");
        assert_eq!(served(b"grow \xff\n"), "% the line is not UTF-8\n");
        assert!(served(&[b'g'; 5000]).starts_with("% the line has no end"));
    }

    #[test]
    fn a_fault_does_not_end_the_conversation() {
        assert_eq!(served(b"?\ngrow 1 standard 1 64 1\n"), "% there is no question `?`\nstandard\n");
    }
}
