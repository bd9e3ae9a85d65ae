use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use spand_proto::made_up::estimate;
use spand_proto::network::Network;
use spand_proto::report::Arm;
use spand_proto::start::{RefusalReason, Shape, StartPolicy, StartRequest, TransferSize, start};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp, Window};

use crate::{Adviser, Nothing, Offer, Outcome, Question, Reason, Renewed, Settings, Table, ToAgent, ToApplication};

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const RTT: Duration = Duration::from_millis(41);

fn settings() -> Settings {
    Settings { now: NOW, control_fraction: 0.0, seed: 1, initial_window: Segments(10), usual_bytes: None }
}

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

/// Forty segments for `text`, for a minute.
fn offer(text: &str) -> Offer {
    let share = Window::from_segments(Segments(40), Bytes(1_448));
    Offer {
        estimate: estimate(network(text), share, NOW),
        policy: StartPolicy::CAREFUL,
        cap: None,
        lease: None,
        reason: None,
        expires: NOW.after(Micros::from_secs(60)),
    }
}

fn table(offers: impl IntoIterator<Item = Offer>) -> Table {
    let mut table = Table::new(NonZeroUsize::new(1_000).unwrap());
    table.take(ToApplication::Settings(settings()));
    for offer in offers {
        table.take(ToApplication::Offer(Box::new(offer)));
    }
    table
}

fn to(destination: &str) -> Question {
    Question::of(SocketAddr::new(destination.parse().unwrap(), 443)).rtt(RTT)
}

fn reason(table: &mut Table, destination: &str) -> Option<Reason> {
    table.start(&to(destination), NOW).start.err()
}

#[test]
fn the_start_is_the_contracts_own() {
    let mut table = table([offer("192.0.2.0/24")]);
    for bytes in [None, Some(30_000), Some(300_000), Some(10_000_000)] {
        let question = Question { bytes, ..to("192.0.2.9") };
        let given = table.start(&question, NOW).start.unwrap();
        let estimate = offer("192.0.2.0/24").estimate;
        let request = StartRequest {
            estimate: Some(&estimate),
            now: NOW,
            size: TransferSize::from(bytes.map(Bytes)),
            mss: Bytes(1_448),
            snd_wnd: None,
            handshake_rtt: Some(RTT.into()),
            initial_window: Segments(10),
            budget: None,
        };
        let own = start(&request, &StartPolicy::CAREFUL).unwrap();
        assert_eq!(given.window_segments, own.cwnd.0);
        assert_eq!(given.window_bytes, own.cwnd.bytes(Bytes(1_448)).0);
        assert_eq!(given.threshold_bytes, Some(own.ssthresh.bytes(Bytes(1_448)).0));
        assert_eq!(given.pacing.map(|pacing| pacing.bytes_per_s), own.pacing.map(|pacing| pacing.rate.0));
        assert_eq!(given.lifetime, Duration::from_secs(60));
    }
    let slow = Question { rtt: Some(Duration::from_secs(1)), ..to("192.0.2.9") };
    assert_eq!(table.start(&slow, NOW).start, Err(Reason::Refused(RefusalReason::RttMismatch)));
}

#[test]
fn larger_packets_give_no_more_bytes_than_share_and_budget() {
    let share: u64 = 40 * 1_448;
    for (lease, most) in [(None, share), (Some(5), 15 * 1_448)] {
        for mss in [1_449, 9_000, 65_527, u64::MAX] {
            let mut table = table([Offer { lease: lease.map(Segments), ..offer("192.0.2.0/24") }]);
            let given = table.start(&to("192.0.2.9").mss_bytes(mss), NOW).start.unwrap();
            assert!(given.window_bytes <= most.next_multiple_of(given.mss_bytes), "{mss}: {given:?}");
            assert!(given.threshold_bytes.unwrap() <= share.next_multiple_of(given.mss_bytes), "{mss}: {given:?}");
            assert!(given.mss_bytes <= 65_527 && given.window_segments >= 1, "{mss}: {given:?}");
            let second = table.start(&to("192.0.2.9").mss_bytes(1_448), NOW).start.unwrap();
            assert!(lease.is_none() || second.window_segments <= 12, "{mss}: it reserved {second:?}");
        }
    }
}

