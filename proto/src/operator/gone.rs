//! Keys of earlier releases that a configuration may still have.

use toml::Table;

/// A key that is gone: its section, its name, and what holds without it.
pub type Gone = (&'static str, &'static str, &'static str);

/// Refuses a configuration that has keys which are gone.
///
/// # Errors
/// It has some: one sentence that names all of them.
pub fn refuse_gone(text: &str, gone: &[Gone]) -> Result<(), String> {
    let Ok(table) = text.parse::<Table>() else { return Ok(()) };
    let has = |section: &str, key: &str| {
        table.get(section).and_then(toml::Value::as_table).is_some_and(|section| section.contains_key(key))
    };
    let found = gone.iter().filter(|(section, key, _)| has(section, key));
    let found: Vec<String> = found.map(|(section, key, instead)| format!("{section}.{key} (now: {instead})")).collect();
    if found.is_empty() { Ok(()) } else { Err(format!("remove what is no option any more: {}", found.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_that_are_gone_are_named_at_once_with_what_holds_instead() {
        let refuse =
            |text: &str| refuse_gone(text, &[("limits", "events", "65,536"), ("publish", "gather_ms", "20 ms")]);
        let message = refuse("[publish]\ngather_ms = 1\n[limits]\nevents = 7\nconnections = 9").unwrap_err();
        assert_eq!(
            message,
            "remove what is no option any more: limits.events (now: 65,536), publish.gather_ms (now: 20 ms)"
        );
        assert_eq!(refuse("[limits]\nconnections = 9"), Ok(()));
        assert_eq!(refuse("[limits"), Ok(()), "what cannot be read is refused by its reader");
    }
}
