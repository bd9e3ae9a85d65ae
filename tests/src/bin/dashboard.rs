//! A gateway with a dashboard to look at: kept captures of real TCP played again and again, and made-up networks.

use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use spand_tests::dashboard::stage::Stage;
use spand_tests::ending::{arguments, exit_code};
use spand_tests::product::interrupt;

#[derive(Debug, Parser)]
#[command(about = "Shows the dashboard on played captures and made-up networks until Ctrl-C")]
struct Arguments {
    /// Where it answers
    #[arg(long, default_value = "127.0.0.1:7480")]
    listen: SocketAddr,
    /// Made-up networks beside those of the captures
    #[arg(long, default_value_t = 10_000)]
    networks: usize,
    /// Make up faults, too: dropped packets, advice that is withdrawn and other gateways that cannot be shared with
    #[arg(long)]
    faults: bool,
}

fn main() -> ExitCode {
    exit_code(show())
}

fn show() -> Result<()> {
    let Arguments { listen, networks, faults } = arguments();
    let stage = Stage::start(&["cubic-four-flows", "bbr-ipv6"], networks, listen)?;
    if faults {
        stage.invent_faults()?;
    }
    println!("the dashboard is at {}; Ctrl-C ends it", stage.url());
    interrupt::install()?;
    while !interrupt::came() {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    Ok(())
}
