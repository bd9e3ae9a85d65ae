//! The words of a question.

use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(String);

impl Fault {
    pub(super) fn new(reason: String) -> Self {
        Self(reason)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// What is left of a question. Each word is taken under the name that a fault calls it by.
#[derive(Debug)]
pub(super) struct Words<'a>(SplitAsciiWhitespace<'a>);

impl<'a> Words<'a> {
    pub(super) fn of(question: &'a str) -> Self {
        Self(question.split_ascii_whitespace())
    }

    pub(super) fn word(&mut self, name: &str) -> Result<&'a str, Fault> {
        self.0.next().ok_or_else(|| Fault::new(format!("{name} is missing")))
    }

    /// A word that need not be there.
    pub(super) fn optional(&mut self) -> Option<&'a str> {
        self.0.next()
    }

    /// A whole number, of a type that may refuse zero.
    pub(super) fn whole<T: FromStr>(&mut self, name: &str) -> Result<T, Fault> {
        let word = self.word(name)?;
        word.parse().map_err(|_| Fault::new(format!("{name} is `{word}`, not a whole number in range")))
    }

    /// A finite number above zero.
    pub(super) fn positive(&mut self, name: &str) -> Result<f64, Fault> {
        let word = self.word(name)?;
        let number = word.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
        number.ok_or_else(|| Fault::new(format!("{name} is `{word}`, not a positive number")))
    }

    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match self.0.next() {
            Some(word) => Err(Fault::new(format!("`{word}` is one word too many"))),
            None => Ok(()),
        }
    }
}
