//! From the text of a TOML file to a configuration, with errors an operator can act on.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// A configuration that cannot be used. All but `Unreadable` are faults in the text.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read at all.
    #[error("cannot read the configuration {}: {source}; name another one with --config", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("{}, line {line}: {}", path.display(), printable(message))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// Values that are each fine but not together, or that nothing can work with.
    #[error("{}: {}", path.display(), printable(message))]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// Which keys, and what to do.
        message: String,
    },
}

/// Parses `text`; the first fault is given with its line, and its key where it has one. `path` only names it.
pub fn parse<C: DeserializeOwned>(text: &str, path: &Path) -> Result<C, ConfigError> {
    toml::from_str(text).map_err(|mut error| {
        let offset = error.span().map_or(0, |span| span.start);
        let line = 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
        // Without the text the error prints as one line of what and one of where.
        error.set_input(None);
        ConfigError::Syntax { path: path.to_owned(), line, message: one_line(&error.to_string()) }
    })
}

/// A message may hold a value as it was written: what would act on a terminal or begin a line is shown escaped.
fn printable(message: &str) -> String {
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    message.chars().map(shown).collect()
}

/// Two lines, what is wrong and in which key, become one that begins with the key.
fn one_line(text: &str) -> String {
    let mut what = Vec::new();
    let mut key = None;
    for line in text.lines() {
        match line.strip_prefix("in `").and_then(|rest| rest.strip_suffix('`')) {
            Some(name) => key = Some(name),
            None => what.push(line.trim()),
        }
    }
    let what = in_plain_words(&what.join(" "));
    match key {
        Some(key) if !what.starts_with("unknown field") => format!("{key}: {what}"),
        Some(key) => format!("{what} (in `{key}`)"),
        None => what,
    }
}

/// Rust's names of number types mean nothing to an operator.
fn in_plain_words(what: &str) -> String {
    let words = [
        ("a nonzero usize", "a whole number above 0"),
        ("a nonzero u64", "a whole number above 0"),
        ("a nonzero u32", "a whole number above 0"),
        ("f64", "a number"),
    ];
    words.iter().fold(what.to_owned(), |what, (from, to)| what.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    enum Word {}

    #[test]
    fn control_characters_of_a_value_are_shown_and_not_printed() {
        let path = Path::new("gateway.toml");
        let said = parse::<Word>("\"\\u001b[2J\" = 1\n", path).unwrap_err().to_string();
        assert!(said.contains(r"\u{1b}[2J") && !said.contains('\u{1b}'), "{said}");
        let message = "capture.interfaces names a\u{7} twice".to_owned();
        let said = ConfigError::Contradiction { path: path.to_owned(), message }.to_string();
        assert_eq!(said, r"gateway.toml: capture.interfaces names a\u{7} twice");
    }
}
