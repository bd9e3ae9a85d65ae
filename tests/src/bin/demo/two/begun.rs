//! Transfers, and with how many segments each of them began.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use spand_tests::lab::tap::Tap;
use spand_tests::lab::topology::{SERVER_DEVICE, Topology};
use spand_tests::lab::wire;

use crate::load::{self, Timed};

/// Size of the transfers, the same as in the plot of the other demo.
pub(crate) const BYTES: u64 = crate::sequence::BYTES;

/// Transfers, and the segments of the first flight of each.
pub(crate) type Begun = Vec<(Timed, u64)>;

/// `rounds` transfers to each network, one after the other.
pub(crate) fn in_turn(lab: &Topology, rounds: usize) -> Result<Vec<Timed>> {
    let mut timed = Vec::new();
    for turn in 0..rounds {
        timed.extend(load::one_each(lab, turn, BYTES)?.into_iter().map(|(one, _)| one));
    }
    Ok(timed)
}

/// Does transfers while the server's interface is recorded, and counts on the wire with how many segments each began.
pub(crate) fn recorded(
    lab: &Topology,
    folder: &Path,
    name: &str,
    work: impl FnOnce() -> Result<Vec<Timed>>,
) -> Result<Begun> {
    let file = folder.join(format!("{name}.pcap"));
    let tap = Tap::start_at_host(&lab.server, SERVER_DEVICE, &file)?;
    let timed = work()?;
    let counts = tap.finish()?;
    if counts.dropped > 0 {
        bail!("the recording {} has holes: the kernel dropped {} packets", file.display(), counts.dropped);
    }
    let senders = wire::senders(&wire::read(&file)?, lab.port);
    let flight = |one: Timed| {
        let sender = senders.get(&one.flow).with_context(|| format!("{} is not in the recording", one.flow.remote))?;
        Ok((one, sender.first_flight))
    };
    timed.into_iter().map(flight).collect()
}

/// Prints for each network first flights and times of transfers without and with advice.
pub(crate) fn print(granted: &[(IpNet, u32)], arms: [&Begun; 2]) {
    println!(
        "  {:<18} {:>8}   {:<24} {:<24} median completion",
        "network", "granted", "first flights without", "with advice"
    );
    for (network, window) in granted {
        let [plain, advised] = arms.map(|arm| {
            let here: Vec<&(Timed, u64)> = arm.iter().filter(|(one, _)| one.network == *network).collect();
            let flights: Vec<String> = here.iter().map(|(_, flight)| flight.to_string()).collect();
            let mut times: Vec<Duration> = here.iter().map(|(one, _)| one.completion).collect();
            times.sort_unstable();
            (flights.join(" "), times.get(times.len() / 2).copied().unwrap_or_default().as_secs_f64() * 1e3)
        });
        println!(
            "  {:<18} {window:>8}   {:<24} {:<24} {:.0} ms, {:.0} ms",
            network.to_string(),
            plain.0,
            advised.0,
            plain.1,
            advised.1
        );
    }
}

/// Networks and first flights alone.
pub(crate) fn flights(begun: &Begun) -> Vec<(IpNet, u64)> {
    begun.iter().map(|(timed, flight)| (timed.network, *flight)).collect()
}

/// First flights in words, the smallest first.
pub(crate) fn words(flights: &[(IpNet, u64)]) -> String {
    let mut flights: Vec<u64> = flights.iter().map(|(_, flight)| *flight).collect();
    flights.sort_unstable();
    flights.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}
