//! From the text of a TOML file to a configuration, with errors an operator can act on.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use toml::{Table, Value};

use super::printable;

/// A configuration that cannot be used. All but `Unreadable` are faults in the text.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read at all.
    #[error("cannot read the configuration {}: {source}; {}", path.display(), way_out(source))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Not TOML, an unknown key, or a value that nothing can work with.
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

/// What to do about a file that cannot be read.
fn way_out(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => "run this as root, or as a user who may read it",
        io::ErrorKind::IsADirectory => "name the file in it",
        _ => "create it, or name another one with --config",
    }
}

impl ConfigError {
    /// A fault of the value at `offset` in `text`.
    pub fn at(path: &Path, text: &str, offset: usize, message: String) -> Self {
        let line = 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
        Self::Syntax { path: path.to_owned(), line, message }
    }
}

/// What a command that only looks goes by where no file was named: the defaults, where there is none in the `usual` place.
/// Whether it was read is the other half.
///
/// # Errors
/// Another fault than that, as it was.
pub fn or_default<C: Default>(loaded: Result<C, ConfigError>, usual: &Path) -> Result<(C, bool), ConfigError> {
    match loaded {
        Err(ConfigError::Unreadable { path, source }) if path == usual && source.kind() == io::ErrorKind::NotFound => {
            Ok((C::default(), false))
        }
        loaded => loaded.map(|config| (config, true)),
    }
}

/// The text of the file at `path`, as it was read.
///
/// # Errors
/// It could not be read, or is no UTF-8.
pub fn text(read: io::Result<Vec<u8>>, path: &Path) -> Result<String, ConfigError> {
    let bytes = read.map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(error.as_bytes());
        ConfigError::at(path, &text, offset, "this is no text in UTF-8: write it in that".to_owned())
    })
}

/// Parses `text`; the first fault is given with its line, and its key where it has one. `path` only names it.
pub fn parse<C: DeserializeOwned>(text: &str, path: &Path) -> Result<C, ConfigError> {
    toml::from_str(text).map_err(|mut error| {
        let span = error.span().unwrap_or_default();
        // Without the text the error prints as one line of what and one of where.
        error.set_input(None);
        let message = one_line(&error.to_string());
        let better = of_the_text(text, &span, &message).or_else(|| words_expected::<C>(text, &span, &message));
        ConfigError::at(path, text, span.start, better.unwrap_or_else(|| named(text, &span, &message)))
    })
}

/// Lists the words that a key takes, for a value without quotes. The parser lists them only for a quoted word, so the value is quoted and
/// parsed again.
fn words_expected<C: DeserializeOwned>(text: &str, span: &Range<usize>, message: &str) -> Option<String> {
    if !message.contains("wanted string or table") {
        return None;
    }
    let (before, value, after) = (text.get(..span.start)?, text.get(span.clone())?, text.get(span.end..)?);
    let mut error = toml::from_str::<C>(&format!("{before}\"?\"{after}")).err()?;
    error.set_input(None);
    Some(one_line(&error.to_string()).replace("unknown value `?`", &format!("`{value}` is no text in quotes")))
}

/// Puts the value at fault into the message.
fn named(text: &str, span: &Range<usize>, message: &str) -> String {
    let value = text.get(span.clone()).map(|value| value.trim_matches('"')).filter(|value| !value.contains('\n'));
    value.map_or_else(|| message.to_owned(), |value| message.replacen("this is no", &format!("`{value}` is no"), 1))
}

/// Describes a duplicate key or a word without quotes. The parser's own messages about these name neither the key nor the value.
fn of_the_text(text: &str, span: &Range<usize>, message: &str) -> Option<String> {
    let begin = text.get(..span.start)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(begin..)?.lines().next()?.trim();
    if message == "duplicate key" {
        let name = |line: &str| line.split(['=', '#']).next().unwrap_or_default().trim().to_owned();
        let earlier = text.get(..begin)?.lines().enumerate().filter(|(_, earlier)| name(earlier) == name(line)).last();
        let first = earlier.map_or_else(String::new, |(at, _)| format!(", first in line {}", at + 1));
        return Some(format!("`{}` stands here twice{first}: merge the two", name(line)));
    }
    let (key, value) = line.split_once('=').map(|(key, value)| (key.trim(), value.split('#').next()))?;
    let value = value?.trim();
    let is_word = value.starts_with(|c: char| c.is_ascii_alphabetic()) && !value.contains(['"', '\'']);
    // Of a value that TOML takes, the message begins with the key.
    (is_word && !message.starts_with(&format!("{key}:")) && !["true", "false", "inf", "nan"].contains(&value)).then(
        || format!("{key}: `{value}` is no value: write a number, true, false, or text in quotes such as \"{value}\""),
    )
}

