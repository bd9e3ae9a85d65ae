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
        name: "all at last",
        what: "no memory of its own for an address",
        rule: &RobustRule { last: u32::MAX, ..ROBUST },
    },
    Variant { name: "8 at last", what: "8 samples are enough for an address", rule: &RobustRule { last: 8, ..ROBUST } },
    Variant { name: "median", what: "the median of addresses", rule: &RobustRule { factors: (1.0, 1.0), ..ROBUST } },
    Variant { name: "mean", what: "no address is held", rule: &RobustRule { factors: (f64::MAX, f64::MAX), ..ROBUST } },
    Variant {
        name: "held to 2",
        what: "addresses are held within twice and half of their median",
        rule: &RobustRule { factors: (2.0, 2.0), ..ROBUST },
    },
    Variant {
        name: "held to 3",
        what: "addresses are held within three times and a third of their median",
        rule: &RobustRule { factors: (3.0, 3.0), ..ROBUST },
    },
    Variant {
        name: "spread 2",
        what: "addresses are held within twice the median distance",
        rule: &RobustRule { spread: 2.0, ..ROBUST },
    },
    Variant {
        name: "spread 5",
        what: "addresses are held within five times the median distance",
        rule: &RobustRule { spread: 5.0, ..ROBUST },
    },
    Variant { name: "bounds none", what: "lower bounds add nothing", rule: &RobustRule { lift: 0.0, ..ROBUST } },
    Variant {
        name: "bounds whole",
        what: "lower bounds raise to themselves",
        rule: &RobustRule { lift: f64::MAX, ..ROBUST },
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
