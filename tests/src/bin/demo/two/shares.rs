//! What each of two gateways saw by itself, and the share that each makes of both.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use serde_json::Value;
use spand_tests::product::{Api, Gateway, interrupt};

/// One network as both gateways have it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Share {
    /// The network.
    pub(crate) network: IpNet,
    /// The share in bytes, at the first and the second; `None` without an estimate.
    pub(crate) bytes: [Option<f64>; 2],
    /// Clients of the newest window samples that each took at its own tap: their last part.
    pub(crate) clients: [BTreeSet<String>; 2],
}

impl Share {
    /// Whether both have the same to the last bit.
    pub(crate) fn is_equal(&self) -> bool {
        let [first, second] = self.bytes.map(|bytes| bytes.map(f64::to_bits));
        first.is_some() && first == second
    }

    /// Whether each took samples, and none of a client of the other's.
    pub(crate) fn is_divided(&self) -> bool {
        let [first, second] = &self.clients;
        !first.is_empty() && !second.is_empty() && first.is_disjoint(second)
    }
}

/// Waits until both have the same share for every network, or for this long. While packets come they differ by what came last: a cell of a
/// bucket is whole only when that is over.
pub(crate) fn wait_equal(gateways: &mut [Gateway; 2], networks: &[IpNet], patience: Duration) -> Result<Vec<Share>> {
    let begin = Instant::now();
    loop {
        for gateway in gateways.iter_mut() {
            gateway.check()?;
        }
        let shares = read(gateways, networks)?;
        if shares.iter().all(Share::is_equal) || begin.elapsed() > patience {
            return Ok(shares);
        }
        pause()?;
    }
}

/// Waits a little, unless somebody interrupts.
pub(crate) fn pause() -> Result<()> {
    if interrupt::came() {
        bail!("interrupted");
    }
    std::thread::sleep(Duration::from_millis(100));
    Ok(())
}

/// Both gateways' shares and samples at this moment.
pub(crate) fn read(gateways: &[Gateway; 2], networks: &[IpNet]) -> Result<Vec<Share>> {
    let [first, second] = gateways.each_ref().map(Gateway::api);
    let bytes = [estimates(first, networks)?, estimates(second, networks)?];
    let [of_first, of_second] = &bytes;
    let both = of_first.iter().zip(of_second).zip(networks);
    both.map(|((first_bytes, second_bytes), network)| {
        let clients = [clients(first, *network)?, clients(second, *network)?];
        Ok(Share { network: *network, bytes: [*first_bytes, *second_bytes], clients })
    })
    .collect()
}

/// A gateway's shares for networks, in bytes.
pub(crate) fn estimates(api: &Api, networks: &[IpNet]) -> Result<Vec<Option<f64>>> {
    let listed = api.json("/v1/networks")?;
    let listed = listed.get("networks").and_then(Value::as_array).context("/v1/networks holds no list of networks")?;
    let of = |network: &IpNet| {
        let name = network.to_string();
        let entry = listed.iter().find(|entry| entry.get("prefix").and_then(Value::as_str) == Some(name.as_str()));
        entry.and_then(|entry| entry.get("wc_bytes")?.as_f64())
    };
    Ok(networks.iter().map(of).collect())
}

/// Clients of the newest window samples that a gateway took itself: other gateways' have no address.
fn clients(api: &Api, network: IpNet) -> Result<BTreeSet<String>> {
    let history = api.json(&format!("/v1/history/{network}"))?;
    let samples = history.get("samples").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let remotes = samples.iter().filter_map(|sample| sample.get("remote")?.as_str()?.parse::<IpAddr>().ok());
    let last = |remote: IpAddr| match remote {
        IpAddr::V4(_) => remote.to_string().rsplit('.').next().map(|end| format!(".{end}")),
        IpAddr::V6(_) => remote.to_string().rsplit(':').next().map(|end| format!(":{end}")),
    };
    Ok(remotes.filter_map(last).collect())
}

/// Prints both parts, and the shares.
pub(crate) fn print(shares: &[Share]) {
    println!(
        "  {:<18} {:>20} {:>12}   {:>20} {:>20}",
        "network", "clients at gateway 1", "gateway 2", "bytes at gateway 1", "gateway 2"
    );
    for share in shares {
        let [first, second] = share.clients.each_ref().map(|clients| {
            let clients: Vec<&str> = clients.iter().map(String::as_str).collect();
            if clients.is_empty() { "none".to_owned() } else { clients.join(" ") }
        });
        let [at_first, at_second] =
            share.bytes.map(|bytes| bytes.map_or("none".to_owned(), |bytes| format!("{bytes:?}")));
        let verdict = if share.is_equal() { "the same" } else { "NOT the same" };
        println!(
            "  {:<18} {first:>20} {second:>12}   {at_first:>20} {at_second:>20}  {verdict}",
            share.network.to_string()
        );
    }
}

/// What a gateway's tap gave it, and what it got of the other one.
pub(crate) fn part(api: &Api) -> Result<String> {
    let (traffic, share) = (api.json("/v1/traffic")?, api.json("/v1/share")?);
    let count = |document: &Value, name: &str| document.get(name).and_then(Value::as_u64).unwrap_or(0);
    Ok(format!(
        "{} packets and {} window samples at its own tap, {} cells of the other gateway",
        count(&traffic, "packets"),
        count(&traffic, "window_samples"),
        count(&share, "cells_taken")
    ))
}

/// Cells of others that count at a gateway.
pub(crate) fn cells_taken(api: &Api) -> Result<u64> {
    Ok(api.json("/v1/share")?.get("cells_taken").and_then(Value::as_u64).unwrap_or(0))
}

/// Other gateways that one hears.
pub(crate) fn members(api: &Api) -> Result<usize> {
    Ok(api.json("/v1/share")?.get("members").and_then(Value::as_array).map_or(0, Vec::len))
}
