//! What the engine makes of an input, as a few fingerprints: of its events, counters, networks, cells and replicas, in several
//! configurations. Two engines with equal fingerprints behave identically, to the last bit of every estimate. Samples, losses and the median
//! share stand beside them, so that people can read how far a change goes.
//!
//! `tests/engine/digests.tsv` holds those of today's engine, so that a change which is meant to be only faster or simpler shows that it is no
//! more than that. A commit that changes what the engine does records them again and names the reason.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ipnet::IpNet;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use spand_capture::{Next, PacketSource, open_file};
use spand_cells::{GatewayId, Pseudonyms, Shares, Sharing, TapId};
use spand_core::config::{EngineConfig, FlowReports, Limits, Shard};
use spand_core::counters::Ignored;
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::wire::{Decoder, Frame};
use spand_openings::{LossCount, PLACES, openings};
use spand_proto::estimate::RuleKind;
use spand_proto::units::{Micros, Timestamp};
use strum::VariantArray;

use crate::trace::extreme::{Extreme, write_extreme};
use crate::trace::frame::FrameWriter;
use crate::trace::{TraceConfig, generate, write_trace};

/// What is replayed.
#[derive(Clone, Debug)]
pub enum Input {
    /// A capture.
    Capture(PathBuf),
    /// A generated trace.
    Trace(TraceConfig),
    /// An extreme one of this many packets.
    Extreme(Extreme, u64),
    /// A generated trace whose packets are lost, swapped, copied, delayed and damaged at random.
    Damaged(TraceConfig),
}

/// A way in which an engine is configured.
#[derive(Clone, Copy, Debug, Eq, PartialEq, VariantArray)]
pub enum Run {
    /// Both senders of every connection, with full reports, and their replicas after each packet.
    Bare,
    /// The hosts of the lower half of all addresses are inside.
    Lower,
    /// Those of the upper half, with the sums of reports, long-lived entries and advice.
    Upper,
    /// Every rule computed beside the one in force, the window option read, cells for other gateways.
    Rules,
    /// Three engines side by side.
    Three,
    /// Little room in every table.
    Tight,
}

/// Files that lie beside captures and are none.
const TEXTS: [&str; 4] = ["md", "tsv", "out", "pkt"];

/// Packets between two looks at networks and cells.
const LOOK: u64 = 2_000;

/// The fingerprint of a text that is written piece by piece.
#[derive(Default)]
struct Fingerprint(crc32fast::Hasher);

impl fmt::Write for Fingerprint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl Input {
    /// Generated ones, small enough for every test run.
    pub fn generated() -> Vec<(String, Self)> {
        let trace = |seed, connections, loss, networks| TraceConfig {
            packets: 20_000,
            connections,
            loss,
            networks,
            snap_len: 96,
            seed,
        };
        let mut inputs = Vec::new();
        for (seed, connections, loss, networks) in
            [(1, 20, 0.0, 3), (2, 300, 0.01, 20), (3, 50, 0.1, 5), (4, 2_000, 0.02, 2_000)]
        {
            inputs.push((format!("trace-{seed}"), Self::Trace(trace(seed, connections, loss, networks))));
        }
        for seed in 11..19 {
            inputs.push((format!("damaged-{seed}"), Self::Damaged(trace(seed, 40, 0.02, 10))));
        }
        for extreme in [Extreme::OnePacketFlows, Extreme::OneFlow, Extreme::EveryNetwork, Extreme::Established] {
            inputs.push((format!("{extreme:?}"), Self::Extreme(extreme, 10_000)));
        }
        inputs
    }

    /// The captures in a folder, by name, and those of cells that were kept there.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn captures(folder: &Path) -> Result<Vec<(String, Self)>> {
        let entries = std::fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
        let mut inputs = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // `make accuracy` keeps each cell in a folder of its own.
            let capture = if path.is_dir() { path.join("capture.pcap.gz") } else { path };
            let is_text = capture.extension().is_some_and(|extension| TEXTS.iter().any(|text| extension == *text));
            if capture.is_file() && !is_text {
                inputs.push((name, Self::Capture(capture)));
            }
        }
        inputs.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(inputs)
    }

    /// Its file: a generated one is written into `folder`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn file(&self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join("input.pcap");
        let create = || std::fs::File::create(&path).map(std::io::BufWriter::new);
        match self {
            Self::Capture(path) => return Ok(path.clone()),
            Self::Trace(config) => write_trace(create()?, config).map(|_| ())?,
            Self::Extreme(extreme, packets) => write_extreme(create()?, *extreme, *packets, 96).map(|_| ())?,
            Self::Damaged(config) => damage(create()?, config)?,
        }
        Ok(path)
    }
}

