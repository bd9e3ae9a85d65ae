//! The state of a sender in the middle of a transfer, for the rules that look at it.

use spand_proto::units::Micros;

use super::Sender;
use crate::flow::sink::FlowContext;
use crate::types::SenderState;

impl Sender {
    /// Reports its state to its network, where a rule looks at it.
    #[inline]
    pub(super) fn report_state(&mut self, context: &mut FlowContext<'_>) {
        let wanted = self.followed.as_deref().is_some_and(|followed| followed.reported_phase.is_some());
        if wanted && context.bad_times.is_none() {
            self.report_state_now(context);
        }
    }

    #[cold]
    fn report_state_now(&mut self, context: &mut FlowContext<'_>) {
        let (connection, rtt, timeout) =
            (self.connection(), self.rtt.smoothed().unwrap_or_default(), self.rtt.timeout());
        let Some(followed) = self.followed.as_deref_mut().filter(|followed| followed.transfer.is_some()) else {
            return;
        };
        let (shadow, Some(mss)) = (&followed.shadow, self.size.bytes()) else { return };
        let phase = shadow.phase();
        followed.reported_phase = Some(phase);
        let Some(window) = shadow.window_in_use() else { return };
        let state = SenderState {
            phase,
            window,
            ssthresh: shadow.ssthresh(),
            delivered_bytes: self.delivered,
            mss,
            rtt,
            // The last report is up to a round trip old when the sender falls silent.
            silence: Micros(timeout.0.saturating_add(rtt.0)),
        };
        context.findings.under_way(followed.network, context.now, followed.id(connection), &state);
    }
}
