//! `probe`: what this host supports.

use spand_proto::operator::Failure;

use super::{print, print_json};
use crate::args::Format;
use crate::probe::{Finding, look};

pub(crate) fn probe(format: Format) -> Result<(), Failure> {
    let findings = look();
    if format.json { print_json(&findings) } else { print(&for_people(&findings)) }
}

fn for_people(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
    let line = |finding: &Finding| {
        let note = finding.note.as_ref().map_or_else(String::new, |note| format!("  ({note})"));
        format!("{:width$}  {}{note}", finding.name, finding.value)
    };
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}
