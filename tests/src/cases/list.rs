//! The list of cases, `tests/cases/cases.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::accuracy::factors::{ALL, Cell, Factor, transfers};

/// Factors whose levels are numbers: a case may choose its own.
const NUMBERS: [&str; 5] = ["rate", "rtt", "buffer", "flows", "tap"];
/// No factor of the design, but a case may state it.
const SECONDS: &str = "seconds";

/// Where the cases lie.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// The list.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Levels of every case that does not say otherwise.
    pub usual: BTreeMap<String, String>,
    /// The cases.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name of its files.
    pub name: String,
    /// What it is kept for, in one sentence.
    pub shows: String,
    /// Levels in which it differs from the usual ones.
    pub differs: BTreeMap<String, String>,
    /// The release of Debian whose kernel it is recorded on, in a guest; none: this machine's own.
    pub kernel: Option<String>,
    /// What the kernel's account must hold for the case to show what it says: at least this many of each
    /// ([`super::judge::facts`]).
    #[serde(default)]
    pub needs: BTreeMap<String, u64>,
    /// Figures above their bound.
    #[serde(default, rename = "miss")]
    pub misses: Vec<Miss>,
}

/// Figures that are above their bounds for one reason: known, and held where they are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Miss {
    /// Why, as far as it is known.
    pub reason: String,
    /// The error of each figure when this was written.
    pub errors: BTreeMap<String, f64>,
}

impl Case {
    /// The error of a figure that is known to be above its bound.
    pub fn known_error(&self, figure: &str) -> Option<f64> {
        self.misses.iter().find_map(|miss| miss.errors.get(figure)).copied()
    }
}

impl List {
    /// Reads the list and refuses what no run could mean.
    pub fn read() -> Result<Self> {
        let file = folder().join("cases.toml");
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let list: Self = toml::from_str(&text).with_context(|| format!("{} is no list of cases", file.display()))?;
        let mut names = BTreeSet::new();
        for case in &list.cases {
            ensure!(names.insert(&case.name), "two cases are called {}", case.name);
            for (factor, level) in list.levels(case) {
                ensure!(is_known(&factor, &level), "{}: `{factor} = {level}` says nothing to the lab", case.name);
            }
        }
        Ok(list)
    }

    /// The case as a cell of the accuracy design. Its seed comes from its name, so that it stays when others come and go.
    pub fn cell(&self, case: &Case) -> Cell {
        // FNV-1a.
        let seed = case
            .name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Cell { number: 0, seed, levels: self.levels(case) }
    }

    fn levels(&self, case: &Case) -> BTreeMap<String, String> {
        let first = |factor: &Factor| Some((factor.name.to_owned(), factor.levels.first()?.0.to_owned()));
        let mut levels: BTreeMap<String, String> = ALL.iter().filter_map(first).collect();
        levels.extend(self.usual.clone());
        levels.extend(case.differs.clone());
        levels
    }
}

fn is_known(factor: &str, level: &str) -> bool {
    if factor == SECONDS {
        return level.parse::<u8>().is_ok_and(|seconds| seconds > 0);
    }
    let Some(factor) = ALL.iter().find(|known| known.name == factor) else { return false };
    let is_number = NUMBERS.contains(&factor.name) && level.starts_with(|first: char| first.is_ascii_digit());
    let is_list = factor.name == "work" && transfers(level).is_some();
    is_number || is_list || factor.levels.iter().any(|(known, _)| *known == level)
}
