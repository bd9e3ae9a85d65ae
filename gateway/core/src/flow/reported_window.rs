//! The window and round trip that a sender reports itself, in a TCP option of its segments (TCP/SPAND 5.2.2, the second way of
//! collecting).
//!
//! It is accepted if consistent with the packets: a window between half of the flight size then and twice what was at most
//! during the transfer, a round trip between half and twice what was measured. So nonsense moves no sample further than that
//! from what was seen.

use spand_proto::units::{Bytes, Micros, Window};

use crate::types::SampleReason;
use crate::wire::segment::WindowOption;

/// The option of the last segment with new data, and what was in flight with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedWindow {
    option: WindowOption,
    /// Bytes in the network with that segment.
    pipe: u32,
}

impl ReportedWindow {
    pub(crate) fn new(option: WindowOption, pipe: u64) -> Self {
        Self { option, pipe: u32::try_from(pipe).unwrap_or(u32::MAX) }
    }

    /// The round trip, where it agrees with the smoothed one that was measured.
    pub(crate) fn rtt(&self, measured: Micros) -> Option<Micros> {
        let srtt_us = u64::from(self.option.srtt_us);
        (srtt_us > 0 && srtt_us >= measured.0 / 2 && srtt_us / 2 <= measured.0).then_some(Micros(srtt_us))
    }

    /// The value of a sample of this reason, where the window agrees with what was seen; `most` is the most that was in the
    /// network during the transfer.
    pub(crate) fn sample(&self, reason: SampleReason, mss: Bytes, most: u64) -> Option<Window> {
        let window = u64::from(self.option.window_bytes);
        let is_consistent = window >= mss.0 && window >= u64::from(self.pipe) / 2 && window / 2 <= most;
        let (window, mss) = (window as f64, mss.0 as f64);
        let value = match reason {
            SampleReason::Loss | SampleReason::Ecn => (window - mss).max(mss),
            // What is acknowledged after the last byte opens it by up to a segment.
            SampleReason::End => window + mss * (f64::from(self.pipe) / window).min(1.0),
            // What was in the network says how little it was at least: no window does.
            SampleReason::FirstFlight
            | SampleReason::Rate
            | SampleReason::Carried
            | SampleReason::EndSlowStart
            | SampleReason::EndAppLimited
            | SampleReason::EndReceiverLimited => return None,
        };
        Window::from_bytes(value).filter(|_| is_consistent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: Bytes = Bytes(1_000);

    fn reported(window_bytes: u32, pipe: u64) -> ReportedWindow {
        ReportedWindow::new(WindowOption { window_bytes, srtt_us: 50_000 }, pipe)
    }

    #[test]
    fn a_sample_is_the_window_reported_at_its_moment() {
        let of = |reason| reported(20_000, 10_000).sample(reason, MSS, 20_000).map(Window::bytes);
        assert_eq!(of(SampleReason::Loss), Some(19_000.0));
        assert_eq!(of(SampleReason::Ecn), Some(19_000.0));
        assert_eq!(of(SampleReason::End), Some(20_500.0), "half of it was still to be acknowledged");
        assert_eq!(of(SampleReason::EndSlowStart), None);
        assert_eq!(of(SampleReason::EndAppLimited), None);
    }

    #[test]
    fn a_window_or_round_trip_that_contradicts_the_packets_is_ignored() {
        let of = |window, pipe, most| reported(window, pipe).sample(SampleReason::End, MSS, most).is_some();
        assert!(of(20_000, 40_000, 40_000) && !of(19_999, 40_000, 40_000), "half of what was in the network");
        assert!(of(40_001, 20_000, 20_000) && !of(40_002, 20_000, 20_000), "twice the most there was");
        assert!(!of(0, 0, 0) && !of(999, 1, 1_000) && !of(u32::MAX, 10_000, 10_000));
        let rtt = |measured| reported(1, 1).rtt(Micros(measured)).is_some();
        assert!(rtt(25_000) && rtt(100_001) && !rtt(24_999) && !rtt(100_002));
        assert_eq!(ReportedWindow::new(WindowOption { window_bytes: 1, srtt_us: 0 }, 1).rtt(Micros(0)), None);
    }
}
