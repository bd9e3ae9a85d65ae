//! All servers away for long under traffic, and a gateway that starts again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::standing::{Standing, in_time, restarted};
use super::{Programs, Row, Size};
use crate::cluster::gateway::{grpc, port};
use crate::cluster::traffic::by_connection;
use crate::ending::wait;
use crate::memory::resident_bytes;
use crate::starts::subscriber::{self, Target};
use crate::starts::{Ledger, at_per_mille};

/// Seconds in which each network gets one SYN, at the first gateway: more would use up its budget, as no SYN is answered.
const TURN_S: usize = 25;
const HOSTS: usize = 20;

/// Runs it.
///
/// # Errors
/// Where a gateway or a server fails otherwise.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let (before, away) = match size {
        Size::Full => (Duration::from_secs(60), Duration::from_secs(600)),
        Size::Quick => (Duration::from_secs(6), Duration::from_secs(12)),
    };
    let Some(mut standing) = Standing::start(programs, size, "[log]\nfilter = \"warn\"\n", by_connection)? else {
        return Ok(Vec::new());
    };
    let seconds = usize::try_from((before + away).as_secs())? + 2;
    let networks = standing.networks;
    let rate = u32::try_from(networks / TURN_S)?;
    let ledger = Arc::new(Ledger::new(seconds * rate as usize));
    let target = Target { grpc: grpc(1), networks, at_once: 0 };
    let subscribers = subscriber::start(&standing.site.namespace, HOSTS, target, &ledger)?;
    let sending = Arc::clone(&ledger);
    let sender =
        standing.site.namespace.spawn("mirror", move || subscriber::send(&port(1), HOSTS, networks, rate, &sending))?;
    wait("with servers", before);
    let went = Instant::now();
    standing.listeners.iter().for_each(crate::cluster::listener::Listener::begin);
    for server in standing.site.servers.all() {
        server.kill()?;
    }
    // What is known of others ages out meanwhile; memory is looked at when it has.
    wait("servers away", away / 2);
    let half: Vec<u64> = resident(&standing)?;
    wait("servers still away", away.saturating_sub(away / 2));
    let end: Vec<u64> = resident(&standing)?;
    let (withdrawn, ended) = standing.lost();
    sender.join().map_err(|_| anyhow!("the sender panicked"))??;
    subscribers.stop();
    standing.end_traffic()?;

    let back = Instant::now();
    let names: Vec<String> = standing.site.servers.all().iter().map(|server| server.name.clone()).collect();
    for name in &names {
        standing.site.start_server(name)?;
    }
    let equal = standing.agree(Duration::from_secs(60))?;
    let took = back.elapsed();
    let mut rows = start_rows(size, &ledger, went);
    let mib = |bytes: &[u64]| bytes.iter().map(|bytes| (bytes >> 20).to_string()).collect::<Vec<_>>().join(", ");
    let grown = half.iter().zip(&end).map(|(half, end)| *end as f64 / *half as f64).fold(0.0, f64::max);
    rows.push(Row::timed(
        size,
        format!("memory with the servers away: after {} s, after {} s", away.as_secs() / 2, away.as_secs()),
        "flat",
        format!("{} MiB; {} MiB: {grown:.3} times at most", mib(&half), mib(&end)),
        grown <= 1.05,
    ));
    // After five minutes a gateway is left with what it saw itself, which for some networks is too little.
    let may_withdraw = size == Size::Full;
    rows.push(Row::judged(
        "servers away: withdrawals to hosts; streams that ended",
        if may_withdraw { "those of what aged; 0" } else { "0; 0" },
        format!("{withdrawn}; {ended}"),
        ended == 0 && (may_withdraw || withdrawn == 0),
    ));
    let what = ("all cells after the servers' return", 15);
    rows.push(in_time(size, what, &equal, (took, "the servers' start")));
    rows.push(restarted(&mut standing.site.gateways, size)?);
    Ok(rows)
}

fn resident(standing: &Standing) -> Result<Vec<u64>> {
    standing.site.gateways.iter().map(|gateway| resident_bytes(&gateway.pid().to_string())).collect()
}

fn start_rows(size: Size, ledger: &Ledger, went: Instant) -> Vec<Row> {
    let (with, lost_with) = ledger.delays(|at| at < went);
    let (without, lost_without) = ledger.delays(|at| at >= went);
    let ms = |delays: &[Duration], per_mille| at_per_mille(delays, per_mille).as_secs_f64() * 1e3;
    let (median, median_away) = (ms(&with, 500), ms(&without, 500));
    let figure = format!(
        "{median:.3} ms with servers, {median_away:.3} ms without; p99 {:.3} and {:.3} ms; {} and {} starts, {lost_with} and {lost_without} lost",
        ms(&with, 990),
        ms(&without, 990),
        with.len(),
        without.len()
    );
    vec![Row::timed(size, "starts with the servers away: median", "within 10 %", figure, median_away <= 1.1 * median)]
}
