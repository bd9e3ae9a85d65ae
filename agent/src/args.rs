//! What the commands are given on the command line.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use spand_proto::operator::parse_bytes;

use crate::destination::Destination;
use crate::pause::parse_length;

/// Where the running agent is.
#[derive(Args, Clone, Debug)]
pub(crate) struct Socket {
    /// Control socket of the running agent, whose ledger lies beside it; that of the configured state directory unless given
    #[arg(long, value_name = "SOCKET")]
    pub(crate) socket: Option<PathBuf>,
}

/// A command to the running agent that only prints.
#[derive(Args, Clone, Debug)]
pub(crate) struct Running {
    #[command(flatten)]
    pub(crate) at: Socket,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// How to print.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A question for the gateway.
#[derive(Args, Debug)]
pub(crate) struct Query {
    /// Where to: an address, or a host name, of which every address is asked about
    #[arg(value_name = "DEST")]
    pub(crate) destination: Destination,
    /// Size of the transfer in bytes, such as 100k (100,000), 2M or 64Ki (65,536)
    #[arg(long, value_name = "N", value_parser = parse_bytes)]
    pub(crate) bytes: Option<NonZeroU64>,
    /// Segment size less options, in bytes; that of the estimate unless given
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) mss: Option<NonZeroU64>,
    /// The peer's receive window, scaled, in bytes
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) peer_window: Option<NonZeroU64>,
    /// Round trip of the connection's handshake
    #[arg(long, value_name = "MS")]
    pub(crate) handshake_ms: Option<f64>,
    /// The gateway, instead of the configured one
    #[arg(long, value_name = "URL")]
    pub(crate) gateway: Option<String>,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// A question for the running agent.
#[derive(Args, Debug)]
pub(crate) struct Explain {
    /// Where to: an address, or a host name, of which every address is asked about
    #[arg(value_name = "DEST")]
    pub(crate) destination: Destination,
    /// Size of the transfer in bytes, such as 100k (100,000), 2M or 64Ki (65,536)
    #[arg(long, value_name = "N", value_parser = parse_bytes)]
    pub(crate) bytes: Option<NonZeroU64>,
    /// Segment size less options, in bytes; that of the estimate unless given
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub(crate) mss: Option<NonZeroU64>,
    #[command(flatten)]
    pub(crate) at: Socket,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// A pause.
#[derive(Args, Clone, Debug)]
pub(crate) struct Pause {
    /// How long, such as 90s, 30m or 1h30m; until `resume` unless given
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_length)]
    pub(crate) length: Option<Duration>,
    #[command(flatten)]
    pub(crate) at: Socket,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Taking back.
#[derive(Args, Clone, Debug)]
pub(crate) struct Undo {
    /// Take everything back now; a running agent is paused as well, until `resume`
    #[arg(long)]
    pub(crate) run: bool,
    #[command(flatten)]
    pub(crate) at: Socket,
    #[command(flatten)]
    pub(crate) format: Format,
}