/// Writes a trace in which much is wrong, by its seed.
fn damage(out: impl std::io::Write, config: &TraceConfig) -> Result<()> {
    let mut frames = FrameWriter::new(out, config.snap_len)?;
    let mut random = StdRng::seed_from_u64(config.seed ^ 0x5eed);
    let mut failed = Ok(());
    let mut held = None;
    generate(config, |at_ns, tuple, packet| {
        let mut packet = packet.clone();
        match random.random_range(0..100) {
            0 | 1 => return true,
            2 => packet.flags ^= 1 << random.random_range(0..6),
            3 => packet.seq = packet.seq.wrapping_add(random.random_range(0..200_000)),
            4 => packet.ack = packet.ack.wrapping_sub(random.random_range(0..200_000)),
            5 => packet.seq = random.random(),
            6 => packet.payload_len = random.random_range(0..3_000),
            7 if held.is_none() => {
                held = Some((*tuple, packet));
                return true;
            }
            8 | 9 => failed = frames.write(at_ns, tuple, &packet),
            10 => {
                let random = (random.random(), random.random());
                packet.sack = [(packet.ack.wrapping_sub(3_000), packet.ack), random].into_iter().collect();
            }
            _ => {}
        }
        let at_ns = if random.random_range(0..200) == 0 {
            at_ns.saturating_sub(random.random_range(0..50_000_000))
        } else {
            at_ns
        };
        failed = std::mem::replace(&mut failed, Ok(())).and_then(|()| frames.write(at_ns, tuple, &packet));
        if random.random_range(0..4) == 0
            && let Some((tuple, packet)) = held.take()
        {
            failed = std::mem::replace(&mut failed, Ok(())).and_then(|()| frames.write(at_ns, &tuple, &packet));
        }
        failed.is_ok()
    });
    failed?;
    frames.finish()?;
    Ok(())
}

impl Run {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Lower => "lower",
            Self::Upper => "upper",
            Self::Rules => "rules",
            Self::Three => "three",
            Self::Tight => "tight",
        }
    }

    fn engines(self) -> Vec<Engine> {
        let half =
            |v4: &str, v6: &str| -> Vec<IpNet> { [v4, v6].iter().filter_map(|half| half.parse().ok()).collect() };
        let base = EngineConfig { limits: Limits::for_replay(), hash_seed: 7, ..EngineConfig::default() };
        let config = match self {
            Self::Bare => EngineConfig { flow_reports: FlowReports::Full, ..base },
            Self::Lower => EngineConfig { internal: half("0.0.0.0/1", "::/1"), ..base },
            Self::Upper => EngineConfig {
                internal: half("128.0.0.0/1", "8000::/1"),
                flow_reports: FlowReports::Sums,
                limits: Limits::default(),
                rule: RuleKind::Spand,
                ..base
            },
            Self::Rules => EngineConfig {
                read_window_option: true,
                compare: RuleKind::VARIANTS.to_vec(),
                openings: openings(base.rule, RuleKind::VARIANTS, PLACES, LossCount::Episodes),
                ..base
            },
            Self::Three => base,
            Self::Tight => EngineConfig { limits: tight(), ..base },
        };
        let count = NonZeroU32::new(if self == Self::Three { 3 } else { 1 }).unwrap_or(NonZeroU32::MIN);
        let gateway = GatewayId(1);
        let sharing = (self == Self::Rules).then(|| Sharing {
            gateway,
            tap: TapId::of_gateway(gateway),
            pseudonyms: Pseudonyms::new([7; 16]),
        });
        (0..count.get())
            .map(|index| Engine::new(EngineConfig { shard: Shard { index, count }, ..config.clone() }).sharing(sharing))
            .collect()
    }
}

/// Limits that most inputs reach.
fn tight() -> Limits {
    let few = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
    let few_of = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
    Limits {
        connections: few(48),
        networks: few(8),
        outstanding_segments: few_of(12),
        sequence_ranges: few_of(3),
        services: few(4),
        idle_established: Micros::from_secs(5),
        idle_other: Micros::from_secs(1),
        idle_unacknowledged: Micros::from_secs(1),
        ..Limits::default()
    }
}

