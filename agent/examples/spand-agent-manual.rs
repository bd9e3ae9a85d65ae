//! Writes the man pages and shell completions of `spand-agent` below a folder, as a package installs them:
//! `cargo run --release -p spand-agent --example spand-agent-manual -- FOLDER`.

#[path = "../../packaging/manual.rs"]
mod manual;

use clap::CommandFactory;

fn main() -> std::io::Result<()> {
    manual::write("spand-agent", spand_agent::cli::Cli::command())
}