#[test]
fn what_is_not_known_is_asked_for_once_and_starts_plain() {
    let mut table = Table::new(NonZeroUsize::new(2).unwrap());
    assert_eq!(reason(&mut table, "192.0.2.1"), Some(Reason::AgentGone));
    table.take(ToApplication::Settings(settings()));
    let first = table.start(&to("192.0.2.1"), NOW);
    assert_eq!((first.start, first.watch), (Err(Reason::NotKnownYet), Some([192, 0, 2, 1].into())));
    assert_eq!(table.start(&to("::ffff:192.0.2.9"), NOW).watch, None, "the same network");
    let nothing = Nothing { network: network("192.0.2.0/24"), reason: Reason::Refused(RefusalReason::NoEstimate) };
    table.take(ToApplication::Nothing(nothing));
    assert_eq!(reason(&mut table, "192.0.2.1"), Some(Reason::Refused(RefusalReason::NoEstimate)));

    // At the limit the one goes that was asked for longest ago.
    table.take(ToApplication::Offer(Box::new(offer("192.0.2.0/24"))));
    assert_eq!(table.start(&to("198.51.100.1"), NOW).unwatch, None);
    assert_eq!(reason(&mut table, "192.0.2.1"), None);
    assert_eq!(table.start(&to("203.0.113.1"), NOW).unwatch, Some(network("198.51.100.0/24")));
    assert_eq!(table.start(&to("198.51.100.1"), NOW).unwatch, Some(network("192.0.2.0/24")));
    assert!(table.is_empty(), "its advice goes with it");
    assert_eq!(table.counts().evicted, 2);
}

#[test]
fn the_longest_network_answers_until_it_ends() {
    let wide = Offer { cap: Some(Segments(12)), ..offer("10.0.0.0/8") };
    let narrow = Offer { expires: NOW.after(Micros::from_secs(1)), ..offer("10.1.1.0/24") };
    let mut table = table([narrow, wide, offer("2001:db8::/48")]);
    let mut window = |destination: &str, at: Timestamp| {
        table.expire(at);
        table.start(&to(destination), at).start.map(|start| start.window_segments)
    };
    assert_eq!(window("10.1.1.1", NOW), Ok(40));
    assert_eq!(window("10.1.2.1", NOW), Ok(12));
    assert_eq!(window("2001:db8::1", NOW), Ok(40));
    assert_eq!(window("11.0.0.1", NOW), Err(Reason::NotKnownYet));
    let later = NOW.after(Micros::from_secs(2));
    assert_eq!(window("10.1.1.1", later), Ok(12));
    table.take(ToApplication::Gone(network("10.0.0.0/8")));
    assert_eq!(reason(&mut table, "10.1.1.1"), Some(Reason::NotKnownYet));
}

#[test]
fn advice_ends_and_is_renewed() {
    let mut table = table([offer("192.0.2.0/24")]);
    let end = NOW.after(Micros::from_secs(60));
    let at_end = |table: &mut Table| table.start(&to("192.0.2.1"), end).start.err();
    assert_eq!(at_end(&mut table), Some(Reason::Expired));
    table.take(ToApplication::Renewed(Renewed { network: network("192.0.2.0/24"), expires: end.after(Micros(1)) }));
    assert_eq!(at_end(&mut table), None);
}

