//! Holds the engine's window samples against the kernel's own windows, over what `lab-capture` or the demo recorded.
//!
//! Reads each capture as a gateway would, applies the paper's two rules to the kernel's windows, and joins both by
//! connection, kind and time. Prints one row per capture and kind; what has no partner is counted, never left out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use ipnet::IpNet;
use spand_capture::{Next, PacketSource, open_file};
use spand_core::config::{EngineConfig, FlowReports};
use spand_core::engine::Engine;
use spand_core::estimate::NoEstimate;
use spand_core::event::Event;
use spand_core::networks::view::NetworkView;
use spand_core::types::{SampleReason, WindowSample};
use spand_core::wire::Frame;
use spand_proto::units::Timestamp;
use spand_tests::ending::{arguments, exit_code};
use spand_tests::lab::topology::{SERVER_V4, SERVER_V6};
use spand_tests::lab::truth::rules::{self, KernelSample, Reason};
use spand_tests::lab::truth::{FlowId, read_csv};

/// Two samples of one connection and kind this close in time are one. The kernel reports an end at its last
/// acknowledgement and the engine perhaps only after a timeout.
const LOSS_APART_NS: u64 = 300_000_000;
const END_APART_NS: u64 = 3_000_000_000;
/// The kernel's last row comes after the last packet.
const ROW_AFTER_PACKET_NS: u64 = 100_000_000;

#[derive(Debug, Parser)]
#[command(about = "Compares the engine's window samples with the kernel's")]
struct Arguments {
    /// Captures; each one's truth is `truth.csv` in the same folder
    #[arg(required = true)]
    captures: Vec<PathBuf>,
    /// Print every pair
    #[arg(long)]
    pairs: bool,
}

/// A sample from either side, in segments.
#[derive(Clone, Copy, Debug)]
struct Sample {
    flow: FlowId,
    time_ns: u64,
    segments: f64,
    reason: Reason,
}

fn main() -> ExitCode {
    exit_code(work())
}

fn work() -> Result<()> {
    let arguments: Arguments = arguments();
    println!(
        "{:<44} {:<11} {:>6} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8}",
        "capture", "kind", "kernel", "engine", "joined", "missed", "extra", "median", "p95", "kernel", "engine"
    );
    println!("{:>89} {:>8} {:>17}", "|error|", "|error|", "mean window");
    for capture in &arguments.captures {
        let Seen { samples: engine, networks, first_ns, last_ns } = of_engine(capture)?;
        let truth = capture.parent().unwrap_or(Path::new("")).join("truth.csv");
        let kernel: Vec<Sample> = rules::samples(&read_csv(&truth)?)
            .iter()
            // One record of truth may span several captures.
            .filter(|sample| (first_ns..=last_ns + ROW_AFTER_PACKET_NS).contains(&sample.time_ns))
            .map(of_kernel)
            .collect();
        for (reason, name, apart_ns) in [
            (Reason::Loss, "loss", LOSS_APART_NS),
            (Reason::End, "end", END_APART_NS),
            (Reason::SlowStartEnd, "end of a slow start", END_APART_NS),
            (Reason::LowerBound, "lower bound", END_APART_NS),
        ] {
            row(capture, name, &of(&kernel, reason), &of(&engine, reason), apart_ns, arguments.pairs);
        }
        for view in networks {
            network_row(&view, &kernel);
        }
    }
    Ok(())
}

fn of(samples: &[Sample], reason: Reason) -> Vec<Sample> {
    samples.iter().filter(|sample| sample.reason == reason).copied().collect()
}