/// The fingerprint of what an engine makes of `path`; all of it goes to `text`, too, where one is given.
struct Watch<'a> {
    print: Fingerprint,
    text: Option<&'a mut dyn std::io::Write>,
}

impl Watch<'_> {
    fn note(&mut self, line: &dyn fmt::Debug) -> Result<()> {
        writeln!(self.print, "{line:?}")?;
        if let Some(text) = &mut self.text {
            writeln!(text, "{line:?}")?;
        }
        Ok(())
    }

    fn events(&mut self, engines: &mut [Engine]) -> Result<()> {
        for index in 0..engines.len() {
            while let Some(event) = engines.get_mut(index).and_then(Engine::poll_event) {
                self.note(&event)?;
                if let (Event::TransferEnded(ended), Some(first)) = (&event, engines.first_mut()) {
                    first.take_transfer(*ended);
                }
            }
        }
        Ok(())
    }

    fn state(&mut self, engines: &mut [Engine], run: Run, now: Timestamp) -> Result<()> {
        for engine in engines {
            for network in engine.networks().views(now) {
                // A replay has no reports, and what was recorded is older than they are.
                let text = format!("{network:?}").replace(", reported: None", "");
                self.note(&format_args!("{text}"))?;
            }
            if run == Run::Rules {
                for cell in engine.take_cells() {
                    self.note(&cell)?;
                }
            }
        }
        Ok(())
    }
}

/// The readable figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    samples: u64,
    losses: u64,
    /// Networks with an estimate.
    estimates: usize,
    /// Median of their shares in segments.
    share: Option<f64>,
    /// Least round trip of all networks.
    rtt_min: Option<Micros>,
}

impl Figures {
    /// Names of their columns.
    pub const NAMES: [&str; 5] = ["samples", "losses", "estimates", "share", "rtt_min_ms"];

    fn of(engines: &[Engine], now: Timestamp) -> Self {
        let networks: Vec<_> = engines.iter().flat_map(|engine| engine.networks().views(now)).collect();
        let shares = networks.iter().filter_map(|view| view.estimate.as_ref());
        let mut shares: Vec<f64> = shares.map(|estimate| estimate.share.segments_f64(estimate.mss)).collect();
        shares.sort_by(f64::total_cmp);
        Self {
            samples: engines.iter().map(|engine| engine.counters().window_samples).sum(),
            losses: engines.iter().map(|engine| engine.counters().loss_events).sum(),
            estimates: shares.len(),
            share: shares.get(shares.len() / 2).copied(),
            rtt_min: networks.iter().filter_map(|view| view.rtt_min).min(),
        }
    }

    fn columns(&self) -> [String; 5] {
        let of = |value: Option<f64>, digits| value.map_or_else(String::new, |value| format!("{value:.digits$}"));
        [
            self.samples.to_string(),
            self.losses.to_string(),
            self.estimates.to_string(),
            of(self.share, 2),
            of(self.rtt_min.map(Micros::as_millis_f64), 3),
        ]
    }
}

/// The share of a recorded line.
pub fn share_of(line: &str) -> Option<f64> {
    line.split('\t').nth(1 + Run::VARIANTS.len() + 3)?.parse().ok()
}

