//! The connections whose first flights are looked at, and what the agent says of each.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use spand_agent::control::Explained;

use super::Planned;
use crate::benefit::scenario::{Arm, Scenario, Work};
use crate::benefit::stage::Stage;
use crate::benefit::work::{Asked, Done, Progress, in_lanes};
use crate::lab::traffic::{Client, Plan, state_size};
use crate::lab::truth::FlowId;
use crate::product::interrupt;

/// Makes the connections of a scenario of flights, one at a time on each path.
pub(in crate::benefit) fn connect(
    stage: &Stage,
    scenario: &Scenario,
    progress: &Progress,
) -> Result<(Done, Vec<Planned>)> {
    let Work::Flights { bytes, connections, active } = scenario.work else { bail!("no flights") };
    progress.planned.store(connections, std::sync::atomic::Ordering::Relaxed);
    let each = connections / u32::try_from(scenario.sites.len())?.max(1);
    let sinks = if active { sinks(stage)? } else { Vec::new() };
    let all = Mutex::new((Done::default(), Vec::new()));
    let lane = |sites: Vec<usize>| {
        for (index, round) in sites.into_iter().flat_map(|index| (0..each).map(move |round| (index, round))) {
            if interrupt::came() {
                bail!("interrupted");
            }
            let site = scenario.sites.get(index).context("a site of this scenario")?;
            let bytes = bytes.get(round as usize % bytes.len().max(1)).copied().context("a size")?;
            let network = stage.lab.networks.get(index).context("a network for each site")?;
            let client = *network.addresses.first().context("a client for each site")?;
            let window = || stage.explained(index, Some(bytes), site.path.mss).map(|one| window(&one));
            let (before, rate) = window()?;
            let server = stage.server(Arm::Product)?;
            let flow = if active {
                open(stage, SocketAddr::new(client, server.port()), bytes)
            } else {
                let connected = network.namespace.enter(|| Client::connect(client, server));
                connected
                    .and_then(|mut connected| connected.ask(&Plan::transfer(Plan::AS_THE_HOST, bytes)))
                    .map(|got| FlowId { local: server, remote: got.local })
            };
            let (after, _) = window()?;
            thread::sleep(site.path.rtt());
            progress.done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut all = all.lock();
            let (done, planned) = &mut *all;
            match flow {
                Ok(flow) => {
                    done.asked.push(Asked { site: index, client: 0, round, bytes, flow, offset: 0 });
                    planned.push(Planned { flow, bytes, mss: site.path.mss, window: (before, after), rate });
                }
                Err(_) => done.failed += 1,
            }
        }
        Ok(())
    };
    match &stage.cgroup {
        // Sockets that the server opens belong to the group that this process is in at that moment.
        Some(cgroup) if active => cgroup.enter(|| in_lanes(scenario, lane))?,
        _ => in_lanes(scenario, lane)?,
    }
    drop(sinks);
    Ok(all.into_inner())
}

/// The window that the agent gives a connection of the size that it was asked about, and the rate after the burst.
fn window(explained: &Explained) -> (u32, Option<u32>) {
    let step_text = |name: &str| explained.steps.iter().find(|step| step.name == name).map(|step| step.text.as_str());
    // A route's window is the same for all sizes; programs compute it for each, as these steps say.
    if explained.method == spand_agent::config::ApplyMethod::Route || !explained.on_advice {
        return (explained.cwnd_segments, None);
    }
    let window = step_text("start").and_then(number_in).unwrap_or(explained.cwnd_segments);
    let rate = step_text("pacing").and_then(rate_in);
    (window, rate)
}

/// The first number of a sentence.
fn number_in(text: &str) -> Option<u32> {
    let digits = text.split(|letter: char| !letter.is_ascii_digit()).find(|part| !part.is_empty())?;
    digits.parse().ok()
}

/// The rate of a sentence in bytes a second.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
fn rate_in(text: &str) -> Option<u32> {
    let (rate, _) = text.split_once(" at ")?.1.split_once(" Mbit/s")?;
    rate.parse().ok().map(|mbit: f64| (mbit * 125_000.0).round() as u32)
}

/// Listens in every client network, at the server's port: takes whatever comes, and closes after the other end did.
fn sinks(stage: &Stage) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for network in &stage.lab.networks {
        let address = *network.addresses.first().context("a client for each site")?;
        let port = stage.lab.port;
        let listener =
            network.namespace.enter(|| TcpListener::bind((address, port)).context("cannot listen as a client"))?;
        let accepting = listener.try_clone().context("cannot share a listener")?;
        thread::Builder::new().name("sink".to_owned()).spawn(move || {
            // Ends with the process; one connection at a time comes to each network.
            for mut stream in accepting.incoming().flatten() {
                drop(std::io::copy(&mut stream, &mut std::io::sink()));
            }
        })?;
        listeners.push(listener);
    }
    Ok(listeners)
}

/// A connection opened by the server, and one transfer on it.
fn open(stage: &Stage, client: SocketAddr, bytes: u64) -> Result<FlowId> {
    let mut stream = stage.lab.server.enter(|| TcpStream::connect(client).context("cannot connect to a client"))?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30)))?;
    let flow = FlowId { local: stream.local_addr()?, remote: client };
    state_size(&stream, bytes);
    stream.write_all(&vec![b'x'; usize::try_from(bytes)?])?;
    stream.shutdown(Shutdown::Write)?;
    // The other end closes when it has everything.
    stream.read_to_end(&mut Vec::new())?;
    Ok(flow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_in_a_sentence() {
        assert_eq!(number_in("window 30 segments, threshold 41 segments"), Some(30));
        assert_eq!(number_in("none"), None);
        assert_eq!(rate_in("10 segments unpaced, the rest at 1.396 Mbit/s (RTT 41.500 ms)"), Some(174_500));
        assert_eq!(rate_in("10 segments unpaced"), None);
    }
}
