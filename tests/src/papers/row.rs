//! A row of the page: one experiment of a paper, how it runs and when it is met.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result};

use super::find::Find;
use super::ns::Figures;
use super::query::Lists;
use super::rows::Read;
use crate::campaign::statistics::Mean;

/// One experiment.
pub struct Row {
    /// Its name on the page and for `--only`.
    pub id: String,
    /// Paper, section and setting in a line.
    pub what: String,
    /// What it must come to, in words.
    pub expected: String,
    /// Where that is from.
    pub source: String,
    /// How a setting runs.
    pub way: Way,
    /// How often each setting runs, each time with another seed from 1 on; 1 where nothing is random.
    pub seeds: u64,
    /// The same with `--quick`.
    pub quick_seeds: u64,
    /// What is compared.
    pub settings: Vec<Setting>,
    /// What the figures come to, of entries of these lists.
    pub(super) finds: Vec<Find>,
    pub(super) lists: Lists,
    /// And what no query says.
    pub(super) more: Option<fn(&Outcomes) -> Judged>,
}

impl Row {
    /// What its results come to.
    pub fn judge(&self, outcomes: &Outcomes) -> Result<Judged> {
        let mut judged = self.more.map_or_else(Judged::default, |more| more(outcomes));
        for find in &self.finds {
            find.judge(&mut judged, outcomes, &self.lists).with_context(|| self.id.clone())?;
        }
        Ok(judged)
    }
}

/// Runs a setting on this kernel with a seed.
pub type Run = fn(&Setting, u64, &Programs) -> Result<Figures>;

/// How a row's settings run.
#[derive(Clone, Debug)]
pub enum Way {
    /// In ns-2.
    Simulated {
        /// Script in `tests/papers`.
        script: String,
        /// How the figures are read out of what it prints.
        read: Read,
    },
    /// Between namespaces on this kernel: all that is compared side by side, in one run.
    Kernel {
        /// Raised when an older result no longer counts: there is no script that could be compared.
        version: u32,
        /// Runs a setting.
        run: Run,
    },
}

impl Way {
    /// Whether it needs this kernel, in place of the simulator.
    pub const fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel { .. })
    }
}

/// The programs that runs use.
#[derive(Clone, Debug)]
pub struct Programs {
    /// What answers the simulator.
    pub oracle: PathBuf,
    /// The product's gateway.
    pub gateway: PathBuf,
    /// The product's agent.
    pub agent: PathBuf,
}

impl Programs {
    /// All of them in the oracle's folder.
    pub fn beside(oracle: &Path) -> Self {
        let program = |name| oracle.with_file_name(name);
        Self { oracle: oracle.to_owned(), gateway: program("spand-gateway"), agent: program("spand-agent") }
    }
}

/// One way to set a row up.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Its name in files and on the page.
    pub name: String,
    /// Options of the script or of the run on a kernel, apart from the seed and the programs.
    pub options: Vec<(String, String)>,
    /// Whether `--quick` runs it.
    pub quick: bool,
    /// Its script, where that is another than the row's.
    pub script: Option<String>,
}

impl Setting {
    /// An option's value, read as a number or a word.
    pub fn option<T: FromStr>(&self, name: &str) -> Result<T> {
        let value = self.options.iter().find(|(option, _)| *option == name).map(|(_, value)| value);
        let value = value.with_context(|| format!("setting {} has no option {name}", self.name))?;
        value.parse().ok().with_context(|| format!("setting {}: {name} cannot be {value}", self.name))
    }
}

/// The figures of a row's runs, by setting and seed.
#[derive(Debug, Default)]
pub struct Outcomes(pub BTreeMap<String, BTreeMap<u64, Figures>>);

impl Outcomes {
    /// A figure of each seed of a setting.
    pub fn by_seed(&self, setting: &str, figure: &str) -> BTreeMap<u64, f64> {
        let runs = self.0.get(setting).into_iter().flatten();
        runs.filter_map(|(seed, figures)| Some((*seed, *figures.get(figure)?))).collect()
    }

    /// A figure of a setting's first seed.
    pub fn one(&self, setting: &str, figure: &str) -> Option<f64> {
        self.by_seed(setting, figure).into_values().next()
    }

    /// The mean over seeds.
    pub fn mean(&self, setting: &str, figure: &str) -> Option<Mean> {
        Mean::of(&self.by_seed(setting, figure).into_values().collect::<Vec<_>>())
    }

