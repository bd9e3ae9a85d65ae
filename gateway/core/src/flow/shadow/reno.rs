//! Reno (RFC 5681): one segment per window acknowledged, half after a loss.

use spand_proto::units::Timestamp;

use super::cwnd::Cwnd;
use super::replica::Law;

/// Reno keeps nothing beside the window.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reno;

impl Law for Reno {
    fn price(&mut self, _at: Timestamp, cwnd: &Cwnd, _acked_segments: f32) -> u32 {
        cwnd.whole()
    }

    fn reduced(&mut self, cwnd: &Cwnd) -> u32 {
        (cwnd.whole() / 2).max(2)
    }
}
