//! How long an application waits for a start: in its own process from the table of `spand-advice`, and over the agent's socket, beside a
//! bare echo over a Unix socket in the same run.
//!
//! The agent holds advice for all networks, and each question is about one of them at random. Client and agent share this machine's
//! cores. Ends with 1 when a 99th percentile is not below its target.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_advice::{Adviser, Outcome, Question};
use spand_proto::network::Network;
use spand_tests::applications::Offering;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Networks with advice
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    networks: u32,
    /// Questions within the process
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    in_process: u32,
    /// Questions over the socket
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    over_socket: u32,
    /// Target of the 99th percentile within the process, in microseconds
    #[arg(long, default_value_t = 20.0)]
    target_in_process: f64,
    /// Target of the 99th percentile over the socket, in microseconds
    #[arg(long, default_value_t = 200.0)]
    target_over_socket: f64,
}

/// Questions over the socket after which the echo has its turn.
const TURN: u32 = 1_000;
/// Longer than an answer takes on any machine.
const PATIENCE: Duration = Duration::from_secs(10);
const RTT: Duration = Duration::from_millis(41);

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let offering = Offering::new(arguments.networks)?;
    for number in 0..arguments.networks {
        offering.decide(Network::of(destination(number).ip()), false);
    }
    let in_process = in_process(arguments, &offering.socket())?;
    let [first, later, echo] = over_socket(arguments, &offering.socket())?;
    println!("{} networks; microseconds", arguments.networks);
    println!("{:<44} {:>8} {:>8} {:>8} {:>9}", "", "p50", "p99", "p99.9", "max");
    let mut met = true;
    for (what, times, target) in [
        ("in process, Adviser::start", &in_process, Some(arguments.target_in_process)),
        ("over the socket, first of a network", &first, None),
        ("over the socket", &later, Some(arguments.target_over_socket)),
        ("bare echo over a Unix socket", &echo, None),
    ] {
        let [p50, p99, p999, max] = [500, 990, 999, 1_000].map(|part| times.quantile_us(part));
        let verdict = target.map_or_else(String::new, |target| {
            met &= p99 <= target;
            format!("  p99 of {target} at most: {}", if p99 <= target { "met" } else { "MISSED" })
        });
        println!("{what:<44} {p50:>8.1} {p99:>8.1} {p999:>8.1} {max:>9.1}{verdict}");
    }
    let [p50, p99] = [500, 990].map(|part| later.quantile_us(part) / echo.quantile_us(part));
    println!("over the socket against the echo: {p50:.2} times at p50, {p99:.2} times at p99");
    Ok(if met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A client of the network of each number.
fn destination(number: u32) -> SocketAddr {
    (Ipv4Addr::from(0x0a00_0001 + (number << 8)), 443).into()
}

/// Sorted.
struct Times(Vec<Duration>);

impl Times {
    fn new(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// The smallest value that `per_mille` of a thousand do not exceed.
    fn quantile_us(&self, per_mille: usize) -> f64 {
        let rank = (self.0.len() * per_mille).div_ceil(1_000);
        self.0[rank.saturating_sub(1)].as_secs_f64() * 1e6
    }
}

fn in_process(arguments: &Arguments, socket: &Path) -> Result<Times> {
    let networks = arguments.networks;
    let limit = NonZeroUsize::new(networks as usize).context("at least one network")?;
    let adviser = Adviser::with_limit(socket, "bench", limit);
    for number in 0..networks {
        let asked = adviser.start_within(&Question::of(destination(number)).rtt(RTT), PATIENCE);
        ensure!(asked.start().is_ok(), "{}: {:?}", destination(number), asked.start());
    }
    let mut random = StdRng::seed_from_u64(1);
    let mut times = Vec::with_capacity(arguments.in_process as usize);
    for _ in 0..arguments.in_process {
        let bytes = random.random_range(1_000..10_000_000);
        let question = Question::of(destination(random.random_range(0..networks))).bytes(bytes).rtt(RTT);
        let asked = Instant::now();
        let connection = adviser.start(&question);
        times.push(asked.elapsed());
        // A small transfer is one that a default start carries as well.
        connection.report(&Outcome { acknowledged_bytes: bytes, ..Outcome::default() });
    }
    ensure!(adviser.networks() == networks as usize, "advice for {} networks is held", adviser.networks());
    Ok(Times::new(times))
}

/// First questions of all networks, later ones, and the echo.
fn over_socket(arguments: &Arguments, socket: &Path) -> Result<[Times; 3]> {
    let mut client = Client::new(UnixStream::connect(socket)?)?;
    client.stream.write_all(b"{\"hello\":{\"version\":1,\"application\":\"bench\"}}\n")?;
    let (own, other) = UnixStream::pair()?;
    let mut echo = Client::new(own)?;
    let echoing = thread::spawn(move || echo_all(other));
    let mut times = [const { Vec::new() }; 3];
    for number in 0..arguments.networks {
        times[0].push(client.start(number.into(), number)?);
    }
    let mut random = StdRng::seed_from_u64(2);
    let mut id = u64::from(arguments.networks);
    while times[1].len() < arguments.over_socket as usize {
        for _ in 0..TURN {
            id += 1;
            times[1].push(client.start(id, random.random_range(0..arguments.networks))?);
        }
        for _ in 0..TURN {
            id += 1;
            let line = question(id, random.random_range(0..arguments.networks));
            times[2].push(echo.ask(&line, "{\"start\"")?);
        }
    }
    drop(echo);
    echoing.join().map_err(|_| anyhow::anyhow!("the echo panicked"))??;
    Ok(times.map(Times::new))
}

fn echo_all(mut stream: UnixStream) -> std::io::Result<()> {
    let mut bytes = [0; 8_192];
    loop {
        match stream.read(&mut bytes)? {
            0 => return Ok(()),
            count => stream.write_all(&bytes[..count])?,
        }
    }
}

/// An application without a table.
struct Client {
    stream: UnixStream,
    lines: BufReader<UnixStream>,
    line: String,
}

fn question(id: u64, number: u32) -> String {
    let destination = destination(number);
    format!(
        "{{\"start\":{{\"id\":{id},\"destination\":\"{destination}\",\"bytes\":300000,\"rtt_us\":41000,\"mss_bytes\":1200}}}}\n"
    )
}

impl Client {
    fn new(stream: UnixStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { lines: BufReader::new(stream.try_clone()?), stream, line: String::new() })
    }

    /// The time until a line comes that begins so.
    fn ask(&mut self, line: &str, beginning: &str) -> Result<Duration> {
        let asked = Instant::now();
        self.stream.write_all(line.as_bytes())?;
        loop {
            self.line.clear();
            ensure!(self.lines.read_line(&mut self.line)? > 0, "the connection ended");
            if self.line.starts_with(beginning) {
                return Ok(asked.elapsed());
            }
        }
    }

    /// The time of one answer. The connection is over at once.
    fn start(&mut self, id: u64, number: u32) -> Result<Duration> {
        let took = self.ask(&question(id, number), "{\"started\"")?;
        ensure!(self.line.contains("\"advised\":true"), "no start: {}", self.line);
        let ended = format!("{{\"ended\":{{\"id\":{id},\"acknowledged_bytes\":300000}}}}\n");
        self.stream.write_all(ended.as_bytes())?;
        Ok(took)
    }
}
