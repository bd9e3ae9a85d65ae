//! What the report of a QUIC connection shows of its network's share, as far as it can be true.

use std::hash::BuildHasher;
use std::net::Ipv6Addr;

use spand_proto::network::Network;
use spand_proto::report::{ConnectionReport, LimitedBy, Transport};
use spand_proto::units::{Bytes, Micros, Timestamp, Window};
use strum::{IntoStaticStr, VariantArray};

use crate::hash::SeededState;
use crate::types::{ConnectionId, SampleReason, WindowSample};

/// The report of a connection that ended, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReportedConnection {
    /// A number of the host that reports, the same for all its reports: of its certificate, or else of its address.
    pub reporter: u64,
    /// When the report arrived, by the clock that stamps frames.
    pub arrived: Timestamp,
    /// What it says.
    pub report: ConnectionReport,
}

/// Why a report gives no sample.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReportRefused {
    /// It is of TCP, whose windows come from the wire.
    Tcp,
    /// The connection ended more than a minute ago.
    Old,
    /// No round-trip time, or a longer one than a minute.
    NoRtt,
    /// No segment size, or one that no QUIC connection has.
    NoMss,
    /// Its numbers contradict each other.
    Unsound,
    /// The window is larger than all that was acknowledged, so it cannot have been in flight.
    NotAcknowledged,
    /// The window is larger than any that is believed.
    TooLarge,
    /// It shows nothing: losses in slow start alone, no window, or an advised one that was not filled.
    NoSample,
    /// The estimate comes from the wire.
    Wire,
    /// The host has given as many samples of the network in this bucket as count.
    HostLimit,
    /// Half of the table of networks or of its memory is in use, or sixteen other hosts gave samples of the network in this bucket.
    NoRoom,
    /// No network of this engine.
    NotANetwork,
}

impl ReportRefused {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A connection that ended longer ago says too little of the path as it is.
const LONGEST_AGO: Micros = Micros::from_secs(60);
/// The longest round trip that is believed.
const LONGEST_RTT: Micros = Micros::from_secs(60);
/// Segment sizes of QUIC, whose datagrams hold 1,200 bytes at least (RFC 9000) and 65,527 at most.
const MSS: std::ops::RangeInclusive<u64> = 1_000..=65_527;
/// The largest window that is believed: 10 Gbit/s over a round trip of 50 ms.
const LARGEST_WINDOW: Bytes = Bytes(64 << 20);

/// The sample or lower bound that a report gives at `now`, with the newest and the smallest round-trip time.
pub(super) fn sample(
    network: Network,
    &ReportedConnection { reporter, arrived, report }: &ReportedConnection,
    now: Timestamp,
    hash: SeededState,
) -> Result<WindowSample, ReportRefused> {
    if report.transport != Transport::Quic {
        return Err(ReportRefused::Tcp);
    }
    let at = arrived.before(report.ended_ago).min(now);
    if now.since(at) > LONGEST_AGO {
        return Err(ReportRefused::Old);
    }
    let believed = |rtt: &Micros| rtt.0 > 0 && *rtt <= LONGEST_RTT;
    let rtt = report.srtt.filter(believed).ok_or(ReportRefused::NoRtt)?;
    let rtt_min = Some(report.rtt_min.unwrap_or(rtt).min(rtt)).filter(believed).ok_or(ReportRefused::NoRtt)?;
    let mss = report.mss.filter(|mss| MSS.contains(&mss.0)).ok_or(ReportRefused::NoMss)?;
    if report.loss_window.is_some() && report.congestion_events == 0 {
        return Err(ReportRefused::Unsound);
    }
    let (reason, bytes) = shown(&report, mss)?;
    Ok(WindowSample {
        at,
        network,
        // The reporter's number stands where a sample has an address, and the address where it has a connection.
        remote: Ipv6Addr::from_bits(reporter.into()).into(),
        connection: ConnectionId(hash.hash_one(report.remote.ip()) >> 2),
        window: Window::from_bytes(bytes).ok_or(ReportRefused::Unsound)?,
        mss,
        reason,
        reduced_before: false,
        // Not known: the rule `probe` raises samples of large transfers alone.
        transfer: Bytes(0),
        advised: report.advised.is_some(),
        rtt_min: Some(rtt_min),
        rtt: Some(rtt),
    })
}

/// Which sample the report gives (`docs/explain/definitions.md`, "Samples"), and its bytes.
fn shown(report: &ConnectionReport, mss: Bytes) -> Result<(SampleReason, f64), ReportRefused> {
    let filled = report.limited_by == Some(LimitedBy::Window);
    let (reason, window) = if report.congestion_events > 0 {
        (SampleReason::Loss, report.loss_window)
    } else if report.advised.is_some() && !filled {
        (SampleReason::EndAppLimited, None)
    } else {
        let reason = match report.limited_by {
            Some(LimitedBy::Window) if report.ended_in_slow_start == Some(false) => SampleReason::End,
            Some(LimitedBy::Window) => SampleReason::EndSlowStart,
            Some(LimitedBy::Receiver) => SampleReason::EndReceiverLimited,
            Some(LimitedBy::Application) | None => SampleReason::EndAppLimited,
        };
        (reason, report.end_window)
    };
    let window = window.filter(|window| window.0 > 0).ok_or(ReportRefused::NoSample)?;
    if window > report.acknowledged {
        return Err(ReportRefused::NotAcknowledged);
    }
    if window > LARGEST_WINDOW {
        return Err(ReportRefused::TooLarge);
    }
    let (window, mss) = (window.0 as f64, mss.0 as f64);
    let bytes = match reason {
        SampleReason::Loss => (window - mss).max(mss),
        SampleReason::End => window,
        // The last acknowledgements double the window of a slow start with no data left to send.
        _ if report.ended_in_slow_start != Some(false) => window / 2.0,
        _ => window,
    };
    Ok((reason, bytes))
}

#[cfg(test)]
mod tests {
    use spand_proto::units::Segments;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

