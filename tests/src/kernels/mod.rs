//! The product on kernels that people run: Debian's cloud kernels under qemu without KVM.
//!
//! The guest's clock counts instructions (`-icount`), and what it waits for costs nothing. A transfer therefore takes the same time to a
//! fraction of a millisecond however busy the machine is. qemu 7.2 emulates cmpxchg16b wrongly, hence `-cx16`.

mod command;
pub mod fetch;
pub mod guest;
pub mod image;
mod page;
mod stage;
mod trial;

pub use command::{Arguments, run};

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Where the guest writes its findings: a serial port of its own, since the kernel writes to the first as well.
const FINDINGS: &str = "/dev/ttyS1";

/// What a trial found: one line of JSON each.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "finding")]
enum Finding {
    /// Which kernel runs.
    Kernel { release: String },
    /// A gateway under one capture backend.
    Gateway {
        backend: String,
        /// The backend that it reads with, or why it did not start.
        reads: Outcome,
        /// Its own line about its sandbox.
        sandbox: String,
    },
    /// An agent under one variant.
    Agent {
        variant: String,
        /// Seconds until it had subscribed to the gateway and what is in force then, or the agent's own sentence.
        up: Outcome,
        /// What this kernel does not take, in the agent's sentences.
        lacks: Vec<String>,
    },
    /// What an agent printed from which something was taken.
    Refusal { without: String, sentence: Outcome },
    /// Transfers of one kind of host, before the agent ran and with it.
    Transfers {
        /// Congestion control and qdisc.
        host: String,
        family: u8,
        plain: Times,
        advised: Times,
        /// Connections that the agent counted as started.
        started: u64,
        /// Of these, how many on BBR with rate and estimate.
        seeded: u64,
        /// All of the agent's counters that moved.
        events: String,
        /// Congestion control, window and threshold in segments, as `ss` shows them in the first flight.
        first_flight: String,
    },
    /// What an agent left behind.
    Left {
        after: String,
        /// Nothing where this is empty.
        left: Vec<String>,
    },
    /// The same transfer again and again.
    Repeated { times_us: Vec<u64> },
    /// The trial could not go on.
    Broken { step: String, why: String },
}

/// What happened, or the sentence of what went wrong.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Good(String),
    Bad(String),
}

/// Times of transfers from the SYN to the last byte, in microseconds.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Times {
    /// Of 100 KB.
    short_us: Vec<u64>,
    /// Of 1 MB.
    long_us: Vec<u64>,
}

/// What a command printed; an error holds its last words.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run `{program}`"))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program}` failed: {}", words.trim().lines().last().unwrap_or("without a word"));
    Ok(output.stdout)
}
