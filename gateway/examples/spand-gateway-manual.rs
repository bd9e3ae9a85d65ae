//! Writes the man pages and shell completions of `spand-gateway` below a folder, as a package installs them:
//! `cargo run --release -p spand-gateway --example spand-gateway-manual -- FOLDER`.

#[path = "../../packaging/manual.rs"]
mod manual;

use clap::CommandFactory;

fn main() -> std::io::Result<()> {
    manual::write("spand-gateway", spand_gateway::cli::Cli::command())
}
