//! Rules of research for how a connection opens, by the senders under way to its network (Yu & Newman 2011): `liss`, `iss`, `miss`, and
//! `cached` and `averaged` that they are compared with. Their share is that of `robust`, which the engine has.
//!
//! The engine reports its senders through [`Openings`], and only where the rule in force, or one compared with it, is one of these.

#![forbid(unsafe_code)]

mod average;
mod losses;
mod rules;
mod senders;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::sync::Arc;

use spand_core::opening::Openings;
use spand_proto::estimate::RuleKind;

pub use self::losses::LossCount;
use self::senders::LiveSenders;

/// Senders of one network with a place of their own, 160 bytes each, unless configured. Others are only counted.
pub const PLACES: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Returns the state of senders under way for the rule in force and for those compared with it; `None` where none of them is a rule for an opening.
pub fn openings(
    rule: RuleKind,
    compared: &[RuleKind],
    places: NonZeroUsize,
    counted: LossCount,
) -> Option<Arc<dyn Openings>> {
    let looks = |rule: &RuleKind| !matches!(rule, RuleKind::Spand | RuleKind::Probe | RuleKind::Robust);
    let wanted = looks(&rule) || compared.iter().any(looks);
    wanted.then(|| Arc::new(LiveSenders::new(rule, places, counted)) as Arc<dyn Openings>)
}
