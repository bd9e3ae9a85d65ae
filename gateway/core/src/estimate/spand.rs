//! The paper's rule (TCP/SPAND section 5.2): the plain average of all samples of the window.

use spand_proto::estimate::RuleKind;
use spand_proto::units::Window;

use super::{Admitted, Known, Rule, remotes};
use crate::flow::sample::WindowSample;
use crate::window::record::WindowSlice;

/// Averages samples as they were measured. One addition to the paper: no remote address gives more than half. Lower bounds
/// are no windows that were reached, so they do not count (docs/decisions/robust-rule.md).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SpandRule;

impl Rule for SpandRule {
    fn kind(&self) -> RuleKind {
        RuleKind::Spand
    }

    fn admit(&self, sample: &WindowSample, _known: &Known) -> Admitted {
        Admitted { window: sample.window, raised: false }
    }

    fn reads_slow_start_ends(&self) -> bool {
        true
    }

    fn share(&self, slice: WindowSlice<'_>) -> Option<Window> {
        remotes::average(slice)
    }
}