/// The value at `keys` (section, then key) of a configuration that is at fault somewhere, where it can still be read. The
/// other half is whether the text is TOML, so that a value that is absent here is not set.
pub fn salvage<T: DeserializeOwned>(text: &str, keys: &[&str]) -> (Option<T>, bool) {
    let (table, faults) = DeTable::parse_recoverable(text);
    let root = toml::Spanned::new(0..text.len(), DeValue::Table(table.into_inner()));
    let value = keys.iter().try_fold(&root, |value, key| value.get_ref().as_table()?.get(*key));
    let value = value.and_then(|value| T::deserialize(ValueDeserializer::from(value.clone())).ok());
    (value, faults.is_empty())
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
    let what = with_the_nearest(&in_plain_words(&what.join(" ")));
    match key {
        Some(key) if !what.starts_with("unknown field") => format!("{key}: {what}"),
        Some(key) => format!("{what} (in `{key}`)"),
        None => what,
    }
}

/// An unknown key or word with the known one that is most like it, where one is; else with all that are known.
fn with_the_nearest(what: &str) -> String {
    /// From here on a word is taken for a slip of the pen (Jaro-Winkler, 0 to 1).
    const ALIKE: f64 = 0.8;
    let Some(kind) = ["unknown field", "unknown value"].into_iter().find(|kind| what.starts_with(kind)) else {
        return what.to_owned();
    };
    let mut quoted = what.split('`').skip(1).step_by(2);
    let unknown = quoted.next().unwrap_or_default();
    let near = quoted.map(|known| (strsim::jaro_winkler(unknown, known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    match near {
        Some((alike, known)) if alike >= ALIKE => format!("{kind} `{unknown}`: did you mean `{known}`?"),
        _ => what.to_owned(),
    }
}

/// Rust's names of types mean nothing to an operator.
fn in_plain_words(what: &str) -> String {
    let words = [
        ("a nonzero usize", "a whole number above 0"),
        ("a nonzero u64", "a whole number above 0"),
        ("a nonzero u32", "a whole number above 0"),
        ("f64", "a number"),
        ("a sequence", "a list in brackets, such as [\"a\", \"b\"]"),
        ("a map", "a table"),
        ("unknown variant", "unknown value"),
        (
            "invalid IP address syntax",
            "this is no IP address: write one without prefix length or port, such as \"192.0.2.7\"",
        ),
        ("invalid socket address syntax", "this is no address with a port: write one such as \"127.0.0.1:7481\""),
    ];
    words.iter().fold(what.to_owned(), |what, (from, to)| what.replace(from, to))
}

// Keys and values of a configuration that have a new name. The old one works for one release, with a warning.

/// What has a new name in a configuration.
#[derive(Clone, Copy, Debug)]
pub struct Renamed<'a> {
    /// Section, old key, new key. The field has the old key as its `serde` alias.
    pub keys: &'a [(&'a str, &'a str, &'a str)],
    /// Section, key, old value, new value.
    pub values: &'a [(&'a str, &'a str, &'a str, &'a str)],
}

