//! Recovery for the many senders that never need it: its state is made with the first thing that it has to remember.

use spand_proto::units::Timestamp;

use super::{AckKind, Progress, Recovery, Repeat, Turn};
use crate::flow::shadow::observation::LossKind;
use crate::mem::boxed;

/// One sender's loss recovery; nothing yet where nothing was to be remembered. A sender has one at most, which bounds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seldom(Option<Box<Recovery>>);

impl Seldom {
    /// Memory of it.
    pub(crate) fn held_bytes(&self) -> usize {
        if self.0.is_some() { const { boxed::<Recovery>() } } else { 0 }
    }

    /// See [`Recovery::is_active`].
    pub(crate) fn is_active(&self) -> bool {
        self.0.as_ref().is_some_and(|recovery| recovery.is_active())
    }

    /// See [`Recovery::is_due`].
    pub(crate) fn is_due(&self) -> bool {
        self.0.as_ref().is_some_and(|recovery| recovery.is_due())
    }

    /// See [`Recovery::outlasts`].
    pub(crate) fn outlasts(&self, una: u64) -> bool {
        self.0.as_ref().is_some_and(|recovery| recovery.outlasts(una))
    }

    /// See [`Recovery::repeated`].
    pub(crate) fn repeated(&mut self, repeat: &Repeat) -> Option<LossKind> {
        self.0.get_or_insert_default().repeated(repeat)
    }

    /// See [`Recovery::note_ecn_capable`].
    pub(crate) fn note_ecn_capable(&mut self) {
        self.0.get_or_insert_default().note_ecn_capable();
    }

    /// See [`Recovery::sent`]: it moves a point, and without a state there is none.
    pub(crate) fn sent(&mut self, at: Timestamp, positions: (u64, u64), reduced: bool) {
        if let Some(recovery) = &mut self.0 {
            recovery.sent(at, positions, reduced);
        }
    }

    /// See [`Recovery::acknowledged`].
    #[inline]
    pub(crate) fn acknowledged(&mut self, progress: &Progress) -> Turn {
        match &mut self.0 {
            Some(recovery) => recovery.acknowledged(progress),
            None if changes_nothing(progress) => Turn::default(),
            none => none.get_or_insert_default().acknowledged(progress),
        }
    }
}

/// Whether an acknowledgement leaves a recovery that has nothing to remember as it is, and calls for nothing.
fn changes_nothing(progress: &Progress) -> bool {
    progress.kind != AckKind::Duplicate && progress.lost == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_over_changes_nothing() {
        let (mut passed, all) = (0, 3 << 5);
        for n in 0..all {
            let bit = |at: u32| n >> at & 1 == 1;
            let progress = Progress {
                una: 5_000,
                nxt: 9_000,
                heard_at: Timestamp(u64::MAX),
                kind: [AckKind::Advance, AckKind::Duplicate, AckKind::Other][n >> 5],
                original: bit(0),
                dsack: bit(0),
                echo: bit(1).then_some(7),
                ece: bit(2),
                lost: if bit(3) { 1_000 } else { 0 },
                repeated: 0,
                lost_again: bit(4),
                counted: None,
            };
            let mut recovery = Recovery::default();
            let turn = recovery.acknowledged(&progress);
            if changes_nothing(&progress) {
                passed += 1;
                assert_eq!(turn, Turn::default(), "{progress:?}");
                assert_eq!(format!("{recovery:?}"), format!("{:?}", Recovery::default()), "{progress:?}");
            }
        }
        assert_eq!(passed, all / 3, "of the three kinds two, and of those without losses half");
    }
}