    /// By which part of the baseline's mean a figure is larger than the baseline's, over the seeds that both have.
    pub fn change(&self, setting: (&str, &str), baseline: (&str, &str)) -> Option<Mean> {
        let ours = self.by_seed(setting.0, setting.1);
        let theirs = self.by_seed(baseline.0, baseline.1);
        let pairs: Vec<(f64, f64)> = ours.iter().filter_map(|(seed, ours)| Some((*ours, *theirs.get(seed)?))).collect();
        let level = Mean::of(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>())?.value;
        Mean::of(&pairs.iter().map(|(ours, theirs)| (ours - theirs) / level).collect::<Vec<_>>())
    }
}

/// Whether a row comes out as the paper has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the band.
    Met,
    /// Outside.
    Short,
    /// None is outside, but the interval of one over its seeds holds an edge of its band.
    NotDecided,
    /// There is no band: what came out is on the page.
    Reported,
    /// Some of its runs have no result yet.
    Incomplete,
}

impl Verdict {
    /// Its word on the page.
    pub fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Short => "**short**",
            Self::NotDecided => "not decided",
            Self::Reported => "reported",
            Self::Incomplete => "incomplete",
        }
    }
}

/// How a figure stands to its band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Within, with its whole interval where it has one.
    Met,
    /// Outside, with its whole interval.
    Short,
    /// Its interval over seeds holds an edge of the band: more seeds may take it to either side.
    NotDecided,
}

impl Standing {
    /// Of a mean over seeds; one seed has no interval, and stands where its value does.
    pub fn of(mean: &Mean, band: &RangeInclusive<f64>) -> Self {
        let interval = mean.half_width.map(|half| mean.value - half..=mean.value + half);
        let holds = |edge| interval.as_ref().is_some_and(|interval| interval.contains(edge));
        if holds(band.start()) || holds(band.end()) { Self::NotDecided } else { Self::from(band.contains(&mean.value)) }
    }

    /// Of figures of which most are to stand within.
    pub fn of_most(standings: &[Self]) -> Self {
        let count = |of: Self| standings.iter().filter(|standing| **standing == of).count();
        if 2 * count(Self::Met) > standings.len() {
            Self::Met
        } else if 2 * (count(Self::Met) + count(Self::NotDecided)) <= standings.len() {
            Self::Short
        } else {
            Self::NotDecided
        }
    }

    /// Its word on the page.
    pub fn word(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Short => "short",
            Self::NotDecided => "not decided",
        }
    }
}

impl From<bool> for Standing {
    fn from(is_met: bool) -> Self {
        if is_met { Self::Met } else { Self::Short }
    }
}

/// One line of a row's table.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was measured.
    pub what: String,
    /// What it should be; empty where there is no target.
    pub expected: String,
    /// What it is; `None` without a result.
    pub found: Option<String>,
    /// Whether that will do; `None` where there is no target, or no result.
    pub standing: Option<Standing>,
}

/// A row's findings.
#[derive(Clone, Debug, Default)]
pub struct Judged(pub Vec<Finding>);

impl Judged {
    /// A figure with a target: `found` is its text and whether it is within.
    pub fn target(
        &mut self,
        what: impl Into<String>,
        expected: impl Into<String>,
        found: Option<(String, impl Into<Standing>)>,
    ) {
        let (found, standing) = found.map(|(text, standing)| (text, standing.into())).unzip();
        self.0.push(Finding { what: what.into(), expected: expected.into(), found, standing });
    }

    /// A figure without a target.
    pub fn report(&mut self, what: impl Into<String>, expected: impl Into<String>, found: Option<String>) {
        self.0.push(Finding { what: what.into(), expected: expected.into(), found, standing: None });
    }

    /// What all of them come to.
    pub fn verdict(&self) -> Verdict {
        let some = |of: Standing| self.0.iter().any(|finding| finding.standing == Some(of));
        if self.0.iter().any(|finding| finding.found.is_none()) {
            Verdict::Incomplete
        } else if some(Standing::Short) {
            Verdict::Short
        } else if some(Standing::NotDecided) {
            Verdict::NotDecided
        } else if some(Standing::Met) {
            Verdict::Met
        } else {
            Verdict::Reported
        }
    }
}

/// A number of seeds in words.
pub fn seeds(count: usize) -> String {
    format!("{count} {}", if count == 1 { "seed" } else { "seeds" })
}

