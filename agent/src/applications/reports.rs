//! What applications report, as the gateway takes it.

use std::net::{IpAddr, SocketAddr};

use spand_advice::Ended;
use spand_proto::report::{ConnectionReport, FirstFlightLoss, Transport};
use spand_proto::units::{Bytes, Micros, Segments};
use spand_proto::v1;
use tokio::time::Instant;

use crate::apply;

/// The report of an application's connection; `None` where it names no other end, this host has no address of its family, or the gateway
/// would refuse it: with it the gateway refuses the whole batch, in which reports of others are.
pub fn report_of(ended: &Ended, addresses: &[IpAddr]) -> Option<apply::Ended> {
    let remote = ended.remote?;
    let remote = SocketAddr::new(remote.ip().to_canonical(), remote.port());
    let named = ended.local.map(|local| SocketAddr::new(local.ip().to_canonical(), local.port()));
    let host = match named {
        // The gateway takes an agent's word for its own addresses alone.
        Some(local) if addresses.contains(&local.ip()) => local,
        _ => {
            let own = addresses.iter().find(|address| address.is_ipv4() == remote.is_ipv4())?;
            SocketAddr::new(*own, named.map_or(0, |local| local.port()))
        }
    };
    let outcome = &ended.outcome;
    let flight = outcome.first_flight_sent_segments.zip(outcome.first_flight_lost_segments);
    let report = ConnectionReport {
        host,
        remote,
        ended_ago: Micros(0),
        duration: outcome.duration_us.filter(|_| !ended.goes_on && outcome.acknowledged_bytes > 0).map(Micros),
        end_window: outcome.end_window_bytes.map(Bytes),
        mss: outcome.mss_bytes.filter(|mss| *mss > 0).map(Bytes),
        srtt: outcome.srtt_us.filter(|rtt| *rtt > 0).map(Micros),
        rtt_min: outcome.rtt_min_us.filter(|rtt| *rtt > 0).map(Micros),
        acknowledged: Bytes(outcome.acknowledged_bytes),
        retransmitted: Segments(outcome.lost_segments),
        first_flight_loss: flight.map(|(_, lost)| lost > 0),
        first_flight: flight
            .filter(|(_, lost)| *lost > 0 && ended.advised_segments.is_some())
            .map(|(sent, lost)| FirstFlightLoss { sent: Segments(sent), lost: Segments(lost.min(sent)) }),
        limited_by: outcome.limited_by,
        arm: ended.arm.filter(|_| !ended.paused),
        advised: ended.advised_segments.map(Segments),
        refusal: ended.refusal.filter(|_| !ended.paused),
        paused: ended.paused,
        transport: Transport::Quic,
        loss_window: outcome.loss_window_bytes.map(Bytes),
        congestion_events: outcome.congestion_events,
        ended_in_slow_start: outcome.ended_in_slow_start,
        careful_resume: outcome.careful_resume,
    };
    ConnectionReport::try_from(v1::ConnectionReport::from(&report)).ok()?;
    Some(apply::Ended { report, at: Instant::now(), urgent: ended.goes_on })
}
