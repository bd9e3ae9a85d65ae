//! The commands that ask a running gateway, each as a process against an interface that answers.

use std::fs::Permissions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use spand_gateway::api::password_line;
use spand_gateway::publisher::Part;
use spand_needs::{Need, needs};
use spand_tests::access::Setup;
use spand_tests::dashboard::stage::Stage;
use spand_tests::patience::PATIENCE_ENV;
use spand_tests::product::standing_in::link_programs;
use tempfile::TempDir;

/// More is for machines that do much else; 0.2 s is the aim.
const FIRST_ROW_MAX: Duration = Duration::from_secs(2);
/// Networks of the large gateway: ten pages and more of `--all`.
pub(super) const MANY: usize = 10_000;

/// The program, and where it asks.
pub(super) struct Asked {
    folder: TempDir,
    url: String,
}

impl Asked {
    pub(super) fn new(address: SocketAddr) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        link_programs(folder.path())?;
        Ok(Self { folder, url: format!("http://{address}") })
    }

    pub(super) fn command(&self, line: &str) -> Command {
        let mut command = Command::new(self.folder.path().join("spand-gateway"));
        command.args(line.split_whitespace()).current_dir(self.folder.path());
        if !line.contains("--url") {
            command.args(["--url", &self.url]);
        }
        command.stdin(Stdio::null());
        command
    }

    fn output(&self, line: &str) -> Result<Output> {
        self.command(line).output().with_context(|| format!("cannot run {line}"))
    }

    /// What is printed where it goes well.
    fn prints(&self, line: &str) -> Result<String> {
        let output = self.output(line)?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && error.is_empty(), "{line}: {}: {error}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    /// One sentence with these words, and the exit code.
    pub(super) fn fails(&self, line: &str, code: i32, words: &[&str]) -> Result<()> {
        let output = self.output(line)?;
        let error = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(code) && output.stdout.is_empty(), "{line}: {}: {error}", output.status);
        let sentences = error.lines().filter(|line| line.starts_with("error: ")).count();
        ensure!(sentences == 1, "{line}: {error}");
        for word in words {
            ensure!(error.contains(word), "{line}: no `{word}` in {error}");
        }
        Ok(())
    }
}

pub(super) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Whether a line begins with a network: a heading has a slash, too.
fn is_row(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_hexdigit()) && line.contains('/')
}

/// The cells of the first row that begins with `name`.
fn row<'a>(table: &'a str, name: &str) -> Result<Vec<&'a str>> {
    let row = table.lines().find(|line| line.starts_with(name)).with_context(|| format!("no {name} in:\n{table}"))?;
    Ok(row.split_whitespace().collect())
}

