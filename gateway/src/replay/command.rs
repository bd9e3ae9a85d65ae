//! The command `replay`: its arguments, and what it says on standard error.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spand_capture::Progress;
use spand_core::config::{EngineConfig, FlowReports, Limits, Tunnels};
use spand_proto::estimate::RuleKind;
use spand_proto::network::Network;
use spand_proto::operator::{Failure, parse_positive, printable};
use spand_proto::units::{Bytes, Micros};

use super::moments::parse_interval;
use super::output::{Output, Show, Sort, Width, ignored, other_protocols};
use super::{Moment, Moments, Options, Report, Sink, State, replay};
use crate::config::{Config, EngineOptions, kind_named};
use crate::descriptors;
use crate::names::Names;

/// Arguments of `replay`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Capture files (pcap, pcapng, also gzip or zstd), merged by time; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// One row per connection and direction that carried data
    #[arg(long)]
    pub flows: bool,
    /// Form of the output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Show the networks at this moment: since the first packet (90s) or in UTC (2018-03-05T15:07:15Z); may be repeated
    #[arg(long, value_name = "TIME", conflicts_with = "every")]
    pub at: Vec<Moment>,
    /// Show the networks each time this much capture time has passed (10s, 5m)
    #[arg(long, value_name = "DURATION", value_parser = parse_interval)]
    pub every: Option<Micros>,
    /// Prefix inside the organisation, whose senders are followed; may be repeated. Without one both ends are
    #[arg(long, value_name = "PREFIX")]
    pub internal: Vec<Network>,
    /// Networks instead of /24 and /48: one prefix a line, the longest match wins
    #[arg(long, value_name = "FILE")]
    pub prefix_list: Option<PathBuf>,
    /// Rule that makes an estimate of the samples: spand, probe, robust, liss, iss, miss, cached or averaged
    #[arg(long)]
    pub rule: Option<RuleKind>,
    /// Rules to compute beside it, with commas between; the configuration's, else none
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    pub compare: Option<Vec<RuleKind>>,
    /// Window samples from which on a network has an estimate; the configuration's, else 3
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub min_samples: Option<u32>,
    /// Connections that those samples must come from; the configuration's, else 2
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub min_connections: Option<u32>,
    /// Order of the rows, largest first; `none`: networks by prefix, connections by first packet. The table is ordered by bytes, csv and json are not
    #[arg(long, value_enum, value_name = "ORDER")]
    pub sort: Option<Sort>,
    /// Tables with every column, however wide the terminal is
    #[arg(long)]
    pub wide: bool,
    /// Count shares in segments of this many bytes instead of the size of the samples
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=65_535))]
    pub mss: Option<u64>,
    /// Tunnels to decapsulate, between any endpoints: `gre`, `vxlan`, `geneve`, `gtp` and `ip_in_ip` with commas between, or
    /// `all`, or `none`; the configuration's, else all
    #[arg(long, value_name = "KINDS")]
    pub tunnels: Option<TunnelKinds>,
    /// Take window, limits, tunnels, prefixes and names from this configuration; the options above win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// One object with networks, flows, what was ignored, counters and files.
    Json,
    /// One table: the networks, or with --flows the connections.
    Csv,
}

/// Runs the command: the result on standard output, warnings on standard error.
///
/// Fails with exit code 1 where a file gave nothing; the others were still replayed and printed. A file that is only
/// damaged is a warning.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let moments = arguments.moments()?;
    let config = arguments.config()?;
    let engine = arguments.engine(&config)?;
    // All files are open at a time.
    descriptors::allow_many();
    let show = arguments.show(&config, &moments)?;
    let output = Output::new(BufWriter::new(io::stdout().lock()), show);
    let mut screen = Screen { output, bar: Bar::new() };
    let report = replay(Options { files: arguments.files, engine, moments }, &mut screen).and_then(|report| {
        screen.bar.clear();
        screen.output.end(&report)?;
        Ok(report)
    });
    let report = match report {
        Ok(report) => report,
        // The reader closed the pipe, as in `replay … | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        Err(error) => return Err(Failure::Environment(format!("cannot write the result: {error}"))),
    };
    if arguments.format == Format::Csv {
        say_ignored(&report);
    }
    say_faults(&report)
}

