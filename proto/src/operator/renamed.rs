//! Keys and values of a configuration that have a new name. The old one works for one release, with a warning.

use toml::{Table, Value};

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
