//! Reports on the wire.

use std::net::SocketAddr;

use crate::contract::{ContractVersion, HostName};
use crate::push::PauseState;
use crate::report::{
    Arm, ConnectionReport, FirstFlightLoss, LimitedBy, MAX_CONNECTIONS, PushCount, Report, ReportReceipt, Transport,
};
use crate::resume::Phase;
use crate::start::RefusalReason;
use crate::units::{Bytes, Micros, Segments, Timestamp};
use crate::v1;

use super::{WireError, address, counted, entries, out_of_range, rtt, same_names, segments, socket};

same_names!(LimitedBy, v1::LimitedBy, Window, Receiver, Application);
same_names!(Arm, v1::Arm, Advised, Control);
same_names!(Transport, v1::Transport, Tcp, Quic);
same_names!(Phase, v1::ResumePhase, Reconnaissance, Unvalidated, Validating, SafeRetreat, Normal);

impl From<&Report> for v1::ReportRequest {
    fn from(report: &Report) -> Self {
        Self {
            contract_version: ContractVersion::CURRENT.number(),
            host_name: report.host_name.to_string(),
            batch: report.batch,
            agent_started_unix_ns: report.agent_started.0,
            connections: report.connections.iter().map(v1::ConnectionReport::from).collect(),
            pushes: Some(v1::PushCount {
                received: report.pushes.received,
                in_time: report.pushes.in_time,
                late: report.pushes.late,
                unmatched: report.pushes.unmatched,
            }),
            pause: report.pause.map(v1::PauseState::from),
        }
    }
}

impl TryFrom<v1::ReportRequest> for Report {
    type Error = WireError;

    fn try_from(message: v1::ReportRequest) -> Result<Self, WireError> {
        ContractVersion::of_peer(message.contract_version)?;
        counted(&message.connections, "connections", 0, MAX_CONNECTIONS)?;
        if message.batch == 0 {
            return Err(out_of_range(&0, "batch", "at least 1"));
        }
        let pushes = message.pushes.unwrap_or_default();
        Ok(Self {
            host_name: HostName::try_from(message.host_name)
                .map_err(|source| WireError::HostName { field: "host_name", source })?,
            batch: message.batch,
            agent_started: Timestamp(message.agent_started_unix_ns),
            connections: entries(message.connections, "connections", ConnectionReport::try_from)?,
            pushes: PushCount {
                received: pushes.received,
                in_time: pushes.in_time,
                late: pushes.late,
                unmatched: pushes.unmatched,
            },
            pause: message.pause.map(PauseState::from),
        })
    }
}

impl From<&ConnectionReport> for v1::ConnectionReport {
    fn from(report: &ConnectionReport) -> Self {
        Self {
            host_address: report.host.ip().to_string(),
            host_port: report.host.port().into(),
            remote_address: report.remote.ip().to_string(),
            remote_port: report.remote.port().into(),
            ended_ago_us: report.ended_ago.0,
            duration_us: report.duration.map(|duration| duration.0),
            end_window_bytes: report.end_window.map(|window| window.0),
            mss_bytes: report.mss.map(|mss| mss.0),
            srtt_us: report.srtt.map(|rtt| rtt.0),
            rtt_min_us: report.rtt_min.map(|rtt| rtt.0),
            acknowledged_bytes: report.acknowledged.0,
            retransmitted_segments: report.retransmitted.0,
            first_flight_loss: report.first_flight_loss,
            first_flight: report
                .first_flight
                .map(|flight| v1::FirstFlightLoss { sent_segments: flight.sent.0, lost_segments: flight.lost.0 }),
            limited_by: report.limited_by.map_or(v1::LimitedBy::Unspecified as i32, LimitedBy::to_wire),
            arm: report.arm.map_or(v1::Arm::Unspecified as i32, Arm::to_wire),
            advised_segments: report.advised.map(|window| window.0),
            refusal: report.refusal.map_or(v1::RefusalReason::Unspecified as i32, RefusalReason::to_wire),
            paused: report.paused,
            transport: report.transport.to_wire(),
            loss_window_bytes: report.loss_window.map(|window| window.0),
            congestion_events: report.congestion_events,
            ended_in_slow_start: report.ended_in_slow_start,
            careful_resume: report.careful_resume.map_or(v1::ResumePhase::Unspecified as i32, Phase::to_wire),
        }
    }
}

impl TryFrom<v1::ConnectionReport> for ConnectionReport {
    type Error = WireError;

    fn try_from(message: v1::ConnectionReport) -> Result<Self, WireError> {
        if message.mss_bytes == Some(0) {
            return Err(out_of_range(&0, "mss_bytes", "at least 1, or leave it out where it was not measured"));
        }
        let transport = Transport::from_wire(message.transport, "transport")?.unwrap_or_default();
        let host = match (transport, message.host_port) {
            // The application did not give it.
            (Transport::Quic, 0) => SocketAddr::new(address(&message.host_address, "host_address")?, 0),
            (_, number) => socket(&message.host_address, "host_address", number, "host_port")?,
        };
        Ok(Self {
            host,
            remote: socket(&message.remote_address, "remote_address", message.remote_port, "remote_port")?,
            ended_ago: Micros(message.ended_ago_us),
            duration: message.duration_us.map(Micros),
            end_window: message.end_window_bytes.map(Bytes),
            mss: message.mss_bytes.map(Bytes),
            srtt: rtt(message.srtt_us, "srtt_us")?,
            rtt_min: rtt(message.rtt_min_us, "rtt_min_us")?,
            acknowledged: Bytes(message.acknowledged_bytes),
            retransmitted: Segments(message.retransmitted_segments),
            first_flight_loss: message.first_flight_loss,
            first_flight: message.first_flight.map(|flight| FirstFlightLoss {
                sent: Segments(flight.sent_segments),
                lost: Segments(flight.lost_segments),
            }),
            limited_by: LimitedBy::from_wire(message.limited_by, "limited_by")?,
            arm: Arm::from_wire(message.arm, "arm")?,
            advised: message.advised_segments.map(|count| segments(count, "advised_segments")).transpose()?,
            refusal: RefusalReason::from_wire(message.refusal, "refusal")?,
            paused: message.paused,
            transport,
            loss_window: message.loss_window_bytes.map(Bytes),
            congestion_events: message.congestion_events,
            ended_in_slow_start: message.ended_in_slow_start,
            careful_resume: Phase::from_wire(message.careful_resume, "careful_resume")?,
        })
    }
}

impl From<ReportReceipt> for v1::ReportResponse {
    fn from(receipt: ReportReceipt) -> Self {
        Self {
            contract_version: ContractVersion::CURRENT.number(),
            accepted: receipt.accepted,
            ignored: receipt.ignored,
        }
    }
}

impl TryFrom<v1::ReportResponse> for ReportReceipt {
    type Error = WireError;

    fn try_from(message: v1::ReportResponse) -> Result<Self, WireError> {
        ContractVersion::of_peer(message.contract_version)?;
        Ok(Self { accepted: message.accepted, ignored: message.ignored })
    }
}