pub(super) fn tables() -> Result<()> {
    let stage = Stage::start(&[], 30, any_port())?;
    stage.invent_faults()?;
    let asked = Asked::new(stage.address())?;
    // What is counted by the second is there after the second one.
    thread::sleep(Duration::from_millis(2_500));

    let status = asked.prints("status")?;
    ensure!(row(&status, "version")? == ["version", env!("CARGO_PKG_VERSION")], "{status}");
    ensure!(row(&status, "ready")? == ["ready", "yes"] && row(&status, "agents")? == ["agents", "4"], "{status}");
    let networks: usize = row(&status, "networks")?[1].parse()?;
    stage.published().readiness().not_ready(Part::Capture, "mirror0 is down");
    let status = asked.prints("status")?;
    ensure!(row(&status, "ready")? == ["ready", "no"], "{status}");
    ensure!(status.contains("not ready") && status.contains("capture: mirror0 is down"), "{status}");

    let all = asked.prints("networks --all")?;
    let rows: Vec<&str> = all.lines().filter(|line| is_row(line)).collect();
    ensure!(rows.len() == networks && !all.contains("--offset"), "{networks} networks:\n{all}");
    ensure!(all.lines().next().is_some_and(|head| head.starts_with("network ") && head.contains("share")), "{all}");
    ensure!(all.lines().nth(1).is_some_and(|units| units.contains("segs") && units.contains("ms")), "{all}");
    let sorted = asked.prints("networks --sort wc --order desc --estimate yes --limit 5")?;
    let shares: Vec<u32> = sorted
        .lines()
        .filter(|line| is_row(line))
        .map(|line| line.split_whitespace().nth(1).unwrap_or_default().trim_start_matches('≥').parse())
        .collect::<Result<_, _>>()?;
    ensure!(shares.len() == 5 && shares.is_sorted_by(|a, b| a >= b) && shares[0] > shares[4], "{sorted}");
    ensure!(sorted.trim_end().ends_with("in all; --offset 5 prints the next ones, --all prints every one"), "{sorted}");
    let first = rows[0].split_whitespace().next().context("a network")?;
    let found = asked.prints(&format!("networks --search {first} --within {first}"))?;
    ensure!(found.lines().filter(|line| is_row(line)).count() == 1 && found.contains(first), "{found}");
    for (line, sentence) in [
        ("networks --search nothing", "no network matches --search nothing: leave it out to see others\n".to_owned()),
        ("networks --offset 1000", format!("none from --offset 1000 on: there are {networks} networks\n")),
        ("agents --offset 9", "none from --offset 9 on: there are 4 agents\n".to_owned()),
    ] {
        let printed = asked.prints(line)?;
        ensure!(printed == sentence, "{line}: {printed}");
    }

    let address = first.split('/').next().unwrap_or_default();
    for written in [first, address] {
        let network = asked.prints(&format!("network {written}"))?;
        ensure!(row(&network, "network")? == ["network", first], "{network}");
        ensure!(network.contains("RTT mean, ms") && network.contains("limited, round trips"), "{network}");
    }

    let agents = asked.prints("agents")?;
    ensure!(agents.lines().next().is_some_and(|head| head.starts_with("host ")), "{agents}");
    ensure!(
        agents.lines().filter(|line| line.contains("careful") || line.contains("observe")).count() >= 2,
        "{agents}"
    );
    let two = asked.prints("agents --limit 2 --offset 1")?;
    ensure!(two.contains("4 in all; --offset 3 prints the next ones"), "{two}");

    let benefit = asked.prints("benefit")?;
    ensure!(benefit.starts_with("advised minus control since 20"), "{benefit}");
    let class = row(&benefit, "100kB")?;
    ensure!(class.len() == 10 && class[6].parse::<u64>()? > 0, "{benefit}");

    let events = asked.prints("events")?;
    ensure!(events.contains("subscribed") && events.contains("agent"), "{events}");
    let newest = asked.prints("events --limit 1")?;
    ensure!(newest.lines().count() == 4 && newest.contains("more are not kept, or not within --limit"), "{newest}");
    ensure!(asked.prints("events --from 1000000")? == "none\n", "an event of the future");
    Ok(())
}

/// Stands between, and keeps the bodies of the answers.
fn between(gateway: SocketAddr) -> Result<(SocketAddr, Arc<Mutex<Vec<String>>>)> {
    let listener = TcpListener::bind(any_port())?;
    let (address, bodies) = (listener.local_addr()?, Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&bodies);
    thread::spawn(move || -> Result<()> {
        loop {
            let (mut client, _) = listener.accept()?;
            let (mut head, mut answer) = (Vec::new(), String::new());
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte)?;
                head.extend(byte);
            }
            let mut server = TcpStream::connect(gateway)?;
            server.write_all(&head)?;
            server.read_to_string(&mut answer)?;
            let body = answer.split_once("\r\n\r\n").context("an answer")?.1.to_owned();
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(body);
            client.write_all(answer.as_bytes())?;
        }
    });
    Ok((address, bodies))
}

pub(super) fn json() -> Result<()> {
    let stage = Stage::start(&[], 1_200, any_port())?;
    let (address, bodies) = between(stage.address())?;
    let asked = Asked::new(address)?;
    let mut network = String::new();
    for (line, name, answers) in [
        ("status", "points", 1),
        ("networks", "networks", 1),
        ("networks --all", "networks", 3),
        ("network", "prefix", 1),
        ("agents", "agents", 1),
        ("benefit", "classes", 1),
        ("events", "events", 1),
    ] {
        let printed = asked.prints(&format!("{line} {} --json", if line == "network" { &network } else { "" }))?;
        let came: Vec<String> = std::mem::take(&mut *bodies.lock().unwrap_or_else(PoisonError::into_inner));
        ensure!(came.len() == answers && printed == format!("{}\n", came.join("\n")), "{line}: {printed}");
        let document: Value = serde_json::from_str(&came[0])?;
        ensure!(document.get(name).is_some(), "{line}: {printed}");
        if line == "networks" {
            document["networks"][0]["prefix"].as_str().context("a prefix")?.clone_into(&mut network);
        }
    }
    Ok(())
}

