//! Against the agent's own socket, beside the client in Rust.

use std::net::SocketAddr;
use std::time::Duration;

use spand_advice::{Adviser, Outcome, Question};
use spand_agent::applications::Heard;
use spand_proto::report::LimitedBy;
use spand_tests::applications::Offering;
use spand_tests::patience::{PATIENCE, awaited};

use crate::driver::{Driver, command};

fn offering() -> Offering {
    let offering = Offering::new(100).unwrap();
    for (network, paused) in [("192.0.2.0/24", false), ("2001:db8::/48", false), ("198.51.100.0/24", true)] {
        offering.decide(network.parse().unwrap(), paused);
    }
    offering
}

/// What the client in Rust is given, as the one in C prints it.
fn in_rust(adviser: &Adviser, destination: &str, [bytes, rtt_us, mss_bytes]: [u64; 3]) -> Result<[u64; 5], String> {
    let known = |number: u64| Some(number).filter(|number| *number > 0);
    let question = Question {
        bytes: known(bytes),
        rtt: known(rtt_us).map(Duration::from_micros),
        mss_bytes: known(mss_bytes),
        ..Question::of(SocketAddr::new(destination.parse().unwrap(), 443))
    };
    let connection = adviser.start_within(&question, PATIENCE);
    let start = connection.start().map_err(|reason| reason.to_string())?;
    let [burst, rate] = start.pacing.map_or([0; 2], |pacing| [pacing.burst_bytes, pacing.bytes_per_s]);
    let lifetime_us = u64::try_from(start.lifetime.as_micros()).unwrap();
    Ok([start.window_bytes, start.threshold_bytes.unwrap_or(0), burst, rate, lifetime_us])
}

#[test]
fn the_agent_starts_a_client_in_c_as_one_in_rust() {
    let offering = offering();
    let adviser = Adviser::connect(offering.socket(), "rust");
    let mut driver = Driver::new(&offering.socket());
    assert!(driver.is_connected && driver.does("patience 120000000"));
    let mut advised = 0;
    for destination in ["192.0.2.9", "2001:db8::9", "198.51.100.9", "203.0.113.9"] {
        for bytes in [0, 30_000, 300_000, 100_000_000] {
            for [rtt_us, mss_bytes] in [[0, 0], [41_000, 1_200], [41_000, 1_448], [1_000_000, 0]] {
                let mut own = in_rust(&adviser, destination, [bytes, rtt_us, mss_bytes]);
                let question = format!("{destination} {bytes} {rtt_us} {mss_bytes}");
                let mut given = driver.start(&question).given;
                if let (Ok(own), Ok(given)) = (&mut own, &mut given) {
                    // Its lifetime goes on between the two.
                    assert!(own[4].abs_diff(given[4]) < 120_000_000 && given[4] < 3_600_000_000, "{own:?} {given:?}");
                    (own[4], given[4]) = (0, 0);
                    advised += 1;
                }
                assert_eq!(given, own, "{question}");
            }
        }
    }
    assert!((20..32).contains(&advised), "{advised}: the round trip of a second is refused");
    assert_eq!(offering.starts(), 64);
}

#[test]
fn the_example_prints_the_answer() {
    let offering = offering();
    let ask = |to: &str| {
        let output =
            command("docs/examples/advice.c", &offering.socket()).args([to, "300000", "41000"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let adviser = Adviser::connect(offering.socket(), "rust");
    let [window, threshold, burst, rate, _] = in_rust(&adviser, "192.0.2.9", [300_000, 41_000, 0]).unwrap();
    let expected =
        format!("window_bytes {window} threshold_bytes {threshold} burst_bytes {burst} rate_bytes_per_s {rate} ");
    // It waits for 5 ms, which a busy machine may be late for once.
    let answers: Vec<String> = (0..20).map(|_| ask("192.0.2.9:443")).collect();
    assert!(answers.iter().any(|answer| answer.starts_with(&expected)), "{expected}: {answers:?}");
    assert!(
        answers.iter().all(|answer| answer.starts_with(&expected) || answer == "plain: agent_gone\n"),
        "{answers:?}"
    );
    assert!((0..20).any(|_| ask("[2001:db8:1::9]:443") == "plain: no_estimate\n"));
}

#[test]
fn reports_in_c_carry_every_field() {
    let mut offering = offering();
    let mut driver = Driver::new(&offering.socket());
    assert!(driver.does("patience 120000000"));
    assert_eq!(driver.start("198.51.100.9 300000 41000 1448").given, Err("paused".to_owned()));
    assert!(!driver.does("flight 40 30"), "the first flight of a plain start");
    let [window_bytes, ..] = driver.start("192.0.2.9 300000 41000 1448").given.unwrap();
    let segments = u32::try_from(window_bytes / 1_448).unwrap();
    assert!(driver.does("flight 40 20") && driver.does("flight 40 30") && driver.does("report"));
    assert!(!driver.does("report"), "a second report of one connection");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut next = || loop {
        if let Heard::Ended(ended) = runtime.block_on(awaited("a report", offering.hear())) {
            return ended;
        }
    };
    let flight = next();
    assert_eq!((flight.goes_on, flight.outcome.first_flight_lost_segments), (true, Some(30)));
    let ended = next();
    let expected = Outcome {
        acknowledged_bytes: u64::MAX,
        duration_us: Some(2),
        end_window_bytes: Some(3),
        loss_window_bytes: Some(4),
        congestion_events: 5,
        ended_in_slow_start: Some(false),
        // Its client has no Careful Resume.
        careful_resume: None,
        lost_segments: u32::MAX,
        mss_bytes: Some(7),
        srtt_us: Some(8),
        rtt_min_us: Some(9),
        first_flight_sent_segments: Some(10),
        first_flight_lost_segments: Some(11),
        limited_by: Some(LimitedBy::Receiver),
    };
    assert_eq!((ended.goes_on, ended.outcome), (false, expected));
    assert_eq!(ended.local, Some("192.0.2.9:443".parse().unwrap()));
    assert_eq!((ended.remote, ended.advised_segments), (Some("192.0.2.9:443".parse().unwrap()), Some(segments)));
}
