//! The commands that ask a running gateway, against a server that is none: what it sends reaches no terminal, and ends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use spand_needs::{Need, needs};
use spand_tests::dashboard::stage::Stage;
use spand_tests::lab::namespace::Namespace;
use spand_tests::patience::PATIENCE;
use spand_tests::product::standing_in::link_programs;

use super::ask::Asked;

/// Each acts on a terminal or is not seen there: escape, bell, a control of C1, direction, joiners, zero width, a line's end.
const ACTING: [char; 11] = [
    '\u{1b}',
    '\u{7}',
    '\u{7f}',
    '\u{85}',
    '\u{9b}',
    '\u{200b}',
    '\u{200f}',
    '\u{202e}',
    '\u{2066}',
    '\u{feff}',
    '\u{e0001}',
];
const COMMANDS: [&str; 6] = ["status", "networks", "network 192.0.2.0/24", "agents", "benefit", "events"];
/// Address space that an answer of 8 MiB may need, beside the program's.
const MOST_KIB: u64 = 700_000;

/// Answers each request with what `answer` makes of its path.
fn server(answer: impl Fn(&str, &mut TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (address, answer) = (listener.local_addr()?, Arc::new(answer));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            // A client that had enough closes the connection.
            thread::spawn(move || {
                let mut asking = BufReader::new(stream);
                let mut lines = asking.by_ref().lines().map_while(Result::ok);
                let first = lines.next().unwrap_or_default();
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                answer(first.split(' ').nth(1).unwrap_or_default(), asking.get_mut())
            });
        }
    });
    Ok(address)
}

fn whole(stream: &mut TcpStream, status: u16, body: &str) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status} -\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// What stands in place of each value of a document.
#[derive(Clone, Copy, Debug)]
enum Poison {
    /// Texts and the name of one more field in each object, behind what they say.
    Texts,
    /// Numbers, too, are texts.
    All,
    /// Every value is an object with such a name.
    Names,
}

fn poisoned(value: &Value, poison: Poison) -> Value {
    let acting = String::from_iter(ACTING);
    match (value, poison) {
        (Value::Array(list), _) => list.iter().map(|one| poisoned(one, poison)).collect(),
        (Value::Object(fields), _) => {
            let more = fields.iter().next().filter(|_| !matches!(poison, Poison::All));
            let more = more.map(|(name, one)| (format!("{name}{acting}"), one.clone()));
            Value::Object(fields.iter().map(|(name, one)| (name.clone(), poisoned(one, poison))).chain(more).collect())
        }
        (_, Poison::Names) => serde_json::json!({ acting.clone(): acting }),
        (Value::String(text), _) => format!("{text}{acting}").into(),
        (_, Poison::All) => acting.into(),
        (other, Poison::Texts) => other.clone(),
    }
}

