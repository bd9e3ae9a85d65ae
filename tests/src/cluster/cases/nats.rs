//! What the servers take for a byte, and the highest rate of cells that they carry without a growing queue.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use spand_cells::GatewayId;
use spand_share::nats::NatsConfig;

use super::{Programs, Row, Size};
use crate::cluster::offer::{Offer, Offered};
use crate::cluster::site::Site;
use crate::ending::wait;
use crate::memory::threads_time;

/// Gateways that are made up; the first one is real.
const MADE: [u16; 3] = [2, 3, 4];
/// Networks that they see: at the higher rates each more than once in a bucket, which is the gateway's matter and not the servers'.
const NETWORKS: u32 = 100_000;
/// What is under way at the end of a step has this long.
const SETTLES: Duration = Duration::from_secs(3);
/// CPU of all servers for a byte of a message, in nanoseconds.
const MOST_NS: f64 = 20.0;

/// What one rate came to.
struct Step {
    rate: u64,
    cells: u64,
    bytes: u64,
    received: f64,
    refused: u64,
    dropped: f64,
    cpu: Duration,
    lasted: Duration,
}

/// Runs it.
///
/// # Errors
/// Where a gateway or a server fails.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let (servers, rates, held): (usize, &[u64], u64) = match size {
        Size::Full => (3, &[0, 2_000, 5_000, 10_000, 20_000, 30_000, 40_000, 60_000, 80_000], 15),
        Size::Quick => (1, &[0, 1_000], 4),
    };
    let Some(mut site) = Site::start(programs, servers, 1, "[log]\nfilter = \"warn\"\n")? else {
        return Ok(Vec::new());
    };
    let urls = site.servers.urls();
    let name = site.name.clone();
    let offer = Offer::start(&site.namespace, MADE.to_vec(), NETWORKS, move |number| NatsConfig {
        replicas: servers,
        stream_bytes: 200 << 20,
        ..NatsConfig::new(urls.clone(), "main", &name, GatewayId(number))
    })?;
    site.hear(u16::try_from(MADE.len())?)?;
    let mut steps: Vec<Step> = Vec::new();
    for rate in rates {
        let step = hold(&mut site, &offer, *rate, Duration::from_secs(held))?;
        let is_held = step.is_held();
        steps.push(step);
        if !is_held {
            break;
        }
    }
    offer.stop()?;
    let idle = steps.first().context("a step without cells")?;
    let idle = idle.cpu.as_secs_f64() / idle.lasted.as_secs_f64();
    let best = steps.iter().rev().find(|step| step.rate > 0 && step.is_held());
    let mut rows: Vec<Row> = steps.iter().map(|step| Row::stated(step.name(), step.figure(idle))).collect();
    let best = best.with_context(|| format!("not even {} cells/s are carried", rates.get(1).unwrap_or(&0)))?;
    rows.push(Row::stated("highest rate without a growing queue, of those tried", format!("{} cells/s", best.rate)));
    let each = best.nanos_a_byte(0.0);
    rows.push(Row::timed(
        size,
        format!("CPU of {servers} servers for a byte, at that rate"),
        "<= 20 ns",
        format!("{each:.1} ns, {:.1} ns without what they take idle", best.nanos_a_byte(idle)),
        each <= MOST_NS,
    ));
    Ok(rows)
}

fn hold(site: &mut Site, offer: &Offer, rate: u64, length: Duration) -> Result<Step> {
    let metrics = site.gateways.first().context("a gateway")?.metrics()?;
    let (Offered { cells, bytes, refused }, cpu, begun) = (offer.offered(), cpu_time(site)?, Instant::now());
    offer.set_rate(rate);
    wait(&format!("nats: {rate} cells/s"), length);
    offer.set_rate(0);
    wait(&format!("nats: {rate} cells/s: the last ones"), SETTLES);
    let lasted = begun.elapsed();
    let (now, later) = (offer.offered(), site.gateways.first().context("a gateway")?.metrics()?);
    let cpu = cpu_time(site)?.saturating_sub(cpu);
    let grown = |name: &str| later.sum(name) - metrics.sum(name);
    ensure!(rate == 0 || now.cells > cells, "no cell was offered: {}", site.gateways[0].log());
    Ok(Step {
        rate,
        cells: now.cells - cells,
        bytes: now.bytes - bytes,
        received: grown("spand_share_cells_received_total"),
        refused: now.refused - refused,
        dropped: grown("spand_share_cells_dropped_total"),
        cpu,
        lasted,
    })
}

/// Of all servers, so far.
fn cpu_time(site: &mut Site) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    for server in site.servers.all() {
        let pid = server.pid().with_context(|| format!("{} does not run", server.name))?;
        sum += threads_time(&pid.to_string())?.values().sum::<Duration>();
    }
    Ok(sum)
}

impl Step {
    /// Whether all that was offered arrived, and what was asked for was offered.
    fn is_held(&self) -> bool {
        let asked = self.rate as f64 * self.lasted.saturating_sub(SETTLES).as_secs_f64();
        self.refused == 0 && self.received >= self.cells as f64 && self.cells as f64 >= 0.97 * asked
    }

    /// CPU for a byte, without `idle` seconds of it a second.
    fn nanos_a_byte(&self, idle: f64) -> f64 {
        let spent = self.cpu.as_secs_f64() - idle * self.lasted.as_secs_f64();
        spent * 1e9 / self.bytes.max(1) as f64
    }

    fn name(&self) -> String {
        if self.rate == 0 { "servers idle".to_owned() } else { format!("{} cells/s", self.rate) }
    }

    fn figure(&self, idle: f64) -> String {
        if self.rate == 0 {
            return format!("{:.2} % of a core", 100.0 * idle);
        }
        format!(
            "{} cells offered in {} KB, {:.0} arrived, {} messages had no room, {:.0} cells none at the gateway; {:.1} ns a byte",
            self.cells,
            self.bytes / 1_000,
            self.received,
            self.refused,
            self.dropped,
            self.nanos_a_byte(0.0)
        )
    }
}