/// The fingerprint and figures of an engine that reads a file up to its end, or to where the file breaks off. All events and states are
/// written to `text` as well.
///
/// # Errors
/// The file cannot be opened, or what writing gives.
pub fn digest(path: &Path, run: Run, text: Option<&mut dyn std::io::Write>) -> Result<(u32, Figures)> {
    let mut watch = Watch { print: Fingerprint::default(), text };
    let mut engines = run.engines();
    let mut decoder = Decoder::new(EngineConfig::default().tunnels);
    let (mut packets, mut latest) = (0, Timestamp(0));
    let mut source = open_file(path)?;
    // A file that breaks off in the middle is replayed up to there.
    while let Ok(Next::Packet(packet)) = source.next_packet() {
        packets += 1;
        let frame = Frame {
            link_type: packet.link_type.0,
            wire_len: packet.wire_len,
            input: packet.interface,
            data: packet.data,
        };
        latest = latest.max(packet.timestamp);
        for engine in &mut engines {
            if packet.untimed {
                engine.handle_untimed_frame(&frame);
            } else {
                engine.handle_frame(packet.timestamp, &frame);
            }
        }
        watch.events(&mut engines)?;
        if run == Run::Upper
            && packets % 50 == 0
            && let Ok(segment) = decoder.decode(packet.timestamp, &frame)
            && let Some(engine) = engines.first_mut()
        {
            engine.note_advised(segment.source.address, segment.destination.address, packet.timestamp);
        }
        if run == Run::Bare
            && let Ok(segment) = decoder.decode(packet.timestamp, &frame)
            && let Some(engine) = engines.first()
        {
            for (from, to) in [(segment.source, segment.destination), (segment.destination, segment.source)] {
                if let Some(evidence) = engine.evidence(from, to) {
                    watch.note(&(
                        evidence.window(),
                        evidence.ssthresh(),
                        evidence.phase(),
                        evidence.srtt(),
                        evidence.congestion_control(),
                    ))?;
                    watch.note(&(evidence.limiter(packet.timestamp), evidence.reaction()))?;
                }
            }
        }
        if packets % LOOK == 0 {
            watch.state(&mut engines, run, packet.timestamp)?;
        }
    }
    for engine in &mut engines {
        let end = engine.clock_at(latest);
        engine.finish(end);
    }
    watch.events(&mut engines)?;
    watch.state(&mut engines, run, latest)?;
    for engine in &engines {
        watch.note(&engine.services())?;
        let counters = engine.counters();
        watch.note(&counters.named())?;
        // Without zeros: a reason that comes or goes moves the fingerprints of those inputs alone that have it.
        for reason in Ignored::VARIANTS.iter().filter(|reason| counters.ignored(**reason) > 0) {
            watch.note(&(reason.name(), counters.ignored(*reason)))?;
        }
    }
    Ok((watch.print.0.finalize(), Figures::of(&engines, latest)))
}

/// The columns of an input: the fingerprint of its bytes, one fingerprint for each run, and the figures of the first run.
///
/// # Errors
/// It cannot be made or read.
pub fn columns(input: &Input) -> Result<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let path = input.file(folder.path())?;
    // A file that is no capture has none.
    let runs: Vec<_> = Run::VARIANTS.iter().map(|run| digest(&path, *run, None).unwrap_or_default()).collect();
    let prints = [crc32fast::hash(&std::fs::read(&path)?)].into_iter().chain(runs.iter().map(|(print, _)| *print));
    let figures = runs.first().map(|(_, figures)| figures.columns());
    Ok(prints.map(|print| format!("{print:08x}")).chain(figures.into_iter().flatten()).collect())
}

/// Names of all columns.
pub fn head() -> Vec<&'static str> {
    ["name", "input"].into_iter().chain(Run::VARIANTS.iter().map(|run| run.name())).chain(Figures::NAMES).collect()
}

/// The lines of `inputs` in the file, made on all processors; `done` hears how many there are as they come.
///
/// # Errors
/// An input cannot be made or read.
pub fn lines(inputs: &[(String, Input)], done: &(dyn Fn(usize) + Sync)) -> Result<Vec<(String, String)>> {
    let lines = crate::parallel::map(inputs, done, |(_, input)| Ok(columns(input)?.join("\t")))?;
    Ok(inputs.iter().zip(lines).map(|((name, _), line)| (name.clone(), line)).collect())
}

/// Every input that there is here, by its name: the generated ones, the cases of `tests/cases` and the sets of the corpus.
///
/// # Errors
/// A folder cannot be read.
pub fn inputs() -> Result<Vec<(String, Input)>> {
    let mut inputs = Vec::new();
    let mut add = |set: &str, of_set: Vec<(String, Input)>| {
        inputs.extend(of_set.into_iter().map(|(name, input)| (format!("{set}/{name}"), input)));
    };
    add("generated", Input::generated());
    // Beside the captures lie the kernel's accounts and the pages.
    let mut cases = Input::captures(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"))?;
    cases.retain(|(name, _)| name.contains(".pcap"));
    add("cases", cases);
    for (set, folder) in [
        ("wild", "wild"),
        ("truth", "truth/captures"),
        ("real", "captures-real/captures"),
        ("malformed", "captures-malformed/captures"),
    ] {
        if let Some(folder) = spand_needs::needs_corpus(folder) {
            add(set, Input::captures(&folder)?);
        }
    }
    Ok(inputs)
}

/// What was recorded, by the name of the input.
///
/// # Errors
/// The file cannot be read.
pub fn recorded(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let of_line = |line: &str| line.split_once('\t').map(|(name, prints)| (name.to_owned(), prints.to_owned()));
    Ok(text.lines().skip(1).filter_map(of_line).collect())
}

/// Where they lie.
pub fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("digests.tsv")
}