pub(super) fn no_terminal() -> Result<()> {
    let stage = Stage::start(&[], 30, SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let gateway = stage.address();
    let real = move |path: &str| -> Result<Value> {
        let mut stream = TcpStream::connect(gateway)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(serde_json::from_str(answer.split_once("\r\n\r\n").context("an answer")?.1)?)
    };
    let networks = real("/v1/networks?limit=1")?;
    let network = networks["networks"][0]["prefix"].as_str().context("a network")?.to_owned();
    for poison in [Poison::Texts, Poison::All, Poison::Names] {
        for status in [200, 400, 500] {
            let network = network.clone();
            let asked = Asked::new(server(move |path, stream| {
                let path =
                    if path.starts_with("/v1/networks/") { format!("/v1/networks/{network}") } else { path.to_owned() };
                let document = real(&path).map_err(std::io::Error::other)?;
                let error = serde_json::json!({ "detail": "no" });
                let body = poisoned(if status == 200 { &document } else { &error }, poison).to_string();
                whole(stream, status, &body)
            })?)?;
            for line in COMMANDS.iter().flat_map(|line| [(*line).to_owned(), format!("{line} --json")]) {
                let output = asked.command(&line).output()?;
                let printed = String::from_utf8([output.stdout, output.stderr].concat())?;
                let acting: Vec<char> = printed.chars().filter(|c| ACTING.contains(c)).collect();
                ensure!(
                    acting.is_empty() && !printed.is_empty(),
                    "{line}, {poison:?}, {status}: {acting:?} in\n{printed}"
                );
            }
        }
    }
    Ok(())
}

pub(super) fn no_end() -> Result<()> {
    let many = |list: &str, one: &str| {
        format!("{{\"{list}\":[{}{one}]}}", format!("{one},").repeat((8 << 20) / (one.len() + 1) - 40))
    };
    let wide =
        format!("{{\"networks\":[{{\"name\":\"{}\"}}{}]}}", "x".repeat(4 << 20), ",{\"prefix\":\"a\"}".repeat(999));
    for body in [many("networks", "[]"), many("events", "{}"), many("not_ready", "[]"), many("detail", "0"), wide] {
        for status in [200, 500] {
            let body = body.clone();
            let asked = Asked::new(server(move |_, stream| whole(stream, status, &body))?)?;
            for line in COMMANDS {
                let program = asked.command(line);
                let output = Command::new("sh")
                    .args(["-c", "ulimit -v \"$0\" && exec \"$@\"", &MOST_KIB.to_string()])
                    .arg(program.get_program())
                    .args(program.get_args())
                    .output()?;
                let ended = matches!(output.status.code(), Some(0 | 1));
                ensure!(ended, "{line}, {status}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
            }
        }
    }
    let endless = Asked::new(server(|path, stream| {
        let offset = path.split("offset=").nth(1).and_then(|rest| rest.split('&').next()?.parse::<u64>().ok());
        whole(stream, 200, &format!("{{\"networks\":[],\"next_offset\":{}}}", offset.unwrap_or_default() + 1))
    })?)?;
    endless.fails("networks --all", 1, &["is not a gateway"])?;
    let dripping = Asked::new(server(|_, stream| {
        write!(stream, "HTTP/1.1 200 OK\r\n\r\n[")?;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            stream.write_all(b" ")?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    })?)?;
    dripping.fails("status", 1, &["its answer is not whole after 5 s"])
}

/// A listener of a user without rights. It prints what each connection sends, a line each.
const LISTENER: &str = "
import os, socket
os.setuid(65534)
listener = socket.create_server(('127.0.0.1', 7480))
print('ready', flush=True)
while True:
    stream = listener.accept()[0]
    stream.settimeout(5)
    try:
        came = stream.recv(4096)
    except OSError:
        came = b''
    print(came.decode().replace('\\r\\n', ' '), flush=True)
    stream.sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\n{}')
    stream.close()
";

pub(super) fn no_password() -> Result<()> {
    if !needs(Need::Root) {
        return Ok(());
    }
    let namespace = Namespace::create("stranger")?;
    namespace.ip(&["link set lo up"])?;
    let folder = tempfile::tempdir()?;
    link_programs(folder.path())?;
    fs::write(folder.path().join("password"), "a long password\n")?;
    let mut python = namespace.command("python3");
    let mut listener = python.args(["-c", LISTENER]).stdout(Stdio::piped()).spawn().context("cannot run python3")?;
    let mut came = BufReader::new(listener.stdout.take().context("its output")?).lines();
    ensure!(came.next().context("it ended")?? == "ready", "it does not listen");
    let ask = |more: &[&str]| {
        let mut program = namespace.command(folder.path().join("spand-gateway"));
        program.args(["status", "--user", "ann", "--password-file", "password"]).args(more);
        program.current_dir(folder.path()).output()
    };
    let refused = ask(&[])?;
    let error = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(1) && error.contains("user 65534 listens there"), "{error}");
    // Who names the address trusts it. This is the first connection that sends anything.
    let named = ask(&["--url", "http://127.0.0.1:7480"])?;
    ensure!(named.status.success(), "{}", String::from_utf8_lossy(&named.stderr));
    let first = came.next().context("nothing came")??;
    listener.kill()?;
    listener.wait()?;
    ensure!(first.contains("Authorization: Basic") && came.next().is_none(), "the first connection sent {first}");
    Ok(())
}
