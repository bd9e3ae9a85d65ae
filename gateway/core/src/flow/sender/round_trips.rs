//! Round-trip times by what acknowledgements tell.

use spand_proto::units::Micros;

use super::Sender;
use crate::counters::Ignored;
use crate::flow::maybe::MaybeMicros;
use crate::flow::rtt::round_trip;
use crate::flow::scoreboard::{Arrived, CumulativeAck};
use crate::flow::sink::FlowContext;
use crate::wire::segment::{Flags, Segment};

impl Sender {
    /// Counts a round-trip time of sequence and acknowledgement, and one by timestamps; returns the latter where the acknowledgement
    /// advanced. Records without a time give neither.
    pub(super) fn take_rtt(
        &mut self,
        segment: &Segment,
        by_sequence: Option<Micros>,
        advanced: bool,
        context: &mut FlowContext<'_>,
    ) -> Option<Micros> {
        if context.bad_times == Some(Ignored::Untimed) {
            return None;
        }
        let at = segment.at;
        let by_timestamp = segment.options.timestamps.and_then(|timestamps| self.echo.echoed(timestamps.echo, at));
        if let Some(details) = self.details() {
            if let Some(rtt) = by_sequence {
                details.rtt_seqack.add(rtt);
            }
            if let Some(rtt) = by_timestamp {
                details.rtt_timestamps.add(rtt);
            }
        }
        // Without an advance an echo repeats an old one's time, or comes from data of the peer's own.
        let by_timestamp = by_timestamp.filter(|_| advanced);
        let Some(rtt) = by_sequence.or(by_timestamp) else { return by_timestamp };
        self.rtt.add(rtt);
        context.counters.rtt_samples += 1;
        if let Some(followed) = self.followed.as_deref_mut() {
            followed.add_rtt(rtt, self.rtt.smoothed());
        }
        if self.handshake_rtt.is_none() && segment.flags.has(Flags::SYN) || self.coverage.is_none() {
            self.handshake_rtt = by_sequence.map_or(self.handshake_rtt, MaybeMicros::some);
            self.tell_segment_size(at);
        }
        by_timestamp
    }
}

/// The round trips that the sender itself takes an acknowledgement for, as Linux does (`tcp_ack_update_rtt`): the newest of
/// what it says has arrived, which its congestion control goes by, and the one that is smoothed: since the lowest segment
/// acknowledged was sent, so with the wait for a delayed acknowledgement; else since the lowest SACKed; else by the echo.
pub(super) fn senders_rtts(
    segment: &Segment,
    cumulative: &CumulativeAck,
    sacked: Option<Arrived>,
    by_echo: Option<Micros>,
) -> [Option<Micros>; 2] {
    let Some(smoothed) = cumulative.arrived.or(sacked) else {
        let echo = segment.options.timestamps.map(|timestamps| timestamps.echo);
        let repeated = cumulative.repeated.filter(|stamp| echo == Some(stamp.ts_value));
        return [repeated.and_then(|stamp| round_trip(stamp.at, segment.at)).or(by_echo); 2];
    };
    let newest = sacked.unwrap_or(smoothed);
    [newest.last, smoothed.first].map(|sent_at| round_trip(sent_at, segment.at))
}