#[test]
fn the_administrators_reasons_hold_and_only_those_of_the_comparison_have_an_arm() {
    for (given, arm) in [
        (Reason::Excluded, None),
        (Reason::NotIncluded, None),
        (Reason::Paused, None),
        (Reason::HeldOut, Some(Arm::Control)),
        (Reason::Observe, Some(Arm::Advised)),
    ] {
        let mut table = table([Offer { reason: Some(given), ..offer("192.0.2.0/24") }]);
        let question = to("192.0.2.1");
        let answer = table.start(&question, NOW);
        assert_eq!((answer.start, answer.arm), (Err(given), arm));
        let report = answer.report(&question, &Outcome::default(), false);
        assert_eq!((report.paused, report.advised_segments, report.refusal), (given == Reason::Paused, None, None));
    }
}

#[test]
fn the_control_group_is_its_part_of_the_connections_and_starts_plain() {
    let mut table = table([offer("192.0.2.0/24")]);
    table.take(ToApplication::Settings(Settings { control_fraction: 0.05, ..settings() }));
    let controls = (0..20_000).filter(|_| reason(&mut table, "192.0.2.1") == Some(Reason::Control)).count();
    assert!((850..1_150).contains(&controls), "{controls} of 20,000");
    let answer = std::iter::repeat_with(|| table.start(&to("192.0.2.1"), NOW)).find(|a| a.start.is_err()).unwrap();
    assert_eq!(answer.arm, Some(Arm::Control));
}

#[test]
fn a_lease_bounds_all_starts_under_way_together() {
    let mut table = table([Offer { lease: Some(Segments(45)), ..offer("192.0.2.0/24") }]);
    let client: IpAddr = [192, 0, 2, 1].into();
    let window = |table: &mut Table| {
        let answer = table.start(&to("192.0.2.1"), NOW);
        (answer.start.as_ref().unwrap().window_segments, answer)
    };
    let (first, mut held) = window(&mut table);
    let (second, _) = window(&mut table);
    let (third, _) = window(&mut table);
    assert_eq!([first, second, third], [40, 25, 10], "30 and 15 above the default, and nothing is left");
    table.over(&mut held, client, Some((40, 0)), NOW);
    table.over(&mut held, client, Some((40, 0)), NOW);
    assert_eq!(window(&mut table).0, 40, "released once");
}

#[test]
fn lost_first_flights_hold_a_clients_advice_back() {
    let mut table = table([offer("192.0.2.0/24")]);
    for flight in 0..6 {
        let mut answer = table.start(&to("192.0.2.1"), NOW);
        assert!(answer.start.is_ok(), "{flight}");
        table.over(&mut answer, [192, 0, 2, 1].into(), Some((40, 21)), NOW);
    }
    assert_eq!(reason(&mut table, "192.0.2.1"), Some(Reason::Retreated));
    assert_eq!(reason(&mut table, "192.0.2.2"), None, "another client's is not");
}

/// An agent whose lines the test writes.
struct Agent {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Agent {
    fn accept(listener: &UnixListener) -> Self {
        let (stream, _) = listener.accept().unwrap();
        let mut agent = Self { lines: BufReader::new(stream.try_clone().unwrap()), stream };
        assert!(matches!(agent.next(), ToAgent::Hello { application, .. } if application == "test"));
        let settings = Settings { control_fraction: 0.0, ..settings() };
        agent.send(&ToApplication::Settings(settings));
        agent
    }