fn row(capture: &Path, name: &str, kernel: &[Sample], engine: &[Sample], apart_ns: u64, print_pairs: bool) {
    let mut left = engine.to_vec();
    let mut errors = Vec::new();
    for truth in kernel {
        let nearest = left
            .iter()
            .enumerate()
            .filter(|(_, sample)| sample.flow == truth.flow)
            .map(|(at, sample)| (sample.time_ns.abs_diff(truth.time_ns), at))
            .min()
            .filter(|(distance_ns, _)| *distance_ns <= apart_ns);
        let partner = nearest.map(|(_, at)| left.swap_remove(at));
        if let Some(partner) = partner {
            errors.push((partner.segments - truth.segments) / truth.segments);
        }
        if print_pairs {
            let seen = partner.map_or("missed".to_owned(), |p| format!("{:.1}", p.segments));
            println!("  {name} {} {}: kernel {:.1}, engine {seen}", truth.time_ns, truth.flow.remote, truth.segments);
        }
    }
    if print_pairs {
        for extra in &left {
            println!("  {name} {} {}: extra, engine {:.1}", extra.time_ns, extra.flow.remote, extra.segments);
        }
    }
    let mut sizes: Vec<f64> = errors.iter().map(|error: &f64| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let at = |percent: usize| {
        let index = sizes.len().saturating_sub(1) * percent / 100;
        sizes.get(index).map_or("-".to_owned(), |error| format!("{:.1} %", error * 100.0))
    };
    println!(
        "{:<44} {name:<11} {:>6} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8}",
        capture.display().to_string(),
        kernel.len(),
        engine.len(),
        errors.len(),
        kernel.len() - errors.len(),
        left.len(),
        at(50),
        at(95),
        mean(kernel),
        mean(engine)
    );
}

fn mean(samples: &[Sample]) -> String {
    if samples.is_empty() {
        return "-".to_owned();
    }
    format!("{:.1}", samples.iter().map(|sample| sample.segments).sum::<f64>() / samples.len() as f64)
}

fn of_kernel(sample: &KernelSample) -> Sample {
    Sample { flow: sample.flow, time_ns: sample.time_ns, segments: sample.segments, reason: sample.reason }
}

/// The estimate of a network at the capture's end beside the mean of the kernel's windows.
fn network_row(view: &NetworkView, kernel: &[Sample]) {
    let prefix = view.network.prefix();
    let here: Vec<Sample> = kernel
        .iter()
        .filter(|sample| sample.reason != Reason::LowerBound && prefix.contains(&sample.flow.remote.ip()))
        .copied()
        .collect();
    let estimate = match (&view.estimate, view.why_not) {
        (Some(estimate), _) => format!("{:.1} segments ({})", estimate.share.segments_f64(estimate.mss), estimate.rule),
        (None, why) => format!("no estimate ({})", why.map_or("no reason", NoEstimate::name)),
    };
    println!("  {prefix}: {estimate}; the kernel's mean is {} of {} samples", mean(&here), here.len());
}

/// What the engine makes of a capture.
struct Seen {
    samples: Vec<Sample>,
    /// At the last packet.
    networks: Vec<NetworkView>,
    first_ns: u64,
    last_ns: u64,
}

fn of_engine(capture: &Path) -> Result<Seen> {
    let internal = vec![IpNet::from(std::net::IpAddr::V4(SERVER_V4)), IpNet::from(std::net::IpAddr::V6(SERVER_V6))];
    let mut engine = Engine::new(EngineConfig { internal, flow_reports: FlowReports::Full, ..EngineConfig::default() });
    let mut source = open_file(capture)?;
    let (mut first, mut last) = (None, Timestamp(0));
    let mut samples = Vec::new();
    loop {
        match source.next_packet().with_context(|| format!("reading {}", capture.display()))? {
            Next::Packet(packet) => {
                last = packet.timestamp;
                first.get_or_insert(last);
                let link_type = packet.link_type.0;
                let frame = Frame { link_type, wire_len: packet.wire_len, input: 0, data: packet.data };
                engine.handle_frame(last, &frame);
                drain(&mut engine, &mut samples);
            }
            Next::Idle => {}
            Next::End => break,
        }
    }
    engine.finish(last);
    drain(&mut engine, &mut samples);
    samples.sort_by_key(|sample| sample.time_ns);
    let networks = engine.networks(last);
    Ok(Seen { samples, networks, first_ns: first.unwrap_or(last).0, last_ns: last.0 })
}

fn drain(engine: &mut Engine, samples: &mut Vec<Sample>) {
    while let Some(event) = engine.poll_event() {
        let Event::DirectionEnded(report) = event else { continue };
        let address = |end: spand_core::wire::segment::Endpoint| std::net::SocketAddr::new(end.address, end.port);
        let flow = FlowId { local: address(report.source), remote: address(report.destination) };
        let windows = report.details.iter().flat_map(|details| &details.samples);
        samples.extend(windows.map(|sample| Sample {
            flow,
            time_ns: sample.at.0,
            segments: sample.window.segments_f64(sample.mss),
            reason: reason(sample),
        }));
    }
}

fn reason(sample: &WindowSample) -> Reason {
    if sample.reason == SampleReason::EndSlowStart {
        Reason::SlowStartEnd
    } else if sample.reason.is_lower_bound() {
        Reason::LowerBound
    } else if sample.reason.is_loss() {
        Reason::Loss
    } else {
        Reason::End
    }
}
