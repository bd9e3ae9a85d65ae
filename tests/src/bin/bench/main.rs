//! Benchmarks of the product's cost and speed, one subcommand each (`make bench`). A figure is a ratio against something in the same run
//! wherever there is something to compare with; none of them runs in CI.

mod advice;
mod bpf;
mod capture;
mod cells;
mod day;
mod engines;
mod latency;
mod push;
mod replay;
mod scale;
mod soak;
mod store;
mod thinning;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use spand_tests::ending::{arguments, exit_code};

#[derive(Debug, Parser)]
#[command(about = "Measures what the product costs and how fast it is")]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// How long an application waits for a start, in process and over the socket
    Advice(advice::Arguments),
    /// CPU time of the agent's kernel programs (root)
    Bpf(bpf::Arguments),
    /// What each capture backend takes from a live interface (root)
    Capture(capture::Arguments),
    /// What a cell of another gateway costs
    Cells(cells::Arguments),
    /// The engine's memory over a day of traffic
    Day(day::Arguments),
    /// Engines side by side, a bare loop, and tcptrace
    Engines(engines::Arguments),
    /// The way of a start, from the SYN on the wire to the agent (root)
    Latency(latency::Arguments),
    /// The way of a push, from the SYN's frame to the subscriber
    Push(push::Arguments),
    /// Replay on one core, beside a bare parse
    Replay(replay::Arguments),
    /// 1,000 hosts and a million networks against the publisher
    Scale(scale::Arguments),
    /// What moves in a gateway under an hour of full load (root)
    Soak(soak::Arguments),
    /// How far the store is behind
    Store(store::Arguments),
    /// What following fewer connections does to shares, time and memory
    Thinning(thinning::Arguments),
}

fn main() -> ExitCode {
    exit_code(run(arguments::<Arguments>().bench))
}

fn run(bench: Bench) -> Result<ExitCode> {
    match bench {
        Bench::Advice(arguments) => return advice::run(&arguments),
        Bench::Push(arguments) => return push::run(&arguments),
        Bench::Store(arguments) => return store::run(&arguments),
        Bench::Bpf(arguments) => bpf::run(&arguments)?,
        Bench::Capture(arguments) => capture::run(&arguments)?,
        Bench::Cells(arguments) => cells::run(&arguments)?,
        Bench::Day(arguments) => day::run(&arguments)?,
        Bench::Engines(arguments) => engines::run(&arguments)?,
        Bench::Latency(arguments) => latency::run(&arguments)?,
        Bench::Replay(arguments) => replay::run(&arguments)?,
        Bench::Scale(arguments) => scale::run(arguments)?,
        Bench::Soak(arguments) => soak::run(&arguments)?,
        Bench::Thinning(arguments) => thinning::run(&arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}
