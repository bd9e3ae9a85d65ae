//! What each capture backend takes from a live interface: a sender as fast as one core can, a reader on another.
//!
//! ```text
//! make capture-bench ARGS="--seconds 60 --backends af_packet"
//! ```
//!
//! Sender and reader are the ends of a veth pair in a namespace of their own. The kernel delivers a frame to the reader's
//! socket on the sender's core, so what is measured is what one core can send and deliver, and whether the reader's core
//! keeps up. Frames that were offered and neither read nor counted as lost by anyone are shown as `unknown`.

mod frames;
mod measure;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use spand_tests::lab::link::{End, veth};
use spand_tests::lab::namespace::Namespace;

use self::frames::{LONGEST_BYTES, SHORTEST_BYTES, Sent};
use self::measure::{Row, backend, in_process, measure, stay_on, with_gateway};

const NEAR: &str = "near0";
const FAR: &str = "far0";
const READER_CPU: usize = 1;
/// Frames a second where the delay of single packets is measured.
const SINGLE_RATE: u32 = 200;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Seconds of each row
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Frame lengths in bytes, without the checksum
    #[arg(long, value_delimiter = ',', default_values_t = [SHORTEST_BYTES, LONGEST_BYTES])]
    sizes: Vec<usize>,
    /// TCP connections
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: u32,
    /// Backends
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Way::Libpcap, Way::AfPacket])]
    backends: Vec<Way>,
    /// What reads
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Load::Read, Load::Engine, Load::Gateway])]
    loads: Vec<Load>,
    /// Frames a second; as many as there can be where it is not given
    #[arg(long)]
    rate: Option<u32>,
    /// Let the reader's core deliver the frames (receive packet steering), through its backlog
    #[arg(long)]
    steer: bool,
    /// The gateway's readers of the interface
    #[arg(long, default_value_t = 1)]
    readers: u16,
    /// The gateway's engines side by side
    #[arg(long, default_value_t = 1)]
    engines: u32,
    /// Destinations a second that the gateway is asked about meanwhile
    #[arg(long)]
    queries: Option<u32>,
    /// Measure the delay of single packets instead
    #[arg(long)]
    delay: bool,
    /// PF_RING's library
    #[arg(long, env = "SPAND_PFRING_LIB", default_value = "libpfring.so")]
    pf_ring_library: PathBuf,
    /// The gateway; beside this program where it is not given
    #[arg(long)]
    gateway: Option<PathBuf>,
}

/// A backend, and the device by its own naming.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Way {
    AfPacket,
    Libpcap,
    /// PF_RING's `pcap:` module
    PfRing,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Load {
    /// A loop that counts
    Read,
    /// The engine in the same thread
    Engine,
    /// The gateway's process, everything on
    Gateway,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    for size in &arguments.sizes {
        ensure!(
            (SHORTEST_BYTES..=LONGEST_BYTES).contains(size),
            "frames have {SHORTEST_BYTES} to {LONGEST_BYTES} bytes"
        );
    }
    // The gateway inherits this; the sender moves away.
    stay_on(READER_CPU).context("this needs two cores")?;
    let namespace = Namespace::create("capture")?;
    namespace.sysctl("ipv6/conf/default/disable_ipv6", "1")?;
    let end = |device, station| End { namespace: &namespace, device, station };
    veth(end(NEAR, 1), end(FAR, 2))?;
    if arguments.steer {
        steer(&namespace)?;
    }
    if arguments.delay {
        return delays(arguments, &namespace);
    }
    println!(
        "| backend | reads | frame (B) | offered (M/s) | offered | read | lost: ring | backlog | queue | unknown | CPU of the reader (ns/packet) | segments |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for &size in &arguments.sizes {
        for &backend in &arguments.backends {
            for &load in &arguments.loads {
                let (sent, row) = match load {
                    Load::Gateway => with_gateway(arguments, &namespace, backend, size)?,
                    load => in_process(arguments, &namespace, backend, load, size)?,
                };
                print(backend, load, size, sent, &row);
            }
        }
    }
    Ok(())
}

/// From the kernel's time stamp of a packet that comes alone to the packet in the reader's hands.
fn delays(arguments: &Arguments, namespace: &Namespace) -> Result<()> {
    println!("| backend | packets | p50 (ms) | p99 | max |\n| --- | --- | --- | --- | --- |");
    for &way in &arguments.backends {
        let time = Duration::from_secs(arguments.seconds);
        let (_, read) = measure(arguments, namespace, way, SHORTEST_BYTES, time, Some(SINGLE_RATE), false)?;
        let at = |per_cent: usize| {
            let index = (read.delays.len() * per_cent / 100).min(read.delays.len().saturating_sub(1));
            read.delays.get(index).map_or(f64::NAN, |delay| delay.as_secs_f64() * 1e3)
        };
        println!("| {} | {} | {:.3} | {:.3} | {:.3} |", backend(way), read.delays.len(), at(50), at(99), at(100));
    }
    Ok(())
}

fn print(way: Way, load: Load, size: usize, sent: Sent, row: &Row) {
    let known = |count: Option<u64>| count.map_or_else(|| "?".to_owned(), |count| count.to_string());
    let accounted = row.read + row.lost_ring.unwrap_or(0) + row.lost_backlog.unwrap_or(0) + row.lost_queue;
    let load = match load {
        Load::Read => "loop",
        Load::Engine => "engine, same thread",
        Load::Gateway => "gateway",
    };
    println!(
        "| {} | {load} | {size} | {:.3} | {} | {} | {} | {} | {} | {} | {:.0} | {} |",
        backend(way),
        sent.frames as f64 / sent.took.as_secs_f64() / 1e6,
        sent.frames,
        row.read,
        known(row.lost_ring),
        known(row.lost_backlog),
        row.lost_queue,
        i128::from(sent.frames) - i128::from(accounted),
        row.processor.as_nanos() as f64 / row.read.max(1) as f64,
        known(row.segments),
    );
}

/// Hands what arrives at the far end to the reader's core.
fn steer(namespace: &Namespace) -> Result<()> {
    namespace.enter(|| {
        // `/sys` shows the interfaces of the namespace it is mounted in: this thread gets one of its own.
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
        mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)?;
        let cores = format!("{:x}", 1 << READER_CPU);
        let path = format!("/sys/class/net/{FAR}/queues/rx-0/rps_cpus");
        std::fs::write(&path, cores).with_context(|| format!("cannot write {path}"))
    })
}
