//! Words that no source or page uses: the field has a term for them, or plain English is shorter.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders and pages that are clean. Add what has become so; nothing leaves the list.
const CLEAN: [&str; 10] =
    ["agent", "confine", "docs", "fuzz", "gateway", "packaging", "proto", "tests", "CONTRIBUTING.md", "README.md"];

/// What builds and fuzzing leave; recorded inputs; and this list.
const EXEMPT: [&str; 4] = ["fuzz/target", "fuzz/work", "tests/fixtures", "tests/tests/words.rs"];

/// Files that are read, by the end of their name.
const TYPES: [&str; 11] = ["c", "h", "html", "js", "json", "md", "proto", "rs", "service", "toml", "yml"];

/// A metric's old name, which alert rules of the release before query.
const DEPRECATED: &str = "publisher_told_pairs";

/// Refused as whole words, whatever their case; in identifiers too, where `_` separates words.
const BANNED: [(&str, &str); 21] = [
    ("told", "sent, reported, advertised"),
    ("untold", "pending"),
    ("knew", "measured, had"),
    ("said", "sent, logged, printed"),
    ("anew", "again"),
    ("mended", "fixed"),
    ("whoever", "a caller, a process"),
    ("so many", "N"),
    ("is none of", "is not"),
    ("bears out", "confirms"),
    ("bear out", "confirm"),
    ("gives up", "drops"),
    ("gave up", "dropped"),
    ("given up", "dropped"),
    ("speaks for", "indicates"),
    ("stands beside", "is next to"),
    ("to the letter", "as published"),
    ("way of applying", "apply method"),
    ("punish", "record_loss"),
    ("forgive", "clear_losses"),
    ("lacks what", "has limitations"),
];

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests crate lies in the workspace")
}

/// The banned words of a text, with their line.
fn banned(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.replace(DEPRECATED, "");
        let words: Vec<String> =
            line.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase).collect();
        let line = format!(" {} ", words.join(" "));
        let here = BANNED.iter().filter(|(phrase, _)| line.contains(&format!(" {phrase} ")));
        found.extend(here.map(|(phrase, instead)| (number + 1, *phrase, *instead)));
    }
    // `octets` is a method of the standard library's addresses.
    let octets = text.lines().enumerate().filter(|(_, line)| line.replace(".octets()", "").contains("octet"));
    found.extend(octets.map(|(number, _)| (number + 1, "octet", "byte")));
    found
}

fn files(path: &Path, into: &mut Vec<PathBuf>) {
    if EXEMPT.iter().any(|exempt| path.ends_with(exempt)) {
        return;
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder of this workspace") {
            files(&entry.expect("an entry of it").path(), into);
        }
    } else if path.extension().is_some_and(|end| TYPES.iter().any(|known| end == *known)) {
        into.push(path.to_owned());
    }
}

#[test]
fn clean_folders_and_pages_have_no_banned_word() {
    let mut all = Vec::new();
    for clean in CLEAN {
        let before = all.len();
        files(&workspace().join(clean), &mut all);
        assert!(all.len() > before, "{clean} has no file");
    }
    let mut faults = Vec::new();
    for file in &all {
        let text = fs::read_to_string(file).expect("a text");
        let place = file.strip_prefix(workspace()).unwrap_or(file).display();
        let here = banned(&text).into_iter();
        faults.extend(here.map(|(line, word, instead)| format!("{place}:{line}: \"{word}\": write {instead}")));
    }
    assert!(faults.is_empty(), "{} banned words:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_banned_word_is_found_in_comments_names_and_phrases() {
    for text in ["// The host is told.", "fn is_told() {}", "a_starts_Anew", "it gives\tup", "let octets = 1;"] {
        assert_eq!(banned(text).len(), 1, "{text}");
    }
    assert_eq!(banned("v4.octets(); // tolder, knewton, give up nothing"), []);
}