    fn next(&mut self) -> ToAgent {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn send(&mut self, message: &ToApplication) {
        let mut line = serde_json::to_vec(message).unwrap();
        line.push(b'\n');
        self.stream.write_all(&line).unwrap();
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_application_has_advice_while_the_agent_lives_and_plain_starts_else() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("applications.sock");
    let adviser = Adviser::connect(&socket, "test");
    assert_eq!(adviser.start(&to("192.0.2.1")).start(), Err(Reason::AgentGone));

    let listener = UnixListener::bind(&socket).unwrap();
    let mut agent = Agent::accept(&listener);
    until("the settings arrive", || adviser.is_ready());
    let asked = std::thread::spawn({
        let adviser = adviser.clone();
        move || adviser.start_within(&to("192.0.2.1"), Duration::from_secs(20))
    });
    assert_eq!(agent.next(), ToAgent::Watch([192, 0, 2, 1].into()));
    agent.send(&ToApplication::Offer(Box::new(offer("192.0.2.0/24"))));
    let mut connection = asked.join().unwrap();
    assert_eq!(connection.start().map(|start| start.window_segments), Ok(40));

    // One that was lost for the most part is reported at once, the rest at the end.
    connection.first_flight(40, 30);
    let ToAgent::Ended(flight) = agent.next() else { panic!("no report") };
    assert!(flight.goes_on && flight.outcome.first_flight_lost_segments == Some(30));
    connection.report(&Outcome { acknowledged_bytes: 5, ..Outcome::default() });
    let ToAgent::Ended(ended) = agent.next() else { panic!("no report") };
    assert_eq!((ended.goes_on, ended.advised_segments, ended.arm), (false, Some(40), Some(Arm::Advised)));
    assert_eq!(ended.outcome.acknowledged_bytes, 5);

    drop((agent, listener));
    std::fs::remove_file(&socket).unwrap();
    until("the end of the agent is seen", || adviser.start(&to("192.0.2.1")).start() == Err(Reason::AgentGone));

    let listener = UnixListener::bind(&socket).unwrap();
    let mut again = Agent::accept(&listener);
    again.send(&ToApplication::Offer(Box::new(offer("192.0.2.0/24"))));
    until("advice is back", || adviser.start(&to("192.0.2.1")).start().is_ok());
    // It hangs, and its connection stays open.
    let silent = Instant::now();
    until("silence is an end", || adviser.start(&to("192.0.2.1")).start() == Err(Reason::AgentGone));
    assert!(silent.elapsed() < crate::SILENCE + Duration::from_secs(2), "{:?}", silent.elapsed());
}

#[test]
fn what_was_reported_is_written_before_the_last_handle_ends() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("applications.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let adviser = Adviser::connect(&socket, "test");
    let mut agent = Agent::accept(&listener);
    until("the settings arrive", || adviser.is_ready());
    for bytes in 0..1_000 {
        adviser.start(&to("192.0.2.1")).report(&Outcome { acknowledged_bytes: bytes, ..Outcome::default() });
    }
    let lost = adviser.lost();
    let ends = std::thread::spawn(move || drop(adviser));
    let mut reports = Vec::new();
    let mut line = String::new();
    while agent.lines.read_line(&mut line).unwrap() > 0 {
        if let ToAgent::Ended(ended) = serde_json::from_str(&line).unwrap() {
            reports.push(ended.outcome.acknowledged_bytes);
        }
        line.clear();
    }
    ends.join().unwrap();
    assert_eq!((reports, lost), ((0..1_000).collect(), 0));
}

#[test]
fn one_connection_to_a_network_jumps_at_a_time_and_none_after_a_retreat() {
    let policy = StartPolicy { shape: Shape::CarefulResume, ..StartPolicy::CAREFUL };
    let mut table = table([Offer { policy, ..offer("192.0.2.0/24") }]);
    let client: IpAddr = [192, 0, 2, 1].into();
    let [mut first, mut second, mut third] = [(); 3].map(|()| table.start(&to("192.0.2.1"), NOW));
    let start = first.start.unwrap();
    // Half of forty segments, and the host's own window before that.
    assert_eq!((start.window_segments, start.resume.unwrap().window_bytes), (10, 20 * 1_448));
    assert!(table.may_resume(&mut first, client, NOW));
    assert!(!table.may_resume(&mut second, client, NOW), "another one jumps");
    table.resumed(&mut first, false);
    assert!(table.may_resume(&mut second, client, NOW));
    // One that is over changes nothing any more.
    table.resumed(&mut first, false);
    table.over(&mut first, client, None, NOW);
    assert!(!table.may_resume(&mut third, client, NOW));
    table.resumed(&mut second, true);
    table.over(&mut second, client, None, NOW);
    let later = NOW.after(Micros::from_secs(59));
    assert!(!table.may_resume(&mut third, client, later), "not before the advice is over");
}

#[test]
fn no_connection_jumps_after_the_advice_is_over() {
    let policy = StartPolicy { shape: Shape::CarefulResume, ..StartPolicy::CAREFUL };
    let mut table = table([Offer { policy, ..offer("192.0.2.0/24") }]);
    let client: IpAddr = [192, 0, 2, 1].into();
    let mut answer = table.start(&to("192.0.2.1"), NOW);
    assert!(answer.start.is_ok());
    assert!(!table.may_resume(&mut answer, client, NOW.after(Micros::from_secs(60))), "over");
    assert!(table.may_resume(&mut answer, client, NOW.after(Micros(59_999_999))));
}

#[test]
fn a_retreat_outlasts_the_claim_of_a_connection_that_jumped_meanwhile() {
    let policy = StartPolicy { shape: Shape::CarefulResume, ..StartPolicy::CAREFUL };
    let mut table = table([Offer { policy, ..offer("192.0.2.0/24") }]);
    let client: IpAddr = [192, 0, 2, 1].into();
    let [mut first, mut second, mut third] = [(); 3].map(|()| table.start(&to("192.0.2.1"), NOW));
    let later = NOW.after(Micros::from_secs(2));
    assert!(table.may_resume(&mut first, client, NOW));
    assert!(table.may_resume(&mut second, client, later), "the first one's claim has ended by itself");
    table.resumed(&mut first, true);
    table.resumed(&mut second, false);
    assert!(!table.may_resume(&mut third, client, later));
    // Nor does one that was validated end the claim of another.
    table.take(ToApplication::Gone(network("192.0.2.0/24")));
    table.take(ToApplication::Offer(Box::new(Offer { policy, ..offer("192.0.2.0/24") })));
    let [mut first, mut second, mut third] = [(); 3].map(|()| table.start(&to("192.0.2.1"), NOW));
    assert!(table.may_resume(&mut first, client, NOW) && table.may_resume(&mut second, client, later));
    table.resumed(&mut first, false);
    assert!(!table.may_resume(&mut third, client, later));
}

#[test]
fn a_connection_that_asks_again_keeps_its_arm_and_one_from_before_an_outage_releases_nothing() {
    let mut table = table([Offer { lease: Some(Segments(30)), ..offer("192.0.2.0/24") }]);
    let client: IpAddr = [192, 0, 2, 1].into();
    let mut before = table.start(&to("192.0.2.1"), NOW);
    table.clear();
    table.take(ToApplication::Settings(Settings { control_fraction: 1.0, ..settings() }));
    table.take(ToApplication::Offer(Box::new(Offer { lease: Some(Segments(30)), ..offer("192.0.2.0/24") })));
    let again = Question { arm: Some(Arm::Advised), ..to("192.0.2.1") };
    let held = table.start(&again, NOW);
    assert_eq!(held.start.map(|start| start.window_segments), Ok(40));
    assert_eq!(reason(&mut table, "192.0.2.1"), Some(Reason::Control));
    table.over(&mut before, client, None, NOW);
    assert_eq!(table.start(&again, NOW).start.map(|start| start.window_segments), Ok(10), "thirty are held still");
}

#[test]
fn a_network_that_stays_unknown_is_asked_for_again_after_a_second() {
    let mut table = table([]);
    let at_ms = |ms: u64| NOW.after(Micros::from_millis(ms));
    let watches = [0, 500, 1_000, 1_500, 2_000].map(|ms| table.start(&to("192.0.2.1"), at_ms(ms)).watch.is_some());
    assert_eq!(watches, [true, false, true, false, true]);
}
