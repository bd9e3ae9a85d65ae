use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use spand_advice::{Adviser, Ended, Outcome, Question, Reason, ToApplication};
use spand_proto::made_up::estimate;
use spand_proto::network::Network;
use spand_proto::report::Arm;
use spand_proto::start::RefusalReason;
use spand_proto::units::{Bytes, Micros, Segments, Window};

use super::*;
use crate::policy::{Connection, Question as Asked};

const PATIENCE: Duration = Duration::from_secs(20);

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

fn to(destination: &str) -> Question {
    Question::of(SocketAddr::new(destination.parse().unwrap(), 443)).rtt(Duration::from_millis(41))
}

struct Bench {
    applications: Applications,
    clock: Clock,
    folder: tempfile::TempDir,
}

impl Bench {
    /// Nobody is in the control group.
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[applications]\nsocket = \"{}\"\n{text}\n[bpf]\ncontrol_fraction = 0.0\n[holdout]\nfraction = 0.0",
            folder.path().join("a.sock").display()
        );
        let config = Config::parse(&text, Path::new("agent.toml")).unwrap();
        let clock = Clock::start();
        let applications = Applications::listen(&config, clock).unwrap().unwrap();
        Self { applications, clock, folder }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("a.sock")
    }

    fn adviser(&self) -> Adviser {
        let adviser = Adviser::connect(self.socket(), "test");
        until("an application is connected", || adviser.is_ready());
        adviser
    }

    /// Forty segments for a network, with this lease, for a minute.
    fn decide(&self, text: &str, lease: Option<u32>, paused: bool) {
        let now = self.clock.now();
        let share = Window::from_segments(Segments(40), Bytes(1_448));
        let advice = Advice {
            estimate: estimate(network(text), share, now),
            lease: lease.map(Segments),
            expires: now.after(Micros::from_secs(60)),
        };
        let question = Asked {
            network: network(text),
            within: None,
            advice: Some(&advice),
            now,
            wall_unix_s: 0,
            paused,
            connection: Connection::default(),
        };
        self.applications.offer(&question);
    }

    fn heard(&mut self) -> Vec<Heard> {
        std::iter::from_fn(|| self.applications.heard.try_recv().ok()).collect()
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn window(adviser: &Adviser, destination: &str) -> Result<u32, Reason> {
    adviser.start_within(&to(destination), PATIENCE).start().map(|start| start.window_segments)
}

#[test]
fn what_is_decided_reaches_those_that_ask_for_it() {
    let mut bench = Bench::new("");
    bench.decide("192.0.2.0/24", None, false);
    let adviser = bench.adviser();
    assert_eq!(window(&adviser, "192.0.2.1"), Ok(40));
    assert_eq!(window(&adviser, "198.51.100.1"), Err(Reason::Refused(RefusalReason::NoEstimate)));
    bench.decide("198.51.100.0/24", None, false);
    until("an estimate that comes later is sent", || adviser.start(&to("198.51.100.1")).start().is_ok());
    bench.decide("192.0.2.0/24", None, true);
    until("a pause holds", || adviser.start(&to("192.0.2.1")).start() == Err(Reason::Paused));
    bench.applications.gone(network("192.0.2.0/24"));
    until("what ended is gone", || matches!(adviser.start(&to("192.0.2.1")).start(), Err(Reason::NotKnownYet)));
    let status = bench.applications.status();
    assert_eq!((status.connected, status.networks, status.connections), (vec!["test".to_owned()], 2, 1));
    assert!(bench.heard().iter().all(|heard| matches!(heard, Heard::Watched(_))));
}

/// One of an application with a table.
fn report(remote: &str, advised: Option<u32>) -> Ended {
    Ended {
        id: None,
        local: None,
        remote: Some(SocketAddr::new(remote.parse().unwrap(), 443)),
        arm: None,
        advised_segments: advised,
        refusal: None,
        paused: false,
        goes_on: false,
        outcome: Outcome { acknowledged_bytes: 90_000, ..Outcome::default() },
    }
}

#[test]
fn a_lease_is_divided_among_the_kernel_and_the_applications_that_start_connections_there() {
    let bench = Bench::new("");
    bench.decide("192.0.2.0/24", Some(60), false);
    let whole = Some(Segments(60));
    let kernels = || bench.applications.part_of(network("192.0.2.0/24"), whole);
    let [one, other] = [bench.adviser(), bench.adviser()];
    assert_eq!(window(&one, "192.0.2.1"), Ok(40), "a lease of 30 above the initial window");
    assert_eq!(kernels(), whole, "it watches, and reported nothing");
    let reports = |adviser: &Adviser| adviser.start(&to("192.0.2.1")).report(&Outcome::default());
    reports(&one);
    until("the kernel's part is half", || kernels() == Some(Segments(30)));
    assert_eq!(window(&other, "192.0.2.1"), Ok(25), "what it would have beside the first");
    assert_eq!(window(&one, "192.0.2.1"), Ok(40));
    reports(&other);
    until("the first one has its new part", || window(&one, "192.0.2.1") == Ok(25));
    assert_eq!(kernels(), Some(Segments(30)), "the kernel's stays half");
    drop(other);
    until("one that is gone leaves its part", || window(&one, "192.0.2.1") == Ok(40));
    assert_eq!(bench.applications.part_of(network("198.51.100.0/24"), whole), whole, "no application is there");
    let held = [network("192.0.2.0/24")].into();
    bench.applications.retain(&held, bench.clock.now().after(Micros::from_secs(59)));
    assert_eq!(kernels(), Some(Segments(30)));
    bench.applications.retain(&held, bench.clock.now().after(Micros::from_secs(61)));
    assert_eq!(kernels(), whole, "no report for a minute");
}

#[test]
fn watchers_alone_take_nothing_of_a_lease() {
    let bench = Bench::new("connections = 130");
    bench.decide("192.0.2.0/24", Some(58), false);
    let honest = bench.adviser();
    assert_eq!(window(&honest, "192.0.2.1"), Ok(39));
    honest.start(&to("192.0.2.1")).report(&Outcome::default());
    let kernels = || bench.applications.part_of(network("192.0.2.0/24"), Some(Segments(58)));
    until("it has its part", || kernels() == Some(Segments(29)));
    let mut watchers = Vec::new();
    for _ in 0..63 {
        let mut watcher = Plain::new(&bench);
        watcher.send(r#"{"hello":{"version":1,"application":"silent"}}"#);
        watcher.send(r#"{"watch":"192.0.2.1"}"#);
        assert!(matches!(watcher.next(), Some(ToApplication::Offer(_))));
        watchers.push(watcher);
    }
    assert_eq!((window(&honest, "192.0.2.1"), kernels()), (Ok(39), Some(Segments(29))));
}

#[test]
fn a_user_with_many_applications_has_one_user_s_part_of_a_lease() {
    let bench = Bench::new("");
    let (offers, now) = (&bench.applications.offers, bench.clock.now());
    let join = |uid| {
        let number = offers.join(String::new(), uid, Arc::default());
        offers.watch(number, [192, 0, 2, 1].into(), false);
        number
    };
    bench.decide("192.0.2.0/24", Some(58), false);
    let leases = |number| {
        let lines = offers.lines(number, now).into_iter();
        let leases = lines.filter_map(|line| if let ToApplication::Offer(offer) = line { offer.lease } else { None });
        leases.map(|lease| lease.0).next_back()
    };
    let honest = join(1);
    assert!(offers.use_part(honest, network("192.0.2.0/24"), now));
    assert_eq!(leases(honest), Some(29));
    let many: Vec<u64> = (0..63).map(|_| join(2)).collect();
    for number in &many {
        assert!(offers.use_part(*number, network("192.0.2.0/24"), now));
    }
    assert_eq!((leases(honest), leases(many[0])), (Some(14), Some(0)), "a window of 24 beside all of them");
    assert_eq!(offers.kernels_part(network("192.0.2.0/24"), Segments(58)), Segments(29));
    // The same for a network with advice that is wider than what is watched, and for one that is narrower.
    for (text, part) in [("192.0.0.0/16", 29), ("192.0.2.1/32", 29), ("192.0.3.0/24", 58), ("198.0.0.0/8", 58)] {
        assert_eq!(offers.kernels_part(network(text), Segments(58)), Segments(part), "{text}");
    }
    for number in &many {
        drop(offers.leave(*number));
    }
    assert_eq!(leases(honest), Some(29));
}

#[test]
fn a_user_has_half_of_the_places_and_its_own_part_of_the_watches() {
    let bench = Bench::new("networks = 3");
    let offers = &bench.applications.offers;
    let most = NonZeroUsize::new(5).unwrap();
    let mut refused = [1, 1, 1, 1, 2, 2, 3].into_iter().filter_map(|uid| offers.admit(uid, most).err());
    let why = refused.next().unwrap();
    assert!(why.contains("user 1 has 3 connections, half of applications.connections = 5"), "{why}");
    let why = refused.next().unwrap();
    assert!(why.contains("every place is taken"), "{why}");
    assert_eq!(refused.next(), None);
    assert!(!offers.dismiss(1) && offers.admit(3, most).is_ok());
    assert_eq!([1, 2, 3, 4].map(|uid| offers.connections_of(uid)), [2, 2, 1, 0]);
    assert_eq!((bench.applications.status().connections, bench.applications.status().refused), (6, 2));

    let [one, same, other] = [1, 1, 2].map(|uid| offers.join(String::new(), uid, Arc::default()));
    let watch = |number, third| offers.watch(number, [192, 0, third, 1].into(), false);
    let of = |third: u8| network(&format!("192.0.{third}.0/24"));
    assert_eq!([watch(one, 1), watch(one, 2), watch(same, 3)], [1, 2, 3].map(|third| (Some(of(third)), None)));
    assert_eq!(watch(same, 4), (Some(of(4)), Some(of(1))), "the one with most forgets its oldest");
    assert_eq!(watch(other, 1), (Some(of(1)), None), "another user has room");
    assert!(!offers.unwatch(one, of(1)) && offers.unwatch(one, of(2)));
    assert_eq!(watch(one, 5), (Some(of(5)), None), "there is room again");
    assert_eq!(bench.applications.status().evicted, 1);
}

#[test]
fn a_report_counts_for_a_start_that_was_given_once_and_within_its_user_s_rate() {
    let mut bench = Bench::new("");
    bench.decide("192.0.2.0/24", None, false);
    let mut client = Plain::new(&bench);
    client.send(r#"{"hello":{"version":1,"application":"liar"}}"#);
    client.send(r#"{"watch":"192.0.2.1"}"#);
    assert!(matches!(client.next(), Some(ToApplication::Offer(_))));
    client.send(r#"{"watch":"198.51.100.1"}"#);
    assert!(matches!(client.next(), Some(ToApplication::Nothing(_))));
    for (remote, advised) in [
        ("192.0.2.1", Some(40)),
        ("198.51.100.1", None),
        ("198.51.100.1", Some(40)),
        ("203.0.113.1", None),
        ("203.0.113.1", Some(40)),
    ] {
        client.send(&serde_json::to_string(&spand_advice::ToAgent::Ended(report(remote, advised))).unwrap());
    }
    client.send(r#"{"start":{"id":7,"destination":"192.0.2.1:443"}}"#);
    assert!(matches!(client.next(), Some(ToApplication::Started(started)) if started.advised));
    let lost = r#""acknowledged_bytes":0,"first_flight_sent_segments":40,"first_flight_lost_segments":40"#;
    for (id, goes_on) in [(7, true), (7, true), (7, false), (7, false), (8, false)] {
        client.send(&format!(r#"{{"ended":{{"id":{id},"goes_on":{goes_on},{lost}}}}}"#));
    }
    until("all was read", || bench.applications.status().reports == 10);
    assert_eq!(bench.applications.status().reports_refused, 6);
    let passed = bench.heard().into_iter().filter_map(|heard| match heard {
        Heard::Ended(ended) => Some((ended.remote.unwrap().ip().to_string(), ended.goes_on)),
        Heard::Watched(_) => None,
    });
    let passed: Vec<_> = passed.collect();
    let expected = [("192.0.2.1", false), ("198.51.100.1", false), ("192.0.2.1", true), ("192.0.2.1", false)];
    assert_eq!(passed, expected.map(|(remote, goes_on)| (remote.to_owned(), goes_on)));

    let offers = &bench.applications.offers;
    let now = bench.clock.now();
    let taken = |uid, after_ms| {
        let at = now.after(Micros::from_millis(after_ms));
        (0..23_300).filter(|_| offers.pay_report(uid, at)).count()
    };
    assert_eq!([taken(900, 0), taken(900, 0), taken(900, 1_000), taken(901, 1_000)], [1_000, 0, 100, 1_000]);
    bench.applications.retain(&BTreeSet::new(), now.after(Micros::from_secs(2)));
    assert_eq!(taken(900, 2_000), 100, "what was not paid for is remembered without a connection");
}

#[test]
fn starts_that_wait_for_reports_have_the_room_that_their_user_has() {
    let mut table = spand_advice::Table::new(NonZeroUsize::MIN);
    let mut starts = server::Starts::default();
    let mut put = |id, most| {
        let question = to(&format!("192.0.2.{id}"));
        let gone = starts.put(id, (question, table.start(&question, Timestamp::default())), most);
        gone.iter().map(|(question, _)| question.destination.ip().to_string()).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!([put(1, 3), put(2, 3), put(3, 3)], [none; 3]);
    assert_eq!(put(2, 3), ["192.0.2.2"], "a number that is used again");
    assert_eq!(put(4, 3), ["192.0.2.1"]);
    assert_eq!(put(5, 2), ["192.0.2.3", "192.0.2.2"], "its user has more connections now");
}

#[test]
fn a_file_in_the_place_of_the_socket_stays_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "kept").unwrap();
    let text = format!("[applications]\nsocket = \"{}\"", path.display());
    let config = Config::parse(&text, Path::new("agent.toml")).unwrap();
    let error = Applications::listen(&config, Clock::start()).unwrap_err().to_string();
    let expected = format!(
        "applications.socket: cannot listen at {}: a file is there that is no socket: remove it, or name another",
        path.display()
    );
    assert_eq!((error, std::fs::read_to_string(&path).unwrap()), (expected, "kept".to_owned()));
}

#[test]
fn reports_reach_the_agent_with_this_hosts_own_address() {
    let mut bench = Bench::new("");
    bench.decide("192.0.2.0/24", None, false);
    let adviser = bench.adviser();
    assert_eq!(window(&adviser, "192.0.2.1"), Ok(40));
    let question = Question { local: Some("[::]:443".parse().unwrap()), ..to("192.0.2.1") };
    let outcome = Outcome {
        acknowledged_bytes: 90_000,
        duration_us: Some(120_000),
        first_flight_sent_segments: Some(40),
        first_flight_lost_segments: Some(3),
        ..Outcome::default()
    };
    adviser.start(&question).report(&outcome);
    let mut ended = None;
    until("the report arrives", || {
        ended = bench.heard().into_iter().find_map(|heard| match heard {
            Heard::Ended(ended) => Some(ended),
            Heard::Watched(_) => None,
        });
        ended.is_some()
    });
    let own: [IpAddr; 2] = ["2001:db8::5".parse().unwrap(), [203, 0, 113, 7].into()];
    let report = report_of(&ended.unwrap(), &own).unwrap();
    assert!(!report.urgent);
    let report = report.report;
    assert_eq!(
        (report.host.to_string(), report.remote.to_string()),
        ("203.0.113.7:443".into(), "192.0.2.1:443".into())
    );
    assert_eq!((report.advised, report.arm), (Some(Segments(40)), Some(Arm::Advised)));
    assert_eq!((report.acknowledged, report.duration), (Bytes(90_000), Some(Micros(120_000))));
    assert_eq!(
        (report.first_flight_loss, report.first_flight.map(|flight| flight.lost)),
        (Some(true), Some(Segments(3)))
    );
    assert_eq!(bench.applications.status().reports, 1);
}

#[test]
fn a_report_that_the_gateway_would_refuse_with_its_batch_is_left_out() {
    let ended = report("192.0.2.1", None);
    let own: [IpAddr; 1] = [[203, 0, 113, 7].into()];
    let host = report_of(&ended, &own).map(|report| report.report.host.to_string());
    assert_eq!(host.as_deref(), Some("203.0.113.7:0"), "an application need not give its port");
    let no_port = Ended { remote: Some("192.0.2.1:0".parse().unwrap()), ..ended };
    let no_window = Ended { advised_segments: Some(0), ..ended };
    assert!([no_port, no_window].iter().all(|ended| report_of(ended, &own).is_none()));
}

/// A client without a table, as one in C is.
struct Plain(UnixStream, BufReader<UnixStream>);

impl Plain {
    fn new(bench: &Bench) -> Self {
        let stream = UnixStream::connect(bench.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        Self(stream, reader)
    }

    fn send(&mut self, line: &str) {
        self.0.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// The next line that is no sign of life and no setting.
    fn next(&mut self) -> Option<ToApplication> {
        loop {
            let mut line = String::new();
            if self.1.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            match serde_json::from_str(&line).unwrap() {
                ToApplication::Alive { .. } | ToApplication::Settings(_) => {}
                other => return Some(other),
            }
        }
    }
}

#[test]
fn a_client_without_a_table_has_single_starts_of_the_same_budget() {
    let mut bench = Bench::new("");
    bench.decide("192.0.2.0/24", Some(60), false);
    let mut client = Plain::new(&bench);
    client.send(r#"{"hello":{"version":1,"application":"plain"}}"#);
    let mut start = |id: u64| {
        client.send(&format!(r#"{{"start":{{"id":{id},"destination":"192.0.2.1:443","rtt_us":41000}}}}"#));
        match client.next() {
            Some(ToApplication::Started(started)) if started.id == id => started.window_bytes.map(|b| b / 1_448),
            other => panic!("{other:?}"),
        }
    };
    // Half of the lease is the kernel's.
    assert_eq!([start(1), start(2)], [Some(40), Some(10)]);
    let flight = r#""goes_on":true,"first_flight_sent_segments":40,"first_flight_lost_segments""#;
    client.send(&format!(r#"{{"ended":{{"id":1,{flight}:20}}}}"#));
    client.send(&format!(r#"{{"ended":{{"id":2,{flight}:21}}}}"#));
    client.send(r#"{"ended":{"id":1,"acknowledged_bytes":90000,"new_field":1}}"#);
    client.send(r#"{"start":{"id":3,"destination":"192.0.2.1:443","rtt_us":41000}}"#);
    let Some(ToApplication::Started(third)) = client.next() else { panic!("no answer") };
    assert_eq!(third.window_bytes, Some(40 * 1_448), "the first one is over");
    client.send(r#"{"start":{"id":4,"destination":"198.51.100.1:443"}}"#);
    let Some(ToApplication::Started(unknown)) = client.next() else { panic!("no answer") };
    assert_eq!((unknown.advised, unknown.reason), (false, Some(Reason::Refused(RefusalReason::NoEstimate))));
    let reports: Vec<_> = bench
        .heard()
        .into_iter()
        .filter_map(|heard| if let Heard::Ended(e) = heard { Some(e) } else { None })
        .collect();
    let sent =
        reports.iter().map(|report| (report.goes_on, report.advised_segments, report.outcome.acknowledged_bytes));
    let expected = [(true, Some(10), 0), (false, Some(40), 90_000)];
    assert_eq!(sent.collect::<Vec<_>>(), expected, "a first flight that arrived is no report");
    assert!(reports.iter().all(|report| report.arm == Some(Arm::Advised)));
    let status = bench.applications.status();
    assert_eq!((status.starts, status.advised, status.connected), (4, 3, vec!["plain".to_owned()]));
}

#[test]
fn what_is_no_message_ends_the_connection_with_a_sentence() {
    let bench = Bench::new("");
    for (line, sentence) in [
        ("{\"hello\":{\"version\":9,\"application\":\"x\"}}", "version 1 of these messages, not 9"),
        ("{\"watch\":\"192.0.2.1\"}", "the first line must be hello"),
        ("nonsense", "this line is no message"),
        (
            "{\"start\":{\"id\":1,\"destination\":\"192.0.2.1:443\",\"mss_bytes\":0}}",
            "start.mss_bytes is 0: give 1 to 65527",
        ),
        (
            "{\"start\":{\"id\":1,\"destination\":\"192.0.2.1:443\",\"mss_bytes\":65528}}",
            "start.mss_bytes is 65528: give 1",
        ),
        (&"x".repeat(9_000), "at most 8192 bytes"),
    ] {
        let mut client = Plain::new(&bench);
        client.send(line);
        let Some(ToApplication::Error(error)) = client.next() else { panic!("{line}") };
        assert!(error.contains(sentence), "{error}");
    }
    let bench = Bench::new("connections = 1");
    let _held = bench.adviser();
    let Some(ToApplication::Error(error)) = Plain::new(&bench).next() else { panic!("a second one") };
    assert!(error.contains("applications.connections = 1"), "{error}");
    assert!(bench.applications.status().refused >= 1);
}

#[test]
fn an_application_that_watches_too_much_loses_what_it_asked_for_longest_ago() {
    let bench = Bench::new("networks = 2");
    let mut client = Plain::new(&bench);
    client.send(r#"{"hello":{"version":1,"application":"greedy"}}"#);
    for address in ["192.0.2.1", "198.51.100.1", "192.0.2.2", "203.0.113.1"] {
        client.send(&format!("{{\"watch\":\"{address}\"}}"));
    }
    until("all was read", || bench.applications.status().evicted == 1);
    assert_eq!(bench.applications.status().networks, 2);
    let watched = |text: &str| bench.applications.offers.unwatch(0, network(text));
    assert_eq!(["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"].map(watched), [true, false, true]);
}

#[test]
fn the_desk_forgets_what_no_start_was_asked_for() {
    let mut bench = Bench::new("");
    bench.decide("192.0.2.0/24", Some(60), false);
    bench.decide("198.51.0.0/16", Some(60), false);
    let mut client = Plain::new(&bench);
    client.send(r#"{"hello":{"version":1,"application":"plain"}}"#);
    let mut window = |destination: &str| {
        client.send(&format!(r#"{{"start":{{"id":1,"destination":"{destination}:443","rtt_us":41000}}}}"#));
        match client.next() {
            Some(ToApplication::Started(started)) => started.window_bytes.map(|bytes| bytes / 1_448),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(["192.0.2.1", "198.51.100.1"].map(&mut window), [Some(40); 2]);
    let offers = Arc::clone(&bench.applications.offers);
    // The client has joined first.
    let desk = 1;
    assert_eq!(offers.forget_unused(desk), (Vec::new(), Vec::new()), "both were asked for since");
    assert_eq!(window("198.51.100.2"), Some(10), "the first start there has reserved the whole part");
    let unused = network("192.0.2.0/24");
    assert_eq!(offers.forget_unused(desk), (vec![unused], vec![unused]));
    let whole = Some(Segments(60));
    let parts = ["192.0.2.0/24", "198.51.0.0/16"].map(|text| bench.applications.part_of(network(text), whole));
    assert_eq!(parts, [whole, Some(Segments(30))]);
    // With the last network inside it the wide one goes.
    let (unused, gone) = offers.forget_unused(desk);
    assert_eq!((unused, gone), (vec![network("198.51.100.0/24")], vec![network("198.51.0.0/16")]));
    let status = bench.applications.status();
    assert_eq!((status.networks, status.unused, status.evicted), (0, 2, 0));
    assert!(bench.heard().iter().all(|heard| matches!(heard, Heard::Watched(_))));
    assert!(window("192.0.2.1").is_some(), "asked for again, it is watched again");
    assert_eq!(bench.applications.part_of(network("192.0.2.0/24"), whole), Some(Segments(30)));
}

#[tokio::test]
async fn signs_of_life_wait_for_no_reader() {
    let (server, application) = UnixStream::pair().unwrap();
    server.set_nonblocking(true).unwrap();
    let (_reader, mut writer) = tokio::net::UnixStream::from_std(server).unwrap().into_split();
    // A socket is writable once the runtime has seen it.
    writer.writable().await.unwrap();
    let began = Instant::now();
    for _ in 0..5_000 {
        server::show_life(&mut writer, Timestamp::default()).await.unwrap();
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    application.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let mut reader = BufReader::new(application);
    let mut read = || {
        let mut line = String::new();
        reader.read_line(&mut line).map(|_| serde_json::from_str::<ToApplication>(&line).unwrap())
    };
    let lines = std::iter::from_fn(|| read().ok()).count();
    assert!((100..5_000).contains(&lines), "{lines} lines had room");
    writer.writable().await.unwrap();
    server::show_life(&mut writer, Timestamp::default()).await.unwrap();
    assert!(matches!(read(), Ok(ToApplication::Alive { .. })), "there is room again");
    drop(reader);
    assert!(server::show_life(&mut writer, Timestamp::default()).await.is_err(), "nobody is there");
}

/// Prints the cost of a decision about everything: ten thousand networks that 64 applications watch.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_decision_about_everything() {
    let bench = Bench::new("");
    let offers = Arc::clone(&bench.applications.offers);
    let texts: Vec<String> = (0..10_000).map(|n| format!("10.{}.{}.0/24", n / 250, n % 250)).collect();
    for text in &texts {
        bench.decide(text, Some(60), false);
    }
    let mut numbers = Vec::new();
    for _ in 0..64 {
        let number = offers.join("x".into(), 0, Arc::default());
        for text in &texts {
            offers.watch(number, network(text).prefix().addr(), false);
        }
        drop(offers.lines(number, bench.clock.now()));
        numbers.push(number);
    }
    for _ in 0..3 {
        let began = Instant::now();
        let parts = texts.iter().filter_map(|text| bench.applications.part_of(network(text), Some(Segments(600))));
        assert!(parts.count() == texts.len());
        let parts = began.elapsed();
        for text in &texts {
            bench.decide(text, Some(60), false);
        }
        println!("parts {parts:?}, parts and offers {:?}", began.elapsed());
    }
    let began = Instant::now();
    let lines: usize = numbers.iter().map(|number| offers.lines(*number, bench.clock.now()).len()).sum();
    println!("{lines} lines {:?}", began.elapsed());
}