pub(super) fn again() -> Result<()> {
    let stage = Stage::start(&[], 30, any_port())?;
    let asked = Asked::new(stage.address())?;
    for (line, begins) in [
        ("status --watch", "version"),
        ("events --json --watch=1", "{\"events\":"),
        ("events --json --watch 1s", "{\"events\":"),
    ] {
        let mut child = asked.command(line).stdout(Stdio::piped()).spawn()?;
        let out = BufReader::new(child.stdout.take().context("its output")?);
        let began = Instant::now();
        let mut lines = out.lines().map_while(Result::ok).filter(|line| line.starts_with(begins));
        let three = lines.by_ref().take(3).count();
        let took = began.elapsed();
        // It ends where nobody reads, and that is no fault.
        drop(lines);
        let status = child.wait()?;
        ensure!(three == 3 && took >= Duration::from_millis(1_900), "{line}: {three} in {took:?}");
        ensure!(status.success(), "{line}: {status}");
    }
    // A gateway that goes away is asked again, and the reason is printed each time.
    let mut child = asked.command("status --watch").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut first = String::new();
    // Kept open: without a reader it would end.
    let mut out = BufReader::new(child.stdout.take().context("its output")?);
    out.read_line(&mut first)?;
    drop(stage);
    let errors = BufReader::new(child.stderr.take().context("its errors")?).lines().map_while(Result::ok);
    let errors: Vec<String> = errors.take(2).collect();
    child.kill()?;
    child.wait()?;
    ensure!(errors.len() == 2 && errors.iter().all(|error| error.contains("nobody answers")), "{first}: {errors:?}");
    Ok(())
}

pub(super) fn faults() -> Result<()> {
    let stage = Stage::start(&[], 30, any_port())?;
    let asked = Asked::new(stage.address())?;
    asked.fails("network 9.9.9.9", 1, &["nothing was seen of 9.9.9.9"])?;
    for line in [
        "network",
        "network nonsense",
        "network 192.0.2.0/33",
        "networks --sort size",
        "networks --order up",
        "networks --limit 0",
        "networks --limit 5 --all",
        "networks --within nowhere",
        "agents --limit 1001",
        "events --from 0",
        "status --watch=0",
        "status --url nowhere",
        "status --url ftp://gateway",
        "status --url http://ann@gateway",
        "status --url http://gateway/path",
        "status --url https://127.0.0.1:1",
        "status --ca ca.pem",
        "status --user ann",
        "status --url http://gateway.example --user ann --password-file file",
        "status --password-file file",
    ] {
        asked.fails(line, 64, &[])?;
    }
    let nobody = TcpListener::bind(any_port())?;
    let nobody_at = format!("--url http://{}", nobody.local_addr()?);
    drop(nobody);
    for command in ["status", "networks", "network 192.0.2.0/24", "agents", "benefit", "events"] {
        asked.fails(
            &format!("{command} {nobody_at}"),
            1,
            &["nobody answers at http://127.0.0.1:", "start the gateway"],
        )?;
    }
    asked.fails("status --url http://name.invalid", 1, &["cannot ask http://name.invalid"])?;
    for (answer, words) in [
        ("", "not an HTTP server"),
        ("garbage\r\n\r\n", "not an HTTP server"),
        ("HTTP/1.1 200 OK\r\n\r\n<html>", "is not a gateway"),
        ("HTTP/1.1 404 Not Found\r\n\r\n<html>", "is not a gateway"),
    ] {
        let listener = TcpListener::bind(any_port())?;
        let address = listener.local_addr()?;
        thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            stream.read(&mut [0; 4_096]).and_then(|_| stream.write_all(answer.as_bytes()))
        });
        asked.fails(&format!("status --url http://{address}"), 1, &[words, "--url"])?;
    }
    Ok(())
}