    fn report() -> ConnectionReport {
        ConnectionReport {
            host: ([10, 0, 0, 1], 443).into(),
            remote: ([192, 0, 2, 7], 50_000).into(),
            ended_ago: Micros(0),
            duration: None,
            end_window: Some(Bytes(48_000)),
            mss: Some(Bytes(1_200)),
            srtt: Some(Micros(40_000)),
            rtt_min: Some(Micros(30_000)),
            acknowledged: Bytes(1_000_000),
            retransmitted: Segments(0),
            first_flight_loss: None,
            first_flight: None,
            limited_by: Some(LimitedBy::Window),
            arm: None,
            advised: None,
            refusal: None,
            paused: false,
            transport: Transport::Quic,
            loss_window: Some(Bytes(36_000)),
            congestion_events: 2,
            ended_in_slow_start: Some(false),
            careful_resume: None,
        }
    }

    fn of(change: impl FnOnce(&mut ConnectionReport)) -> Result<(SampleReason, f64), ReportRefused> {
        let mut reported = ReportedConnection { reporter: 1, arrived: NOW, report: report() };
        change(&mut reported.report);
        let network = "192.0.2.0/24".parse().unwrap();
        sample(network, &reported, NOW, SeededState(7)).map(|sample| (sample.reason, sample.window.bytes()))
    }

    /// Without a congestion event.
    fn clean(change: impl FnOnce(&mut ConnectionReport)) -> Result<(SampleReason, f64), ReportRefused> {
        of(|report| {
            (report.loss_window, report.congestion_events) = (None, 0);
            change(report);
        })
    }

    #[test]
    fn a_loss_gives_the_window_less_a_segment_and_a_clean_end_what_was_filled() {
        assert_eq!(of(|_| {}), Ok((SampleReason::Loss, 34_800.0)));
        assert_eq!(of(|report| report.loss_window = Some(Bytes(1_000))), Ok((SampleReason::Loss, 1_200.0)));
        assert_eq!(clean(|_| {}), Ok((SampleReason::End, 48_000.0)));
        for unknown in [None, Some(true)] {
            let end = clean(|report| report.ended_in_slow_start = unknown);
            assert_eq!(end, Ok((SampleReason::EndSlowStart, 24_000.0)), "a bound: the half that was in flight");
        }
        let by = |limited_by| clean(|report| report.limited_by = limited_by);
        assert_eq!(by(Some(LimitedBy::Receiver)), Ok((SampleReason::EndReceiverLimited, 48_000.0)));
        assert_eq!(by(Some(LimitedBy::Application)), Ok((SampleReason::EndAppLimited, 48_000.0)));
        assert_eq!(by(None), Ok((SampleReason::EndAppLimited, 48_000.0)));
    }

    #[test]
    fn what_shows_nothing_or_cannot_be_is_refused_by_its_reason() {
        use ReportRefused::*;
        assert_eq!(of(|report| report.transport = Transport::Tcp), Err(Tcp));
        assert_eq!(of(|report| report.ended_ago = LONGEST_AGO), of(|_| {}));
        assert_eq!(of(|report| report.ended_ago = Micros(LONGEST_AGO.0 + 1)), Err(Old));
        for rtt in [None, Some(Micros(0)), Some(Micros(LONGEST_RTT.0 + 1))] {
            assert_eq!(of(|report| report.srtt = rtt), Err(NoRtt));
        }
        assert_eq!(of(|report| report.rtt_min = Some(Micros(0))), Err(NoRtt));
        for mss in [None, Some(Bytes(999)), Some(Bytes(65_528))] {
            assert_eq!(of(|report| report.mss = mss), Err(NoMss));
        }
        assert_eq!(of(|report| report.congestion_events = 0), Err(Unsound));
        assert_eq!(of(|report| report.acknowledged = Bytes(36_000)), of(|_| {}));
        assert_eq!(of(|report| report.acknowledged = Bytes(35_999)), Err(NotAcknowledged));
        let large =
            |bytes| of(|report| (report.loss_window, report.acknowledged) = (Some(Bytes(bytes)), Bytes(u64::MAX)));
        assert_eq!(large(LARGEST_WINDOW.0 + 1), Err(TooLarge));
        assert!(large(LARGEST_WINDOW.0).is_ok());
        assert_eq!(of(|report| report.loss_window = None), Err(NoSample), "in slow start alone");
        assert_eq!(clean(|report| report.end_window = None), Err(NoSample));
        assert_eq!(clean(|report| report.end_window = Some(Bytes(0))), Err(NoSample));
        let unfilled = clean(|report| {
            (report.advised, report.limited_by) = (Some(Segments(40)), Some(LimitedBy::Application));
        });
        assert_eq!(unfilled, Err(NoSample), "an advised window that was not filled shows nothing of the path");
    }
}