/// A change in percent with its interval and the number of seeds.
pub fn percent(change: &Mean) -> String {
    let half = change.half_width.map_or_else(String::new, |half| format!(" ±{:.1}", half * 100.0));
    format!("{:+.1}{half} % ({})", change.value * 100.0, seeds(change.count))
}

/// A multiple with its interval and the number of seeds.
pub fn times(mean: &Mean) -> String {
    let half = mean.half_width.map_or_else(String::new, |half| format!(" ±{half:.2}"));
    format!("{:.2}{half} ({})", mean.value, seeds(mean.count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(of: &[(&str, u64, f64)]) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for (setting, seed, value) in of {
            let seeds = outcomes.0.entry((*setting).to_owned()).or_default();
            seeds.insert(*seed, Figures::from([("t".to_owned(), *value)]));
        }
        outcomes
    }

    #[test]
    fn a_change_compares_the_same_seeds_alone() {
        let outcomes = outcomes(&[("a", 1, 1.0), ("a", 2, 2.0), ("a", 3, 9.0), ("b", 1, 2.0), ("b", 2, 4.0)]);
        let change = outcomes.change(("a", "t"), ("b", "t")).unwrap();
        assert_eq!((change.value, change.count), (-0.5, 2));
        assert!(outcomes.change(("a", "t"), ("c", "t")).is_none());
    }

    #[test]
    fn a_row_is_met_when_every_target_is_and_incomplete_while_a_result_is_missing() {
        let mut judged = Judged::default();
        judged.report("a", "", Some("1".to_owned()));
        assert_eq!(judged.verdict(), Verdict::Reported);
        judged.target("b", "", Some(("1".to_owned(), true)));
        assert_eq!(judged.verdict(), Verdict::Met);
        judged.target("c", "", Some(("1".to_owned(), false)));
        assert_eq!(judged.verdict(), Verdict::Short);
        judged.target("d", "", None::<(String, bool)>);
        assert_eq!(judged.verdict(), Verdict::Incomplete);
    }

    #[test]
    fn an_interval_that_holds_an_edge_decides_nothing() {
        let standing = |value, half_width, band| Standing::of(&Mean { value, half_width, count: 3 }, &band);
        assert_eq!(standing(1.2, Some(0.1), 1.0..=1.5), Standing::Met);
        assert_eq!(standing(1.4, Some(0.2), 1.0..=1.5), Standing::NotDecided);
        assert_eq!(standing(0.9, Some(0.2), 1.0..=1.5), Standing::NotDecided);
        assert_eq!(standing(1.2, Some(0.9), 1.0..=1.5), Standing::NotDecided);
        assert_eq!(standing(0.8, Some(0.1), 1.0..=1.5), Standing::Short);
        assert_eq!(standing(1.8, Some(0.1), 1.0..=1.5), Standing::Short);
        assert_eq!(standing(1.1, Some(0.2), f64::NEG_INFINITY..=1.5), Standing::Met);
        // One seed.
        assert_eq!(standing(1.5, None, 1.0..=1.5), Standing::Met);
        assert_eq!([0.9, 1.1].map(|value| standing(value, None, 1.0..=1.5)), [Standing::Short, Standing::Met]);

        let mut judged = Judged::default();
        let mut add = |of: &[f64]| {
            let found = Mean::of(of).map(|mean| (String::new(), Standing::of(&mean, &(1.0..=f64::INFINITY))));
            judged.target("a", "1 or more", found);
            judged.verdict()
        };
        assert_eq!(add(&[1.2, 1.25, 1.3]), Verdict::Met);
        assert_eq!(add(&[0.9, 1.1, 1.3]), Verdict::NotDecided);
        assert_eq!(add(&[0.1, 0.2, 0.3]), Verdict::Short);
    }

    #[test]
    fn most_are_more_than_half_and_the_undecided_may_be_either() {
        let most = |words: &str| {
            let standing = |word| match word {
                'm' => Standing::Met,
                's' => Standing::Short,
                _ => Standing::NotDecided,
            };
            Standing::of_most(&words.chars().map(standing).collect::<Vec<_>>())
        };
        assert_eq!(
            ["mmms", "mmm?", "mm?s", "mmss", "m?ss"].map(most).map(Standing::word),
            ["met", "met", "not decided", "short", "short",]
        );
    }
}
