//! A member's user sends cells, and what is none, on every topic as fast as it can: what a gateway keeps of it is bounded.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use spand_gateway::config::{Config, EngineOptions, Memory};
use spand_gateway::publisher::{MonotonicClock, PacketClock};

use super::{Programs, Row, Size};
use crate::cluster::made::MadeCells;
use crate::cluster::site::Site;
use crate::ending::progress;
use crate::memory::resident_bytes;

/// The number that the flood is sent under: no gateway has it.
const NUMBER: u16 = 2;
/// What messages are about, as in subjects.
const TOPICS: [&str; 5] = ["closed", "open", "member", "host-1", "again-1"];
/// Cells made for it: those of a few messages, sent again and again, and as many that are new each time are of no use to the sender.
const CELLS: u64 = 20_000;
const NETWORKS: u32 = 1_000_000;
/// Bytes of a message that no gateway sends.
const TOO_LONG: usize = 1_000_000;
/// Between two looks at the gateway.
const LOOK: u64 = 16 << 20;

/// Runs it.
///
/// # Errors
/// Where the gateway or the server fails.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let bytes: u64 = match size {
        Size::Full => 2_000_000_000,
        Size::Quick => 100_000_000,
    };
    let Some(site) = Site::start(programs, 1, 1, "[log]\nfilter = \"warn\"\n")? else { return Ok(Vec::new()) };
    let gateway = site.gateways.first().context("a gateway")?;
    let process = gateway.pid().to_string();
    let before = resident_bytes(&process)?;
    idle_engines(&process)?;
    let server = site.servers.urls().first().context("a server")?.clone();
    let (runtime, client) = site.namespace.enter(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = runtime.block_on(async_nats::connect(&server))?;
        Ok((runtime, client))
    })?;
    let mut made = MadeCells::new(vec![NUMBER], NETWORKS);
    let messages: Vec<Vec<u8>> =
        made.messages(CELLS, MonotonicClock::from_wall_clock().now()).into_iter().map(|(_, message)| message).collect();
    ensure!(!messages.is_empty(), "no message was made");
    let begun = Instant::now();
    let (mut sent, mut looked, mut most, mut slowest) = (0, 0, before, Duration::ZERO);
    let mut turn = TOPICS.iter().cycle().zip(messages.iter().cycle()).enumerate();
    while sent < bytes {
        let (number, (topic, message)) = turn.next().context("endless")?;
        let payload = if number.is_multiple_of(50) { vec![2; TOO_LONG] } else { message.clone() };
        sent += payload.len() as u64;
        runtime.block_on(async {
            client.publish(format!("spand.main.{}.{topic}.{NUMBER}", site.name), payload.into()).await?;
            anyhow::Ok(client.flush().await?)
        })?;
        if sent - looked >= LOOK {
            looked = sent;
            progress(&format!("flood: {} of {} MB", sent / 1_000_000, bytes / 1_000_000));
            most = most.max(resident_bytes(&process)?);
            let asked = Instant::now();
            gateway.json("/v1/share")?;
            slowest = slowest.max(asked.elapsed());
        }
    }
    let lasted = begun.elapsed();
    let (text, path) = gateway.config()?;
    let config = Config::parse(&text, &path)?;
    let limit = u64::try_from(Memory::of(&config, &config.engine(EngineOptions::default())?).total_mib())?;
    let metrics = gateway.metrics()?;
    let mut refused = String::new();
    for (line, value) in metrics.lines().filter(|(line, value)| line.contains("_refused_total") && *value > 0.0) {
        _ = write!(refused, "{line} {value} ");
    }
    let mib = |bytes: u64| bytes >> 20;
    let is_bounded = mib(most) <= limit;
    Ok(vec![
        Row::judged(
            format!(
                "memory while {} MB came on every topic in {:.0} s, engines at idle priority",
                sent / 1_000_000,
                lasted.as_secs_f64()
            ),
            format!("at most the {limit} MiB of all limits together"),
            format!("{} MiB, {} MiB before", mib(most), mib(before)),
            is_bounded,
        ),
        Row::judged(
            "what came in vain is counted",
            "messages, by reason",
            refused.clone(),
            refused.contains("unreadable"),
        ),
        Row::timed(
            size,
            "an answer of /v1/share meanwhile",
            "at most 2 s",
            format!("{:.2} s", slowest.as_secs_f64()),
            slowest < Duration::from_secs(2),
        ),
    ])
}

/// Has the engines run only where nothing else wants to, so that cells wait for them.
fn idle_engines(process: &str) -> Result<()> {
    let mut engines = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?;
        if fs::read_to_string(thread.path().join("comm"))?.starts_with("engine") {
            let done = Command::new("chrt").args(["--idle", "--pid", "0"]).arg(thread.file_name()).status()?;
            ensure!(done.success(), "chrt does not change an engine's priority");
            engines += 1;
        }
    }
    ensure!(engines > 0, "the gateway has no thread that is named engine");
    Ok(())
}
