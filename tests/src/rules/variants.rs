//! The rules that are compared: those of the product, and variants that lost.

use spand_core::estimate::{Admitted, Known, ProbeRule, RobustRule, Rule, SpandRule};
use spand_core::types::WindowSample;
use spand_core::window::record::WindowSlice;
use spand_proto::estimate::RuleKind;
use spand_proto::units::Window;

/// A rule under a name.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name in the tables.
    pub name: &'static str,
    /// What it is.
    pub what: &'static str,
    /// Itself.
    pub rule: &'static dyn Rule,
}

const ROBUST: RobustRule = RobustRule::DEFAULT;

/// All of them; the first two and `robust` are the product's.
pub const ALL: &[Variant] = &[
    Variant { name: "spand", what: "the paper's plain average", rule: &SpandRule },
    Variant { name: "probe", what: "the same with probing ends", rule: &ProbeRule },
    Variant { name: "robust", what: "the default", rule: &ROBUST },
    Variant {
        name: "half-life 30 s",
        what: "`probe` with weights that halve every 30 s",
        rule: &Fading { half_life_s: 30.0 },
    },
    Variant {
        name: "five minutes",
        what: "no memory: all samples of the window",
        rule: &RobustRule { enough: u32::MAX, ..ROBUST },
    },
    Variant {
        name: "24 samples",
        what: "a memory of 24 samples and no least time",
        rule: &RobustRule { enough: 24, span: 1, ..ROBUST },
    },
    Variant {
        name: "48 samples",
        what: "a memory of 48 samples and no least time",
        rule: &RobustRule { span: 1, ..ROBUST },
    },
    Variant { name: "96 samples", what: "a memory of 96 samples at least", rule: &RobustRule { enough: 96, ..ROBUST } },
    Variant {
        name: "median",
        what: "the weighted median: a reach of nearly nothing",
        rule: &RobustRule { reach: 1e-6, ..ROBUST },
    },
    Variant {
        name: "reach 0.3",
        what: "values pull up to 0.3 of the share",
        rule: &RobustRule { reach: 0.3, ..ROBUST },
    },
    Variant {
        name: "reach 0.8",
        what: "values pull up to 0.8 of the share",
        rule: &RobustRule { reach: 0.8, ..ROBUST },
    },
    Variant {
        name: "mean",
        what: "no bound on a value's pull",
        rule: &RobustRule { reach: f64::MAX, alone: f64::MAX, ..ROBUST },
    },
    Variant {
        name: "alone 0.1",
        what: "an address pulls up to 0.1 of the share",
        rule: &RobustRule { alone: 0.1, ..ROBUST },
    },
    Variant {
        name: "alone 0.35",
        what: "an address pulls up to 0.35 of the share",
        rule: &RobustRule { alone: 0.35, ..ROBUST },
    },
    Variant {
        name: "alone 0.5",
        what: "no bound on an address but on its votes",
        rule: &RobustRule { alone: 0.5, ..ROBUST },
    },
    Variant { name: "half 10", what: "ends weigh half beside 10 losses", rule: &RobustRule { half: 10.0, ..ROBUST } },
    Variant { name: "ends whole", what: "ends weigh as much as losses", rule: &RobustRule { half: 1e12, ..ROBUST } },
    Variant { name: "bounds none", what: "lower bounds add nothing", rule: &RobustRule { lift: 0.0, ..ROBUST } },
    Variant {
        name: "bounds whole",
        what: "lower bounds raise to themselves",
        rule: &RobustRule { lift: f64::MAX, ..ROBUST },
    },
    Variant {
        name: "one in four",
        what: "an address has a quarter at most",
        rule: &RobustRule { per_address: 0.25, ..ROBUST },
    },
    Variant {
        name: "24 each",
        what: "a connection counts as 24 samples at most",
        rule: &RobustRule { per_connection: 24, ..ROBUST },
    },
    Variant {
        name: "no caps",
        what: "connections and addresses without a limit, but for half of all",
        rule: &RobustRule { per_connection: u32::MAX, per_address: 1.0, ..ROBUST },
    },
    Variant { name: "no hold", what: "advised ends count as measured", rule: &RobustRule { holds: false, ..ROBUST } },
];

/// The plain average with weights that fade with age.
#[derive(Clone, Copy, Debug)]
struct Fading {
    half_life_s: f64,
}

impl Rule for Fading {
    fn kind(&self) -> RuleKind {
        RuleKind::Spand
    }

    fn admit(&self, sample: &WindowSample, known: &Known) -> Admitted {
        ProbeRule.admit(sample, known)
    }

    fn share(&self, slice: WindowSlice<'_>) -> Option<Window> {
        let newest = slice.contributions.last()?.bucket;
        let (mut weight, mut sum) = (0.0, 0.0);
        for part in slice.contributions {
            let age_s = newest.saturating_sub(part.bucket) as f64 * 10.0;
            let fading = 0.5_f64.powf(age_s / self.half_life_s);
            weight += fading * f64::from(part.samples);
            sum += fading * part.sum_bytes;
        }
        if weight > 0.0 { Window::from_bytes(sum / weight) } else { None }
    }
}