pub(super) fn passwords() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("passwords");
    fs::write(&file, password_line("ann", "a long password").map_err(|error| anyhow::anyhow!("{error}"))?)?;
    for tls in [false, true] {
        let more = format!("[admin]\ntls = {tls}\npasswords = \"{}\"\n", file.display());
        let stage = runtime.block_on(Setup::with(&more)?.start())?;
        let asked = Asked::new(stage.http)?;
        let write = |name: &str, text: &str| fs::write(asked.folder.path().join(name), text);
        write("right", "a long password\n")?;
        write("wrong", "another\n")?;
        for (name, mode) in [("right", 0o600), ("wrong", 0o666)] {
            fs::set_permissions(asked.folder.path().join(name), Permissions::from_mode(mode))?;
        }
        let ca = |name: &str| stage.path().join(name).display().to_string();
        let how = if tls { format!("--url https://{} --ca {}", stage.http, ca("ca.pem")) } else { String::new() };
        let networks = asked.prints(&format!("networks --user ann --password-file right {how}"))?;
        ensure!(networks.contains("192.0.2.0/24"), "{networks}");
        asked.fails(&format!("networks {how}"), 1, &["a name and a password", "--user and --password-file"])?;
        let wrong = format!("networks --user ann --password-file wrong {how}");
        asked.fails(
            &wrong,
            1,
            &["wrong name or password", "admin.passwords", "warning: wrong holds a secret", "0666"],
        )?;
        asked.fails(&format!("networks --user ann --password-file missing {how}"), 1, &["cannot read missing"])?;
        if tls {
            asked.fails("status", 1, &["https://"])?;
            let other = spand_tests::access::Authority::new("others")?.certificate();
            write("other.pem", &other)?;
            asked.fails(&format!("status --url https://{} --ca other.pem", stage.http), 1, &["certificate"])?;
            asked.fails(&format!("status --url https://{} --ca right", stage.http), 64, &["holds no certificate"])?;
        }
        stage.stop();
    }
    Ok(())
}

pub(super) fn first_row() -> Result<()> {
    let stage = Stage::start(&[], MANY, any_port())?;
    let asked = Asked::new(stage.address())?;
    for line in ["networks", "networks --all", "networks --all --sort wc --order desc"] {
        let began = Instant::now();
        let mut child = asked.command(line).stdout(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let first = lines.by_ref().map_while(Result::ok).find(|line| is_row(line)).context("a row")?;
        let took = began.elapsed();
        let widths = |row: &str| row.chars().collect::<Vec<_>>().iter().rposition(char::is_ascii_digit);
        let rest: Vec<String> = lines.map_while(Result::ok).filter(|line| is_row(line)).collect();
        let whole = began.elapsed();
        ensure!(child.wait()?.success(), "{line} failed");
        println!(
            "command_line: {line}: first row of {MANY} networks after {took:?}, {} rows after {whole:?}",
            1 + rest.len()
        );
        ensure!(took < FIRST_ROW_MAX, "{line}: the first row after {took:?}");
        let wanted = if line.contains("--all") { MANY - 1 } else { 49 };
        ensure!(rest.len() >= wanted, "{line}: {} rows", rest.len());
        let ends: Vec<_> = rest.iter().filter(|row| !row.contains("few")).map(|row| widths(row)).collect();
        ensure!(ends.iter().all(|end| *end == ends[0]), "{line}: columns move: {first}");
    }
    Ok(())
}

// A program of the product that lives and does nothing, as on a machine that is too busy.

/// The line that each program prints then.
const SENTENCE: &str = "this machine was too busy: the gateway's start did not happen within 2 s";

pub(super) fn is_named() -> Result<()> {
    if !needs(Need::Root) {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let slow = folder.path().join("slow");
    fs::write(&slow, "#!/bin/sh\nexec sleep 60\n")?;
    fs::set_permissions(&slow, Permissions::from_mode(0o700))?;
    let shows = [
        (env!("CARGO_BIN_EXE_demo"), vec![]),
        (env!("CARGO_BIN_EXE_benefit"), vec!["--one", "quick"]),
        // A run in a process of its own.
        (env!("CARGO_BIN_EXE_benefit"), vec!["--scenarios", "quick", "--seeds", "1"]),
    ];
    let running = shows.map(|(program, arguments)| {
        let mut command = Command::new(program);
        command.args(&arguments).arg("--gateway").arg(&slow).current_dir(folder.path()).env(PATIENCE_ENV, "2");
        (program, arguments, command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn())
    });
    for (program, arguments, child) in running {
        let output = child?.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stderr);
        let named = printed.lines().all(|line| line == SENTENCE) && !printed.is_empty();
        ensure!(
            output.status.code() == Some(75) && named,
            "{program} {} ended with {} and printed: {printed}",
            arguments.join(" "),
            output.status
        );
    }
    Ok(())
}