impl Arguments {
    fn moments(&self) -> Result<Moments, Failure> {
        let moments = match self.every {
            Some(interval) => Moments::Every(interval),
            None if self.at.is_empty() => Moments::End,
            None => Moments::At(self.at.clone()),
        };
        if self.flows && self.format == Format::Csv && moments != Moments::End {
            let why = "--flows with --at or --every gives two tables and csv holds one: use --format json";
            return Err(Failure::Usage(why.to_owned()));
        }
        Ok(moments)
    }

    /// The configuration file where one is given, with the options of the command line.
    fn config(&self) -> Result<Config, Failure> {
        let mut config = match &self.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        if !self.internal.is_empty() {
            config.traffic.internal.clone_from(&self.internal);
        }
        if let Some(list) = &self.prefix_list {
            config.traffic.prefix_list = Some(list.clone());
        }
        if let Some(rule) = self.rule {
            config.estimate.rule = rule;
        }
        if let Some(compare) = &self.compare {
            config.estimate.compare.clone_from(compare);
            config.estimate.check_compare("--compare", "the rule in force").map_err(Failure::Usage)?;
        }
        // Where `--rule` puts one in force that the configuration compares.
        config.estimate.compare.retain(|compared| *compared != config.estimate.rule);
        Ok(config)
    }

    fn show(&self, config: &Config, moments: &Moments) -> Result<Show, Failure> {
        Ok(Show {
            format: self.format,
            mss: self.mss.map(Bytes),
            flows: self.flows,
            moments: *moments != Moments::End,
            sort: self.sort,
            width: if self.wide { Width::UNLIMITED } else { Width::of_standard_output() },
            names: Names::load(&config.names)?,
        })
    }

    /// The engine of that configuration.
    fn engine(&self, config: &Config) -> Result<EngineConfig, Failure> {
        let flow_reports = if self.flows { FlowReports::Full } else { FlowReports::None };
        let options = EngineOptions { flow_reports, ..EngineOptions::default() };
        let mut engine = config.engine(options)?;
        if let Some(samples) = self.min_samples {
            engine.window.min_samples = samples;
        }
        if let Some(connections) = self.min_connections {
            engine.window.min_connections = connections;
        }
        if self.config.is_none() {
            engine.limits = Limits::for_replay();
            engine.tunnels = Tunnels::ALL;
        }
        if let Some(tunnels) = &self.tunnels {
            engine.tunnels.clone_from(&tunnels.0);
        }
        Ok(engine)
    }
}

/// Tunnels that are decapsulated, between any endpoints.
#[derive(Clone, Debug)]
pub struct TunnelKinds(Tunnels);

/// `none`, or kinds with commas between, perhaps with a UDP port each; `all` stands for all kinds on their own ports.
impl FromStr for TunnelKinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Tunnels::NONE));
        }
        let add = |tunnels: Tunnels, name: &str| {
            let (name, port) =
                name.trim().split_once(':').map_or((name.trim(), None), |(name, port)| (name, Some(port)));
            if name == "all" && port.is_none() {
                return Ok(tunnels.and_all());
            }
            let kind = kind_named(name).map_err(|message| format!("{message}, or all, or none"))?;
            let Some(port) = port else { return Ok(tunnels.from_anyone(kind)) };
            let port = NonZeroU16::from_str(port)
                .map_err(|_| format!("`{port}` is no UDP port: write one as in {name}:8472"))?;
            Ok(tunnels.from_anyone((kind, port.get())))
        };
        text.split(',').try_fold(Tunnels::NONE, add).map(Self)
    }
}

/// A replay shorter than this shows nothing.
const BAR_AFTER: Duration = Duration::from_secs(1);

/// A bar on standard error; nothing where that is not a terminal.
#[derive(Debug)]
struct Bar {
    started: Instant,
    /// `None` before that.
    shown: Option<ProgressBar>,
    terminal: bool,
}

impl Bar {
    fn new() -> Self {
        Self { started: Instant::now(), shown: None, terminal: io::stderr().is_terminal() }
    }

    fn update(&mut self, progress: Progress) {
        if !self.terminal || self.started.elapsed() < BAR_AFTER {
            return;
        }
        let bar = self.shown.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(progress.total_bytes), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_position(progress.done_bytes);
    }