impl Renamed<'_> {
    /// One warning for each old name in the text of a configuration. None where it is not TOML, which parsing reports.
    pub fn warnings(&self, text: &str) -> Vec<String> {
        let Ok(config) = text.parse::<Table>() else { return Vec::new() };
        let of = |section: &str, key: &str| config.get(section).and_then(|section| section.get(key));
        let keys = self.keys.iter().filter(|(section, old, _)| of(section, old).is_some());
        let keys = keys.map(|(section, old, new)| {
            format!("{section}.{old} is now {section}.{new}; the old name works until the next release")
        });
        let values = self.values.iter();
        let values = values.filter(|(section, key, old, _)| of(section, key).and_then(Value::as_str) == Some(*old));
        let values = values.map(|(section, key, old, new)| {
            format!("{section}.{key} = \"{old}\" is now \"{new}\"; the old value works until the next release")
        });
        keys.chain(values).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    enum Word {}

    #[test]
    fn the_defaults_stand_in_for_a_file_that_is_not_in_the_usual_place_and_for_nothing_else() {
        let unreadable = |path: &str, kind: io::ErrorKind| {
            Err::<u8, _>(ConfigError::Unreadable { path: path.into(), source: kind.into() })
        };
        let usual = Path::new("/etc/spand/agent.toml");
        let missing = io::ErrorKind::NotFound;
        assert_eq!(or_default(Ok(7), usual).unwrap(), (7, true));
        assert_eq!(or_default(unreadable("/etc/spand/agent.toml", missing), usual).unwrap(), (0, false));
        assert!(or_default(unreadable("other.toml", missing), usual).is_err(), "it was named");
        let denied = unreadable("/etc/spand/agent.toml", io::ErrorKind::PermissionDenied);
        assert!(or_default(denied, usual).is_err(), "it is there");
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_one_that_is_most_like_it() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Section {
            #[expect(dead_code, reason = "its name is what counts")]
            fraction: f64,
            #[expect(dead_code, reason = "its name is what counts")]
            prefixes: Vec<String>,
        }
        let fault = |text| parse::<Section>(text, Path::new("x.toml")).unwrap_err().to_string();
        assert_eq!(fault("fracton = 1.0"), "x.toml, line 1: unknown field `fracton`: did you mean `fraction`?");
        assert!(fault("mood = 1").ends_with("expected `fraction` or `prefixes`"), "{}", fault("mood = 1"));
        assert!(fault("prefixes = 3").contains("expected a list in brackets"), "{}", fault("prefixes = 3"));
    }

    #[test]
    fn a_file_that_may_not_be_read_is_no_reason_to_name_another_one() {
        let fault =
            |kind: io::ErrorKind| ConfigError::Unreadable { path: "a.toml".into(), source: kind.into() }.to_string();
        assert!(fault(io::ErrorKind::PermissionDenied).ends_with("or as a user who may read it"));
        assert!(fault(io::ErrorKind::NotFound).ends_with("name another one with --config"));
    }

    #[test]
    fn a_text_that_is_no_utf_8_is_at_fault_in_its_line() {
        let read = text(Ok(b"# a caf\xc3\xa9\n# a caf\xe9\n".to_vec()), Path::new("a.toml")).unwrap_err();
        assert_eq!(read.to_string(), "a.toml, line 2: this is no text in UTF-8: write it in that");
    }

    #[test]
    fn a_value_is_read_out_of_a_configuration_that_is_at_fault_elsewhere() {
        let of = |text| salvage::<String>(text, &["a", "b"]);
        let found = Some("/srv".to_owned());
        assert_eq!(of("speed = 3\n[a]\nb = \"/srv\"\nc = 4\n"), (found.clone(), true));
        assert_eq!(of("mode = careful\n[a]\nb = \"/srv\"\n"), (found.clone(), false), "a value without quotes");
        assert_eq!(of("[a]\nb = \"/srv\"\n[c\nd = 1\n"), (found, false), "a section without its end");
        assert_eq!(of("[a]\nb = 3\n"), (None, true));
        for text in ["", "a = 1\n", "[a.b]\n"] {
            assert_eq!(of(text), (None, true), "{text}");
        }
        assert_eq!(of("\u{0}[[[\"'").0, None);
    }

    #[test]
    fn control_characters_of_a_value_are_shown_and_not_printed() {
        let path = Path::new("gateway.toml");
        let text = parse::<Word>("\"\\u001b[2J\" = 1\n", path).unwrap_err().to_string();
        assert!(text.contains("\u{fffd}[2J") && !text.contains('\u{1b}'), "{text}");
        let message = "capture.interfaces names a\u{7} twice".to_owned();
        let text = ConfigError::Contradiction { path: path.to_owned(), message }.to_string();
        assert_eq!(text, "gateway.toml: capture.interfaces names a\u{fffd} twice");
    }

    #[test]
    fn each_old_name_is_one_warning_that_names_the_new_one() {
        let renamed = Renamed { keys: &[("a", "old", "new")], values: &[("a", "how", "fast", "quick")] };
        assert_eq!(
            renamed.warnings("old = 1\n[a]\nold = 1\nhow = \"fast\"\n[b]\nold = 1\n"),
            [
                "a.old is now a.new; the old name works until the next release",
                "a.how = \"fast\" is now \"quick\"; the old value works until the next release",
            ]
        );
        for text in ["", "[a]\nnew = 1\nhow = \"quick\"\n", "a = 1\n", "[a\n"] {
            assert_eq!(renamed.warnings(text), [""; 0], "{text}");
        }
    }
}
