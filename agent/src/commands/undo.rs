//! `undo`: takes back what the agent changed, with or without a running agent.

use serde::Serialize;
use spand_proto::network::Network;
use spand_proto::operator::Failure;

use super::{print, print_json};
use crate::apply::route::{Netlink, clean_up, undo_command};
use crate::args::Undo;
use crate::config::Config;
use crate::ledger::{self, Entry, Recorded};

/// What there is to take back.
#[derive(Debug, Serialize)]
struct Listed {
    /// Whether the ledger could be read; where not, the kernel's routes decide.
    ledger: &'static str,
    changes: Vec<Change>,
}

#[derive(Debug, Serialize)]
struct Change {
    command: String,
    #[serde(flatten)]
    entry: Entry,
}

/// What was taken back.
#[derive(Debug, Serialize)]
struct Undone {
    removed: Vec<Network>,
    left: Vec<Network>,
}

pub(crate) fn undo(config: &Config, how: Undo) -> Result<(), Failure> {
    let path = config.ledger_file();
    let recorded = ledger::read(&path)
        .map_err(|error| Failure::Environment(format!("cannot read the ledger {}: {error}", path.display())))?;
    if how.run {
        return take_back(&recorded, how);
    }
    let (ledger, changes) = match recorded {
        Recorded::Missing => ("missing", Vec::new()),
        Recorded::Damaged { .. } => ("damaged", Vec::new()),
        Recorded::Entries(entries) => {
            let change = |entry: Entry| Change { command: undo_command(&entry), entry };
            ("readable", entries.into_values().map(change).collect::<Vec<_>>())
        }
    };
    if how.format.json {
        return print_json(&Listed { ledger, changes });
    }
    let mut lines: Vec<String> = Vec::new();
    match ledger {
        "missing" => lines.push(format!("# There is no ledger at {}: the agent changed nothing here.", path.display())),
        "damaged" => {
            lines.push("# The ledger is damaged: `spand-agent undo --run` goes by the routes' own marks.".to_owned());
        }
        _ if changes.is_empty() => lines.push("# Nothing is in force.".to_owned()),
        _ => {}
    }
    for change in changes {
        let entry = &change.entry;
        lines.push(format!("# initcwnd {} ({}); before: {}", entry.window.0, entry.reason, entry.old));
        lines.push(change.command);
    }
    print(&lines.join("\n"))
}

fn take_back(recorded: &Recorded, how: Undo) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)?;
    let done = runtime
        .block_on(async { clean_up(&Netlink::open()?, recorded).await })
        .map_err(|error| Failure::Environment(format!("cannot take everything back: {error}")))?;
    if how.format.json {
        return print_json(&Undone { removed: done.removed, left: done.left });
    }
    let mut lines: Vec<String> =
        done.removed.iter().map(|network| format!("removed the route for {network}")).collect();
    lines.extend(done.left.iter().map(|network| format!("left the route for {network}: it is not in the ledger")));
    if lines.is_empty() {
        lines.push("nothing is in force".to_owned());
    }
    print(&lines.join("\n"))
}
