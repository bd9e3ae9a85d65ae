//! Every document of JSON that the programs give, walked by the rules of the dialect (docs/reference/api.md, "JSON"): `--json` of every command,
//! `replay --format json`, and every answer of the gateway's HTTP interface.
//!
//! A program of its own: started under the name of one of the product's programs it is that program. The gateway that is asked runs in
//! this process and has something of everything; the agents and their routes are in a network namespace.

mod agent;
mod gateway;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::CommandFactory;
use serde_json::Value;
use spand_tests::dialect::{Dialect, Origin};
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::standing_in::{link_programs, run_cases, stand_in};

/// Names that have no value in any document here, and what would give them one.
const EMPTY: &[(&str, &str)] = &[
    ("agent_error", "an agent that does not answer"),
    ("certificate", "TLS"),
    ("certificate_not_after", "TLS"),
    ("last_error", "a subscription that ended"),
    ("loss_age_s", "the rule miss, and senders under way that lose segments twice"),
    ("loss_interval_ms", "the same"),
    ("next_retry_at", "a gateway that does not answer"),
    ("not_kept", "a state directory that cannot be written"),
    ("oldest_loss_interval_ms", "the same"),
    ("programs_left", "programs of another agent"),
    ("raised_segments", "a share that many have, and a path that holds more"),
    ("unseen_since", "connections of sockets outside the agent's cgroup"),
    ("mark", "losses at random, addresses that differ, or a load that is gone"),
    ("address_shares", "addresses that differ"),
];

fn main() -> ExitCode {
    stand_in().unwrap_or_else(|| {
        run_cases("json_dialect", [("every document is of one dialect", every_document as fn() -> Result<()>)])
    })
}

fn every_document() -> Result<()> {
    let mut walk = Walk::new()?;
    let stage = gateway::stage(&walk.namespace)?;
    gateway::answers(&mut walk, &stage)?;
    gateway::commands(&mut walk, &stage)?;
    agent::commands(&mut walk, &stage)?;
    drop(stage);

    let commands: Vec<String> = commands_with_json();
    ensure!(commands.len() >= 10, "only {commands:?} take --json");
    let missing: Vec<_> = commands.iter().filter(|command| !walk.documents.contains(*command)).collect();
    ensure!(missing.is_empty(), "no document of these commands is walked: {missing:?}");
    let missing: Vec<_> =
        spand_gateway::api::paths().into_iter().filter(|path| !walk.documents.contains(*path)).collect();
    ensure!(missing.is_empty(), "no answer of these addresses is walked: {missing:?}");

    let faults = walk.dialect.faults();
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    let empty: Vec<_> = walk.dialect.empty().iter().map(|(name, place)| (name.as_str(), place.as_str())).collect();
    let unknown: Vec<_> = empty.iter().filter(|(name, _)| !EMPTY.iter().any(|(known, _)| known == name)).collect();
    ensure!(unknown.is_empty(), "without a value here, so that nothing is known of them: {unknown:?}");
    let seen: Vec<_> = EMPTY.iter().filter(|(name, _)| !empty.iter().any(|(empty, _)| empty == name)).collect();
    ensure!(seen.is_empty(), "these have a value now: {seen:?}");
    println!("json_dialect: {} kinds of documents", walk.documents.len());
    Ok(())
}

/// What was walked.
struct Walk {
    dialect: Dialect,
    /// Commands, and addresses of the interface as its router has them.
    documents: BTreeSet<String>,
    namespace: Namespace,
    folder: tempfile::TempDir,
}

impl Walk {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        link_programs(folder.path())?;
        let namespace = Namespace::create("dialect")?;
        namespace.ip(&[
            "link add eth0 type veth peer name far",
            "link set eth0 up",
            "link set far up",
            "addr add 198.51.100.7/24 dev eth0",
            "route add default via 198.51.100.1",
        ])?;
        Ok(Self { dialect: Dialect::default(), documents: BTreeSet::new(), namespace, folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn walk(&mut self, origin: Origin, of: &str, document: &Value) {
        self.documents.insert(of.to_owned());
        self.dialect.walk(origin, of, document);
    }

    /// Runs a command of a program and walks what it prints.
    fn command(&mut self, origin: Origin, program: &str, arguments: &[&str]) -> Result<Value> {
        let output = self.program(program).args(arguments).output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let of = format!("{program} {}", arguments.first().copied().unwrap_or_default());
        let document = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{program} {arguments:?} ({}) prints no JSON: {stderr}", output.status))?;
        self.walk(origin, &of, &document);
        Ok(document)
    }

    fn program(&self, program: &str) -> Command {
        self.namespace.command(self.path(program))
    }
}

/// Every command that can print JSON, as `spand-agent status`.
fn commands_with_json() -> Vec<String> {
    let programs = [spand_gateway::cli::Cli::command(), spand_agent::cli::Cli::command()];
    let with_json = programs.iter().flat_map(|program| {
        let commands = program.get_subcommands().filter(|command| {
            command.get_arguments().any(|argument| {
                argument.get_id() == "json"
                    || argument.get_possible_values().iter().any(|value| value.get_name() == "json")
            })
        });
        commands.map(|command| format!("{} {}", program.get_name(), command.get_name()))
    });
    with_json.collect()
}