    /// Removes the bar, so that nothing of it stays between the lines of the result.
    fn clear(&mut self) {
        if let Some(bar) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

struct Screen<W: Write> {
    output: Output<W>,
    bar: Bar,
}

impl<W: Write> Sink for Screen<W> {
    fn state(&mut self, state: &State) -> io::Result<()> {
        self.output.state(state)
    }

    fn progress(&mut self, progress: Progress) {
        self.bar.update(progress);
    }
}

fn say_ignored(report: &Report) {
    for line in other_protocols(report) {
        eprintln!("{line}");
    }
    for (reason, count, meaning) in ignored(report).into_iter().filter(|&(_, count, _)| count > 0) {
        eprintln!("ignored {reason}: {count} ({meaning})");
    }
}

fn say_faults(report: &Report) -> Result<(), Failure> {
    if let [file] = report.files.as_slice()
        && file.gave_nothing()
        && let Some(fault) = file.fault()
    {
        return Err(Failure::Environment(fault));
    }
    for fault in report.files.iter().filter_map(super::FileReport::fault) {
        eprintln!("warning: {}", printable(&fault));
    }
    let nothing = report.files.iter().filter(|file| file.gave_nothing()).count();
    if nothing == 0 {
        return Ok(());
    }
    let files = report.files.len();
    Err(Failure::Environment(format!("{nothing} of {files} files gave no packet; the lines above say why")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use spand_core::types::TunnelKind;

    use super::*;
    use crate::cli::{Cli, Command};

    fn arguments(options: &[&str]) -> Result<Arguments, String> {
        let all = ["spand-gateway", "replay", "trace.pcap"].iter().chain(options);
        let Command::Replay(arguments) = Cli::try_parse_from(all).map_err(|error| error.to_string())?.command else {
            return Err("another command".to_owned());
        };
        Ok(arguments)
    }

    /// The tunnels that a command line looks into.
    fn tunnels(options: &[&str]) -> Result<Tunnels, String> {
        let arguments = arguments(options)?;
        let engine = arguments.config().and_then(|config| arguments.engine(&config));
        Ok(engine.map_err(|failure| failure.to_string())?.tunnels)
    }

    #[test]
    fn names_are_those_of_the_configuration_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("names.txt"), "192.0.2.0/24 Branch office 7\n").unwrap();
        let path = folder.path().join("gateway.toml");
        std::fs::write(&path, "names.list = \"names.txt\"").unwrap();
        let name = |options: &[&str]| {
            let arguments = arguments(options).unwrap();
            let show = arguments.show(&arguments.config().unwrap(), &Moments::End).unwrap();
            show.names.of("192.0.2.0/24".parse().unwrap()).name
        };
        assert_eq!(name(&["--config", path.to_str().unwrap()]).as_deref(), Some("Branch office 7"));
        assert_eq!(name(&[]), None);
    }

    #[test]
    fn tunnels_are_all_unless_options_or_a_configuration_choose() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        let text = "[traffic]\ntunnel = [{ kind = \"gtp\", endpoints = [\"192.0.2.0/24\"] }]";
        std::fs::write(&path, text).unwrap();
        let config = ["--config", path.to_str().unwrap()];
        let configured = Tunnels::NONE.between(TunnelKind::Gtp, &["192.0.2.0/24".parse().unwrap()]);
        let two = Tunnels::NONE.from_anyone(TunnelKind::Vxlan).from_anyone(TunnelKind::IpInIp);
        for (options, expected) in [
            (&[][..], Tunnels::ALL),
            (&config, configured),
            (&[config[0], config[1], "--tunnels", "vxlan,ip_in_ip"], two.clone()),
            (&["--tunnels", "ip_in_ip,vxlan"], two),
            (&["--tunnels", "all"], Tunnels::ALL),
            (&["--tunnels", "all,vxlan:8472"], Tunnels::ALL.from_anyone((TunnelKind::Vxlan, 8472))),
            (&["--tunnels", "vxlan:4789"], Tunnels::NONE.from_anyone(TunnelKind::Vxlan)),
            (&["--tunnels", "none"], Tunnels::NONE),
        ] {
            assert_eq!(tunnels(options), Ok(expected), "{options:?}");
        }
        for wrong in ["l2tp", "", "vxlan,", "none,gre", "all:1"] {
            let message = tunnels(&["--tunnels", wrong]).unwrap_err();
            assert!(
                message.contains("choose among gre, vxlan, geneve, gtp, ip_in_ip, tzsp, or all, or none"),
                "{message}"
            );
        }
        let message = tunnels(&["--tunnels", "vxlan:0"]).unwrap_err();
        assert!(message.contains("`0` is no UDP port: write one as in vxlan:8472"), "{message}");
    }
}
