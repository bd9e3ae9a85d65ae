//! Keys and values that have a new name. The old one works for one release, with a warning that names the new one.

use std::fs;
use std::path::Path;

use spand_proto::operator::Renamed;

/// The fields of the sections have the old keys as aliases.
const RENAMED: Renamed<'_> = Renamed {
    keys: &[
        ("publish", "talked_within_s", "destination_idle_s"),
        ("publish", "talked_networks", "destinations_per_host"),
        ("publish", "talks", "destinations"),
        ("publish", "retell_s", "readvertise_s"),
    ],
    values: &[("publish", "to_hosts", "talking", "in_use")],
};

/// One warning for each old name in the configuration `file`; none where it cannot be read, which `Config::load` reports.
pub(crate) fn warnings(file: &Path) -> Vec<String> {
    fs::read_to_string(file).map_or_else(|_| Vec::new(), |text| RENAMED.warnings(&text))
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
        let warnings = RENAMED.warnings(old);
        assert_eq!(warnings.len(), RENAMED.keys.len() + RENAMED.values.len());
        assert!(
            RENAMED.keys.iter().zip(&warnings).all(|((_, old, new), text)| text.contains(old) && text.contains(new))
        );
        assert!(warnings.last().unwrap().contains("in_use"));
        assert_eq!(RENAMED.warnings(new), [""; 0]);
        assert!(Config::parse(&format!("{old}readvertise_s = 9\n"), Path::new("x")).is_err(), "twice the same option");
    }
}
