//! What a cell of another gateway costs, by part: its decoding, what keeps it, and what evaluates its network; and how much memory it takes.
//! Three gateways see each network in each bucket of a window, one to three connections each.
//!

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use nix::time::{ClockId, clock_gettime};
use spand_cells::{GatewayId, Pseudonyms, Shares, Sharing, TapId};
use spand_core::config::WindowConfig;
use spand_core::networks::NetworkTable;
use spand_proto::estimate::RuleKind;
use spand_proto::units::{Micros, Timestamp};
use spand_share::format::{Batch, read_batch};
use spand_tests::cluster::made::MadeCells;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Networks that all gateways see.
    #[arg(long, default_value_t = 5_000)]
    networks: u32,
    /// Other gateways.
    #[arg(long, default_value_t = 3)]
    gateways: u16,
}

const BUCKETS: u32 = 30;
const START: Timestamp = Timestamp::from_micros(1_700_000_005_000_000);

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { networks, gateways } = *arguments;
    let own = Sharing { gateway: GatewayId(1), tap: TapId(1), pseudonyms: Pseudonyms::new([3; 16]) };
    let room = NonZeroUsize::new(1_000_000).unwrap_or(NonZeroUsize::MIN);
    let mut table = NetworkTable::new(WindowConfig::default(), room, RuleKind::default(), 7).sharing(Some(own));
    let mut made = MadeCells::new((2..gateways + 2).collect(), networks);
    let before = resident_bytes()?;
    let [mut decoded, mut kept, mut evaluated] = [Duration::ZERO; 3];
    for bucket in 0..BUCKETS {
        let now = START.after(Micros::from_secs(10 * u64::from(bucket)));
        let messages = made.messages(u64::from(networks) * u64::from(gateways), now);
        let begun = clock()?;
        let batches: Vec<Batch> = messages.iter().map(|(_, message)| read_batch(message)).collect::<Result<_, _>>()?;
        let read = clock()?;
        for (network, cell) in batches.into_iter().flat_map(|batch| batch.cells) {
            ensure!(table.take_cell(network, cell, now).is_ok(), "a made-up cell is sound");
        }
        let taken = clock()?;
        // Every network is due within its look.
        for _ in 0..2 {
            table.expire(now.after(Micros::from_secs(4)), usize::MAX);
            while table.poll_event().is_some() {}
        }
        decoded += read.saturating_sub(begun);
        kept += taken.saturating_sub(read);
        evaluated += clock()?.saturating_sub(taken);
    }
    let cells = f64::from(networks) * f64::from(gateways) * f64::from(BUCKETS);
    for (part, time) in [("decoding", decoded), ("keeping", kept), ("evaluating", evaluated)] {
        println!("{part:<12} {:>7.2} us a cell", time.as_secs_f64() * 1e6 / cells);
    }
    let total = decoded + kept + evaluated;
    println!("{:<12} {:>7.2} us a cell", "all", total.as_secs_f64() * 1e6 / cells);
    let bytes = resident_bytes()?.saturating_sub(before) as f64;
    println!(
        "{:<12} {:>7.0} bytes a cell, {:.1} KB a network",
        "memory",
        bytes / cells,
        bytes / f64::from(networks) / 1e3
    );
    Ok(())
}

fn resident_bytes() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok(pages * 4_096)
}

/// Processor time, so that what else runs on the machine counts little.
fn clock() -> anyhow::Result<Duration> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?))
}
