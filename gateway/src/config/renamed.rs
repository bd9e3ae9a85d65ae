//! Keys and values that have a new name. The old one works for one release, with a warning that names the new one.

use std::fs;
use std::path::Path;

use toml::{Table, Value};

/// Section, old key, new key. The fields of the section have the old key as an alias.
const KEYS: [(&str, &str, &str); 4] = [
    ("publish", "talked_within_s", "destination_idle_s"),
    ("publish", "talked_networks", "destinations_per_host"),
    ("publish", "talks", "destinations"),
    ("publish", "retell_s", "readvertise_s"),
];

/// Section, key, old value, new value.
const VALUES: [(&str, &str, &str, &str); 1] = [("publish", "to_hosts", "talking", "in_use")];

/// One warning for each old name in the configuration `file`; none where it cannot be read, which `Config::load` reports.
pub(crate) fn warnings(file: &Path) -> Vec<String> {
    fs::read_to_string(file).map_or_else(|_| Vec::new(), |text| in_text(&text))
}

fn in_text(text: &str) -> Vec<String> {
    let Ok(config) = text.parse::<Table>() else { return Vec::new() };
    let of = |section: &str, key: &str| config.get(section).and_then(|section| section.get(key));
    let keys = KEYS.iter().filter(|(section, old, _)| of(section, old).is_some());
    let keys = keys.map(|(section, old, new)| {
        format!("{section}.{old} is now {section}.{new}; the old name works until the next release")
    });
    let values = VALUES.iter().filter(|(section, key, old, _)| of(section, key).and_then(Value::as_str) == Some(*old));
    let values = values.map(|(section, key, old, new)| {
        format!("{section}.{key} = \"{old}\" is now \"{new}\"; the old value works until the next release")
    });
    keys.chain(values).collect()
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Publish};

    use super::*;

    #[test]
    fn old_names_work_and_each_is_one_warning_that_names_the_new_one() {
        let old =
            "[publish]\nto_hosts = \"talking\"\ntalked_within_s = 60\ntalked_networks = 7\ntalks = 8\nretell_s = 9\n";
        let new = "[publish]\nto_hosts = \"in_use\"\ndestination_idle_s = 60\ndestinations_per_host = 7\ndestinations = 8\nreadvertise_s = 9\n";
        let parsed = [old, new].map(|text| Config::parse(text, Path::new("x")).unwrap().publish);
        assert_eq!(parsed[0], parsed[1]);
        assert_ne!(parsed[0], Publish::default());
        let warnings = in_text(old);
        assert_eq!(warnings.len(), KEYS.len() + VALUES.len());
        assert!(KEYS.iter().zip(&warnings).all(|((_, old, new), text)| text.contains(old) && text.contains(new)));
        assert!(warnings.last().unwrap().contains("in_use"));
        assert_eq!(in_text(new), [""; 0]);
        assert!(Config::parse(&format!("{old}readvertise_s = 9\n"), Path::new("x")).is_err(), "twice the same option");
    }
}
