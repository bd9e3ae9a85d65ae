//! `probe`: what this host supports.

use std::io::{self, IsTerminal as _};

use spand_proto::operator::Failure;

use super::{print, print_json};
use crate::apply::bpf::{NotStarted, try_out};
use crate::args::Format;
use crate::capabilities::Capabilities;
use crate::config::Config;
use crate::probe::{Finding, Tried, look};

pub(crate) fn probe(format: Format) -> Result<(), Failure> {
    let findings = look(tried().as_ref());
    if format.json { print_json(&findings) } else { print(&for_people(&findings)) }
}

/// Loads the programs and removes them, where this process may.
fn tried() -> Option<Tried> {
    if !Capabilities::own().is_some_and(Capabilities::may_load) {
        return None;
    }
    if io::stderr().is_terminal() {
        eprintln!("loading the programs into the kernel to see what it takes, some seconds");
    }
    match try_out(&Config::default()) {
        Ok(trial) => Some(Tried { variant: Ok(trial.variant), lacks: trial.lacks }),
        Err(NotStarted::Lacking(lack)) => Some(Tried { variant: Err(lack.reason), lacks: Vec::new() }),
        Err(NotStarted::Failed(_)) => None,
    }
}

fn for_people(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let line = |finding: &Finding| {
        let note = finding.note.as_ref().map_or_else(String::new, |note| format!("  ({note})"));
        format!("{:width$}  {}{note}", finding.name, finding.value)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}
