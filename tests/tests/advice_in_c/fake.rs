//! Against an agent whose lines the test writes.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{Shutdown, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_advice::{Asked, ToAgent};
use spand_tests::patience::PATIENCE;
use tempfile::TempDir;

use crate::driver::{Driver, command};

const QUESTION: &str = "192.0.2.1 300000 41000 1200";
/// Longer than any test takes.
const PATIENT: &str = "patience 120000000";

struct Fake {
    listener: UnixListener,
    folder: TempDir,
}

/// One connection to it.
struct Line {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Fake {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { listener: UnixListener::bind(folder.path().join("a.sock")).unwrap(), folder }
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("a.sock")
    }

    fn accept(&self) -> Line {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = Line { lines: BufReader::new(stream.try_clone().unwrap()), stream };
        assert!(matches!(line.next(), ToAgent::Hello { version: 1, .. }));
        line
    }

    /// With a client that waits for long.
    fn with_client() -> (Self, Line, Driver) {
        let fake = Self::new();
        let mut driver = Driver::new(&fake.socket());
        assert!(driver.is_connected && driver.does(PATIENT));
        let line = fake.accept();
        (fake, line, driver)
    }
}

impl Line {
    fn next(&mut self) -> ToAgent {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    fn asked(&mut self) -> Asked {
        match self.next() {
            ToAgent::Start(asked) => asked,
            other => panic!("{other:?}"),
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn is_silent(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let is_silent = matches!((&self.stream).read_one(), Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).unwrap();
        is_silent
    }
}

trait ReadOne {
    fn read_one(self) -> std::io::Result<usize>;
}

impl ReadOne for &UnixStream {
    fn read_one(mut self) -> std::io::Result<usize> {
        std::io::Read::read(&mut self, &mut [0])
    }
}

fn answer(id: u64, window_bytes: u64) -> String {
    format!(
        "{{\"started\":{{\"id\":{id},\"advised\":true,\"window_bytes\":{window_bytes},\"threshold_bytes\":2,\"burst_bytes\":3,\
         \"rate_bytes_per_s\":4,\"lifetime_us\":5}}}}\n"
    )
}

#[test]
fn a_question_carries_what_is_known() {
    let (_fake, mut line, mut driver) = Fake::with_client();
    for (question, destination, rest) in [
        (QUESTION, "192.0.2.1:443", [Some(300_000), Some(41_000), Some(1_200)]),
        ("2001:db8::1 18446744073709551615 0 0", "[2001:db8::1]:443", [Some(u64::MAX), None, None]),
    ] {
        driver.send(&format!("start {question}"));
        let asked = line.asked();
        assert_eq!(
            (asked.destination.to_string(), [asked.bytes, asked.rtt_us, asked.mss_bytes]),
            (destination.into(), rest)
        );
        line.send(answer(asked.id, 1).as_bytes());
        assert_eq!(driver.started().given, Ok([1, 2, 3, 4, 5]));
    }
    assert_eq!(driver.start("nowhere 1 1 1").given, Err("unsupported_address".to_owned()));
}

#[test]
fn an_answer_is_found_among_what_is_none() {
    let started = |fields: &str| format!("{{\"started\":{{{fields}}}}}\n");
    let plain = |reason: &str| Err::<[u64; 5], _>(reason.to_owned());
    let long = "reason_".repeat(10);
    let full = "18446744073709551615";
    let (_fake, mut line, mut driver) = Fake::with_client();
    for (fields, given) in [
        (r#""id":ID,"advised":false,"reason":"control""#, plain("control")),
        (r#""id":ID,"advised":true,"window_bytes":7"#, Ok([7, 0, 0, 0, 0])),
        (r#""id":ID,"advised":true,"window_bytes":7,"threshold_bytes":null,"lifetime_us":0"#, Ok([7, 0, 0, 0, 0])),
        // Another order, room between, and fields of later releases.
        (
            r#" "window_bytes" : 7 , "new":{"id":9,"a":["}",{"b":"\"]"}]},"more":-1.5e3, "advised":true,"id":ID "#,
            Ok([7, 0, 0, 0, 0]),
        ),
        (&format!(r#""id":ID,"advised":true,"window_bytes":{full}"#), Ok([u64::MAX, 0, 0, 0, 0])),
        (&format!(r#""id":ID,"advised":false,"reason":"{long}""#), plain(&long[..47])),
        ("\"id\":ID,\"advised\":false,\"reason\":\"\u{1b}[2J\\n\"", plain("__2__n")),
        // The longest line there is.
        (&format!(r#""id":ID,{}"advised":true,"window_bytes":7"#, " ".repeat(8_192 - 52)), Ok([7, 0, 0, 0, 0])),
    ] {
        driver.send(&format!("start {QUESTION}"));
        let id = line.asked().id;
        let right = started(&fields.replace("ID", &id.to_string()));
        assert!(right.len() <= 8_193, "{}", right.len());
        let one = |fields: &str| started(&fields.replace("ID", &id.to_string()));
        let mut sent = String::new();
        for wrong in [
            "\n",
            "nonsense\n",
            "{\"started\"\n",
            "{\"started\":{}}\n",
            "{\"started\":[]}\n",
            "\0\0{\"started\":\0}\n",
            "\"\\\n",
            "{\"alive\":{\"now\":1}}\n",
            "{\"settings\":{\"now\":1,\"control_fraction\":0.0,\"seed\":1,\"initial_window\":10}}\n",
            "{\"later\":{\"started\":{\"id\":1,\"advised\":true,\"window_bytes\":66}}}\n",
        ] {
            sent.push_str(wrong);
        }
        sent.push_str(&answer(id + 1, 66));
        for wrong in [
            r#""id":ID,"advised":true"#,
            r#""id":ID,"advised":true,"window_bytes":0"#,
            r#""id":ID,"advised":false"#,
            r#""id":ID,"advised":maybe,"window_bytes":66"#,
            r#""id":ID,"advised":true,"window_bytes":-66"#,
            r#""id":ID,"advised":true,"window_bytes":66.5"#,
            r#""id":ID,"advised":true,"window_bytes":"66""#,
            r#""id":ID,"advised":true,"window_bytes":66,"#,
            r#""id":ID,"advised":true,"window_bytes":66}"#,
            // Beyond the largest number; the second one is 66 more.
            r#""id":ID,"advised":true,"window_bytes":18446744073709551616"#,
            r#""id":ID,"advised":true,"window_bytes":18446744073709551682"#,
        ] {
            sent.push_str(&one(wrong));
        }
        // Too long, and what looks like an answer at its end.
        sent.push_str(&"x".repeat(3 * 8_193));
        sent.push_str(&answer(id, 66));
        sent.push_str(&one(&format!(r#""id":ID,"advised":true,{}"window_bytes":66"#, " ".repeat(8_192))));
        sent.push_str(&right);
        // The tail byte by byte.
        let (bulk, tail) = sent.as_bytes().split_at(sent.len() - right.len().min(80));
        for chunk in bulk.chunks(997).chain(tail.chunks(1)) {
            line.send(chunk);
        }
        assert_eq!(driver.started().given, given, "{fields}");
    }
}

#[test]
fn no_bytes_of_an_agent_break_a_client() {
    let (_fake, mut line, mut driver) = Fake::with_client();
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..20 {
        driver.send(&format!("start {QUESTION}"));
        let id = line.asked().id;
        let mut sent = Vec::new();
        for _ in 0..200 {
            let mut wrong = answer(4_000_000_000, 66).into_bytes();
            for _ in 0..random.random_range(1..8) {
                let at = random.random_range(25..wrong.len());
                match random.random_range(0..4) {
                    0 => wrong[at] = random.random(),
                    1 => wrong.truncate(at.max(30)),
                    2 => wrong.insert(at, *b"{}[]\",:\\".get(random.random_range(0..8)).unwrap()),
                    _ => wrong.extend_from_within(25..at),
                }
            }
            sent.extend(wrong);
        }
        sent.push(b'\n');
        sent.extend(answer(id, 7).into_bytes());
        let mut rest = &sent[..];
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(random.random_range(1..=rest.len().min(5_000)));
            line.send(chunk);
            rest = later;
        }
        assert_eq!(driver.started().given, Ok([7, 2, 3, 4, 5]));
    }
}

#[test]
fn a_late_answer_is_skipped_and_a_silent_agent_is_waited_for_once() {
    let (fake, mut line, mut driver) = Fake::with_client();
    driver.does("patience 5000");
    let first = driver.start(QUESTION);
    assert_eq!(first.given, Err("agent_gone".to_owned()));
    assert!(first.took >= Duration::from_millis(5) && first.took < Duration::from_secs(1), "{:?}", first.took);
    let late = line.asked().id;
    assert_eq!(driver.start(QUESTION).given, Err("agent_gone".to_owned()));
    assert!(line.is_silent(), "a second question before a sign of life");
    assert!(!driver.does("report") && line.is_silent(), "what the agent did not start is not reported");

    assert!(driver.does(PATIENT));
    line.send(answer(late, 66).as_bytes());
    driver.send(&format!("start {QUESTION}"));
    let id = line.asked().id;
    assert_eq!(id, late + 1);
    line.send(answer(late, 66).as_bytes());
    line.send(answer(id, 7).as_bytes());
    assert_eq!(driver.started().given, Ok([7, 2, 3, 4, 5]));

    // It hangs: the connection ends, and another one begins.
    driver.does("patience 5000");
    let begun = Instant::now();
    assert_eq!(driver.start(QUESTION).given, Err("agent_gone".to_owned()));
    fake.listener.set_nonblocking(true).unwrap();
    while fake.listener.accept().is_err() {
        driver.start(QUESTION);
        assert!(begun.elapsed() < PATIENCE, "the client stays with an agent that hangs");
        sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() > Duration::from_millis(2_500), "{:?}", begun.elapsed());
}

#[test]
fn without_an_agent_starts_are_plain_and_one_call_a_second_tries_to_reach_one() {
    let (fake, line, mut driver) = Fake::with_client();
    let gone = Err("agent_gone".to_owned());
    // It takes no more lines: no signal ends the client.
    line.stream.shutdown(Shutdown::Read).unwrap();
    assert_eq!(driver.start(QUESTION).given, gone);
    drop(line);
    sleep(Duration::from_millis(1_100));
    driver.send(&format!("start {QUESTION}"));
    let mut line = fake.accept();
    let id = line.asked().id;
    line.send(answer(id, 7).as_bytes());
    assert!(driver.started().given.is_ok());

    // It goes while a question waits.
    driver.send(&format!("start {QUESTION}"));
    line.asked();
    drop(line);
    assert_eq!(driver.started().given, gone);
    sleep(Duration::from_millis(1_100));
    let Fake { listener, folder } = fake;
    drop(listener);
    std::fs::remove_file(folder.path().join("a.sock")).unwrap();
    assert_eq!(driver.start(QUESTION).given, gone);
    let failed = Instant::now();
    let again = Fake { listener: UnixListener::bind(folder.path().join("a.sock")).unwrap(), folder };
    again.listener.set_nonblocking(true).unwrap();
    for _ in 0..20 {
        assert_eq!(driver.start(QUESTION).given, gone);
    }
    let is_early = failed.elapsed() < Duration::from_millis(900);
    assert!(again.listener.accept().is_err() || !is_early, "reached again at once");
    assert!(is_early, "this machine was too busy: twenty starts took {:?}", failed.elapsed());
    sleep(Duration::from_millis(1_100));
    assert!(driver.does("read") && again.listener.accept().is_ok());
    assert!(!Driver::new(&again.folder.path().join("x".repeat(200))).is_connected, "a path longer than an address");
}

#[test]
fn the_example_spreads_its_first_window_by_the_answer() {
    let fake = Fake::new();
    let receiver = UdpSocket::bind("[::1]:0").unwrap();
    let to = receiver.local_addr().unwrap().to_string();
    // Its patience of 5 ms may end before a busy machine has answered: then it starts plain.
    for _ in 0..20 {
        receiver.set_nonblocking(true).unwrap();
        let mut payload = [0; 2_000];
        while receiver.recv(&mut payload).is_ok() {}
        let mut example = command("docs/examples/advice.c", &fake.socket());
        example.args([&to, "1000000", "41000", "send"]).stdout(Stdio::piped());
        let example = example.spawn().unwrap();
        let mut line = fake.accept();
        let id = line.asked().id;
        let begun = Instant::now();
        line.send(
            format!(
                "{{\"started\":{{\"id\":{id},\"advised\":true,\"window_bytes\":24000,\"burst_bytes\":4800,\
                 \"rate_bytes_per_s\":96000}}}}\n"
            )
            .as_bytes(),
        );
        let output = String::from_utf8(example.wait_with_output().unwrap().stdout).unwrap();
        if output == "plain: agent_gone\n" {
            continue;
        }
        // Fifteen packets after the burst and the one that follows it, 12.5 ms apart.
        assert!(begun.elapsed() >= Duration::from_millis(187), "{:?}", begun.elapsed());
        let start = "window_bytes 24000 threshold_bytes 0 burst_bytes 4800 rate_bytes_per_s 96000 lifetime_us 0\n";
        assert_eq!(output, start);
        let sizes: Vec<usize> = std::iter::from_fn(|| receiver.recv(&mut payload).ok()).collect();
        assert_eq!(sizes, [1_200; 20]);
        let ToAgent::Ended(ended) = line.next() else { panic!("no report") };
        assert_eq!((ended.id, ended.outcome.acknowledged_bytes), (Some(id), 24_000));
        return;
    }
    panic!("this machine was too busy: none of 20 answers came within 5 ms");
}
