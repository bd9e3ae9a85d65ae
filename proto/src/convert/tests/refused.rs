//! What must not pass, and the field that is named.

use crate::convert::{WireError, answers_from_wire};
use crate::estimate::Estimate;
use crate::push::Update;
use crate::query::{Advice, Query, Question};
use crate::report::{ConnectionReport, Report, Transport};
use crate::start::{Refusal, RefusalReason, Start};
use crate::units::{Micros, Timestamp};
use crate::v1;

/// The moment at which everything here arrives.
const NOW: Timestamp = Timestamp::from_micros(2_000_000_000_000_000);

fn good_query() -> v1::QueryRequest {
    let question = v1::Question { address: "192.0.2.1".to_owned(), ..v1::Question::default() };
    v1::QueryRequest { contract_version: 1, questions: vec![question], ..v1::QueryRequest::default() }
}

fn query_error(change: impl FnOnce(&mut v1::QueryRequest)) -> String {
    let mut query = good_query();
    change(&mut query);
    Query::try_from(query).map_or_else(|error| error.to_string(), |_| "none".to_owned())
}

#[test]
fn a_query_is_refused_by_the_name_of_its_field() {
    assert_eq!(query_error(|_| ()), "none");
    let starts = |error: String, with: &str| assert!(error.starts_with(with), "{error}");
    starts(query_error(|q| q.contract_version = 0), "contract_version: contract version 0 ");
    starts(query_error(|q| q.mode = 77), "mode has the value 77");
    starts(query_error(|q| q.initial_window_segments = Some(0)), "initial_window_segments is 0");
    starts(query_error(|q| q.questions.clear()), "questions has 0 entries: give 1 to 256");
    let many = vec![v1::Question::default(); 257];
    starts(query_error(|q| q.questions = many), "questions has 257 entries");
    let zero_rtt = |q: &mut v1::QueryRequest| q.questions[0].handshake_rtt_us = Some(0);
    starts(query_error(zero_rtt), "questions[0].handshake_rtt_us is 0");
    let half = |q: &mut v1::QueryRequest| q.questions[0].host_port = Some(443);
    starts(query_error(half), "questions[0].host_address is missing");
    let no_port = |q: &mut v1::QueryRequest| q.questions[0].host_address = Some("203.0.113.10".to_owned());
    starts(query_error(no_port), "questions[0].host_port is missing");
    let long = |q: &mut v1::QueryRequest| q.questions[0].address = "x".repeat(1 << 20);
    starts(query_error(long), "questions[0].address: `xxx");
    assert!(query_error(long).len() < 250);
}

fn good_estimate() -> v1::Estimate {
    v1::Estimate {
        network: "192.0.2.0/24".to_owned(),
        mss_bytes: 1_448,
        rule: "probe".to_owned(),
        ..v1::Estimate::default()
    }
}

#[test]
fn an_estimate_is_refused_by_the_name_of_its_field() {
    let error = |change: fn(&mut v1::Estimate)| {
        let mut message = good_estimate();
        change(&mut message);
        Estimate::from_wire(&message, NOW).map_or_else(|error| error.to_string(), |_| "none".to_owned())
    };
    assert_eq!(error(|_| ()), "none");
    for (text, field) in [
        (error(|e| e.network = "192.0.2.0".to_owned()), "network"),
        (error(|e| e.share_bytes = f64::NAN), "share_bytes"),
        (error(|e| e.share_bytes = -1.0), "share_bytes"),
        (error(|e| e.mss_bytes = 0), "mss_bytes"),
        (error(|e| e.rtt_mean_us = Some(0)), "rtt_mean_us"),
        (error(|e| e.confidence = 1.5), "confidence"),
        (error(|e| e.confidence = f64::NAN), "confidence"),
        (error(|e| e.rule = "oracle".to_owned()), "rule"),
        (error(|e| e.buffer_bytes = Some(-1.0)), "buffer_bytes"),
        (error(|e| e.bdp_bytes = Some(-1.0)), "bdp_bytes"),
        (
            error(|e| e.opening = Some(v1::Opening { threshold_bytes: f64::INFINITY, ..opening() })),
            "opening.threshold_bytes",
        ),
        (error(|e| e.opening = Some(v1::Opening { rule: "oracle".to_owned(), ..opening() })), "opening.rule"),
    ] {
        assert!(text.starts_with(field), "{field}: {text}");
    }
}

#[test]
fn an_estimate_ages_by_the_receivers_clock() {
    let message = v1::Estimate { age_us: 7_000_000, ..good_estimate() };
    let other_clock = Timestamp::from_micros(30_000_000);
    let estimate = Estimate::from_wire(&message, other_clock).unwrap();
    assert_eq!(estimate.age(other_clock.after(Micros::from_secs(1))), Micros::from_secs(8));
}

fn opening() -> v1::Opening {
    v1::Opening { rule: "robust".to_owned(), threshold_bytes: 1.0, losses: None }
}

fn pacing() -> v1::Pacing {
    v1::Pacing { after_segments: 10, rate_bytes_per_second: 1, rtt_us: 1 }
}

