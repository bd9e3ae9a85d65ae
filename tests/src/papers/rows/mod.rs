//! The rows, from `rows.toml`.

mod kernel;
mod read;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

pub use self::read::Read;
use super::find::Find;
use super::query::{Filling, Lists};
use super::row::{Row, Setting, Way};

/// The rows as they are written.
#[derive(Deserialize)]
struct Sheet {
    lists: Lists,
    row: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    what: String,
    expected: String,
    source: String,
    /// In the simulator: its script, and what reads its output, or how each figure is read.
    script: Option<String>,
    reader: Option<String>,
    #[serde(default)]
    read: Vec<read::Line>,
    /// On a kernel: the experiment.
    kernel: Option<String>,
    #[serde(default)]
    version: u32,
    #[serde(default = "one")]
    seeds: u64,
    #[serde(default = "one")]
    quick_seeds: u64,
    #[serde(default)]
    lists: Lists,
    settings: Vec<Settings>,
    #[serde(default)]
    finds: Vec<Find>,
}

const fn one() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    each: Vec<String>,
    name: String,
    #[serde(default)]
    options: Vec<String>,
    #[serde(default)]
    long: bool,
    script: Option<String>,
}

/// All of them, in the page's order.
pub fn all() -> Result<Vec<Row>> {
    let Sheet { lists, row } = toml::from_str(include_str!("../rows.toml"))?;
    row.into_iter().map(|written| written.row(&lists)).collect()
}

impl Written {
    fn row(self, common: &Lists) -> Result<Row> {
        let mut lists = common.clone();
        lists.extend(self.lists);
        let (way, more) = match (self.script, self.kernel) {
            (Some(script), None) => {
                let by = self.reader.as_deref().map(read::reader).transpose()?;
                let read = Read { lines: self.read, by };
                (Way::Simulated { script, read }, None)
            }
            (None, Some(name)) => {
                let (run, more) = kernel::experiment(&name)?;
                (Way::Kernel { version: self.version, run }, more)
            }
            _ => bail!("{} runs neither in the simulator nor on a kernel", self.id),
        };
        let mut settings = Vec::new();
        for written in &self.settings {
            for filling in Filling::each(&lists, &written.each)? {
                settings.push(written.setting(&filling).with_context(|| self.id.clone())?);
            }
        }
        Ok(Row {
            id: self.id,
            what: self.what,
            expected: self.expected,
            source: self.source,
            way,
            seeds: self.seeds,
            quick_seeds: self.quick_seeds,
            settings,
            lists,
            finds: self.finds,
            more,
        })
    }
}

impl Settings {
    fn setting(&self, filling: &Filling) -> Result<Setting> {
        let mut options = Vec::new();
        for option in &self.options {
            let option = filling.text(option)?;
            // One that this entry of a list does not have.
            if !option.is_empty() {
                let (name, value) = option.split_once('=').with_context(|| format!("`{option}` has no value"))?;
                options.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(Setting { name: filling.text(&self.name)?, options, quick: !self.long, script: self.script.clone() })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use spand_proto::growth::threshold::first_overflow;

    use super::*;
    use crate::papers::row::{Outcomes, Verdict};

    #[test]
    fn rows_and_settings_have_names_of_their_own_and_a_script_and_their_queries_can_be_read() {
        let rows = all().unwrap();
        let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids.len(), rows.len());
        for row in &rows {
            let names: BTreeSet<&str> = row.settings.iter().map(|setting| setting.name.as_str()).collect();
            assert_eq!(names.len(), row.settings.len(), "{}", row.id);
            assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')), "{names:?}");
            if let Way::Simulated { script, .. } = &row.way {
                assert!(crate::papers::ns::scripts().join(script).is_file(), "{script}");
            }
            assert!((1..=row.seeds).contains(&row.quick_seeds), "{}", row.id);
            assert_eq!(row.judge(&Outcomes::default()).unwrap().verdict(), Verdict::Incomplete, "{}", row.id);
        }
    }

    #[test]
    fn thresholds_against_an_overflow_are_the_products() {
        let row = all().unwrap().into_iter().find(|row| row.id == "T12").unwrap();
        let limited: Vec<&Setting> = row.settings.iter().filter(|setting| setting.name.ends_with("limited")).collect();
        assert_eq!(limited.len(), 8);
        for setting in limited {
            let d = if setting.option::<String>("delack").unwrap() == "yes" { 2.0 } else { 1.0 };
            let limit = first_overflow(setting.option("buffer").unwrap(), 191.0, d).floor();
            assert_eq!(setting.option::<String>("threshold").unwrap(), format!("{limit:.0}"), "{}", setting.name);
        }
    }
}
