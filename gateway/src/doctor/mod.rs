//! `doctor`: the usual faults of a gateway and its place, and what to do about each. Changes nothing.
//!
//! A gateway that runs is asked twice over its own interface, and what it counted in between is judged; where none runs,
//! the interfaces are looked at for as long. What is judged is the same either way ([`judge::Seen`]), and so are the
//! sentences ([`judge`]). Without the password of a gateway that requires one, only its readiness is known.

mod gateways;
mod host;
mod judge;
mod look;
mod memory;
mod running;
mod shared;
mod tunnels;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spand_proto::operator::{Check, Diagnosis, Failure, judge_broken, judge_configuration, or_default, printable_json};

use crate::config::{Config, DEFAULT_PATH, EngineOptions, Memory};
use crate::http_client::HttpClient;
use crate::password;

use self::running::Answer;

/// Arguments of `doctor`.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The configuration
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    config: PathBuf,
    /// Time for which traffic is looked at, 1 to 60
    #[arg(long, value_name = "S", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Ask a gateway with passwords as this name of admin.passwords; the password is read from standard input
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Looks, prints what was found, and fails where something is at fault.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let (config, was_read, configuration) = match or_default(Config::load(&arguments.config), Path::new(DEFAULT_PATH)) {
        Ok((config, was_read)) => (config, was_read, judge_configuration(&arguments.config, was_read)),
        Err(error) => (Config::salvaged(&arguments.config), true, judge_broken(&error)),
    };
    let password = arguments.user.as_ref().map(|_| password::read()).transpose()?;
    let client = HttpClient::of(&config, arguments.user.as_deref().zip(password.as_deref()))?;
    let client = if was_read { client } else { client.suspicious() };
    let span = Duration::from_secs(arguments.seconds);
    let diagnosis = Diagnosis::new(look(&config, configuration, span, &client));
    let text = if arguments.json {
        printable_json(&serde_json::to_string_pretty(&diagnosis).map_err(Failure::environment)?)
    } else {
        diagnosis.text()
    };
    match writeln!(io::stdout().lock(), "{text}") {
        // The reader closed the pipe; the exit code still holds.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::Environment(format!("cannot print: {error}")))
        }
        _ => diagnosis.outcome(),
    }
}

fn look(config: &Config, configuration: Check, span: Duration, client: &HttpClient) -> Vec<Check> {
    let mut checks = vec![configuration];
    checks.extend([host::kernel(), host::clock(), host::store(&config.store)]);
    // A list that cannot be read is found below.
    if let Ok(engine) = config.engine(EngineOptions::default()) {
        checks.push(memory::memory(&Memory::of(config, &engine), memory::running()));
    }
    checks.push(judge::internal_set(&config.traffic.internal));
    checks.extend(tunnels::endpoints(&config.traffic));
    let http = config.api.http_listen.0;
    let first = running::ask(http, client);
    if let Err(fault) = config.check_runnable() {
        checks.push(Check::fail("interfaces", fault, "set it, then run the doctor again"));
        checks.push(Check::ok(
            "gateway",
            match first {
                Answer::Nobody => format!("not running: no answer on {http}"),
                _ => format!("running, answers on {http}"),
            },
        ));
        return checks;
    }
    checks.extend(config.capture.interfaces.iter().flat_map(|interface| host::offloads(interface)));
    match &first {
        Answer::Document(_) => checks.push(Check::ok("gateway", format!("running, answers on {http}"))),
        Answer::ReadyOnly(ready) => {
            checks.push(Check::ok("gateway", format!("running, answers on {http}")));
            checks.extend(running::judge_ready(ready));
            let found = "the gateway asks for a password";
            checks.push(Check::unknown("traffic", found, "give a name of admin.passwords with --user"));
            return checks;
        }
        Answer::Refused(why) => {
            let found = format!("running on {http}, but the request failed: {why}");
            checks.push(Check::unknown("gateway", found, "look at its dashboard, or stop it and run the doctor again"));
            return checks;
        }
        Answer::Nobody => {
            checks.push(Check::ok("gateway", format!("not running: no answer on {http}")));
            checks.extend(host::ports(&config.api));
        }
    }
    let mut wait = Wait::new(span);
    match first {
        Answer::Document(first) => {
            wait.whole();
            let second = running::ask(http, client);
            checks.extend(running::judge(&first, second, span, config));
            checks.extend(running::ask_estimates(http, client));
            let subscribers = config.publish.subscribers.get();
            if let Some(shared) = running::ask_shared(http, client) {
                checks.extend(shared::judge(&shared, config.share.is_on(), subscribers));
            }
        }
        Answer::Nobody | Answer::Refused(_) | Answer::ReadyOnly(_) => match look::look(config, span, &mut wait) {
            Ok(seen) => checks.extend(judge::traffic(&seen, config)),
            Err(check) => checks.push(check),
        },
    }
    wait.clear();
    checks
}

/// The time that passes while traffic is looked at, for a person at a terminal.
struct Wait {
    began: Instant,
    span: Duration,
    bar: Option<ProgressBar>,
}

impl Wait {
    fn new(span: Duration) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let length = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
            let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("capturing traffic {bar:40} {elapsed}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { began: Instant::now(), span, bar }
    }

    /// Whether it is over.
    fn over(&self) -> bool {
        let elapsed = self.began.elapsed();
        if let Some(bar) = &self.bar {
            bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        }
        elapsed >= self.span
    }

    /// Lets all of it pass.
    fn whole(&self) {
        while !self.over() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}