#[test]
fn a_start_that_contradicts_itself_is_refused() {
    let account = v1::Account { share_segments: 40, shifted_segments: 40, rtt_check: 1, ..v1::Account::default() };
    let good = v1::Start {
        cwnd_segments: 40,
        ssthresh_segments: 40,
        mss_bytes: 1_448,
        pacing: Some(pacing()),
        mode: 2,
        account: Some(account),
        ..v1::Start::default()
    };
    assert!(Start::try_from(good.clone()).is_ok());
    let error = |change: fn(&mut v1::Start)| {
        let mut message = good.clone();
        change(&mut message);
        Start::try_from(message).unwrap_err().to_string()
    };
    for (text, field) in [
        (error(|s| s.cwnd_segments = 0), "cwnd_segments"),
        (error(|s| s.ssthresh_segments = 39), "ssthresh_segments"),
        (error(|s| s.pacing = Some(v1::Pacing { after_segments: 40, ..pacing() })), "pacing.after_segments"),
        (error(|s| s.pacing = Some(v1::Pacing { rate_bytes_per_second: 0, ..pacing() })), "pacing.rate"),
        (error(|s| s.mode = 0), "mode is missing"),
        (error(|s| s.account = None), "account is missing"),
    ] {
        assert!(text.starts_with(field), "{field}: {text}");
    }
}

#[test]
fn an_update_without_an_event_and_a_report_without_a_port_are_refused() {
    let update = Update::from_wire(v1::Update { sequence: 1, event: None }, NOW);
    assert_eq!(update, Err(WireError::Missing { field: "event" }));
    let connection = v1::ConnectionReport {
        host_address: "192.0.2.1".to_owned(),
        host_port: 65_536,
        ..v1::ConnectionReport::default()
    };
    let report = v1::ReportRequest {
        contract_version: 1,
        host_name: "web".to_owned(),
        batch: 1,
        connections: vec![connection],
        ..v1::ReportRequest::default()
    };
    let error = Report::try_from(report).unwrap_err().to_string();
    assert!(error.starts_with("connections[0].host_port is 65536"), "{error}");
}

#[test]
fn a_service_size_is_refused_by_the_name_of_its_field() {
    let good = v1::ServiceSize {
        host_address: "203.0.113.10".to_owned(),
        host_port: 443,
        quantile_bytes: 30_000,
        transfers: 12,
        lifetime_ms: 300_000,
    };
    let error = |change: fn(&mut v1::ServiceSize)| {
        let mut message = good.clone();
        change(&mut message);
        let event = Some(v1::update::Event::ServiceSize(message));
        Update::from_wire(v1::Update { sequence: 1, event }, NOW)
            .map_or_else(|error| error.to_string(), |_| "none".to_owned())
    };
    assert_eq!(error(|_| ()), "none");
    for (text, wanted) in [
        (error(|s| s.host_address = "web-1".to_owned()), "host_address: `web-1` is not an address"),
        (error(|s| s.host_port = 0), "host_port is 0: give 1 to 65535"),
        (error(|s| s.host_port = 65_536), "host_port is 65536"),
        (error(|s| s.quantile_bytes = 0), "quantile_bytes is 0: give at least 1"),
    ] {
        assert!(text.starts_with(wanted), "{text}");
    }
}

#[test]
fn a_port_of_zero_is_no_port() {
    let host_address = "192.0.2.1".to_owned();
    let connection = v1::ConnectionReport { host_address, ..v1::ConnectionReport::default() };
    let error = ConnectionReport::try_from(connection).unwrap_err().to_string();
    assert_eq!(error, "host_port is 0: give 1 to 65535");
}

#[test]
fn a_report_of_an_older_agent_is_of_tcp_and_an_unknown_transport_is_refused() {
    let older = v1::ConnectionReport {
        host_address: "192.0.2.1".to_owned(),
        host_port: 443,
        remote_address: "198.51.100.1".to_owned(),
        remote_port: 50_000,
        ..v1::ConnectionReport::default()
    };
    let report = ConnectionReport::try_from(older.clone()).unwrap();
    assert_eq!(
        (report.transport, report.loss_window, report.congestion_events, report.ended_in_slow_start),
        (Transport::Tcp, None, 0, None)
    );
    let without_port = |transport| v1::ConnectionReport { host_port: 0, transport, ..older.clone() };
    let ports = [0, 1, 2].map(|transport| ConnectionReport::try_from(without_port(transport)).map(|r| r.host.port()));
    assert!(matches!(ports, [Err(_), Err(_), Ok(0)]), "of QUIC alone: {ports:?}");
    let error = ConnectionReport::try_from(v1::ConnectionReport { transport: 3, ..older });
    assert_eq!(error, Err(WireError::Unknown { field: "transport", value: 3 }));
}

#[test]
fn a_mapped_address_is_the_ipv4_address_it_stands_for() {
    let question = v1::Question { address: "::ffff:192.0.2.1".to_owned(), ..v1::Question::default() };
    assert_eq!(Question::try_from(question).unwrap().address.to_string(), "192.0.2.1");
    for (written, network) in [("::ffff:192.0.2.0/120", "192.0.2.0/24"), ("::ffff:0:0/95", "::fffe:0:0/95")] {
        let estimate = v1::Estimate { network: written.to_owned(), ..good_estimate() };
        assert_eq!(Estimate::from_wire(&estimate, Timestamp(0)).unwrap().network.to_string(), network);
    }
}

#[test]
fn a_response_without_answers_is_refused() {
    let error = answers_from_wire(v1::QueryResponse { contract_version: 1, answers: vec![] }, NOW).unwrap_err();
    assert_eq!(error, WireError::Count { field: "answers", count: 0, least: 1, most: 256 });
}

#[test]
fn a_refusal_keeps_its_sentence() {
    let refusal = Refusal::TooFewSamples { samples: 1, needed: 3 };
    let Advice::Refused { reason, message } = Err(refusal).into() else { panic!("a refusal became a start") };
    assert_eq!(reason, RefusalReason::TooFewSamples);
    assert!(message.contains("1 sample and 3 are needed"), "{message}");
}
