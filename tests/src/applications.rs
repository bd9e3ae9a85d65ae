//! An agent's socket for applications, with the advice that a test or a benchmark decides on.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use spand_agent::Clock;
use spand_agent::applications::{Applications, Heard};
use spand_agent::config::Config;
use spand_agent::policy::{Advice, Connection, Question};
use spand_proto::made_up::estimate;
use spand_proto::network::Network;
use spand_proto::units::{Bytes, Micros, Segments, Window};
use tempfile::TempDir;

/// The share of each network that is offered.
const SHARE: Segments = Segments(40);

/// The socket, served as long as this lives. No connection is in the control group.
#[derive(Debug)]
pub struct Offering {
    applications: Applications,
    clock: Clock,
    folder: TempDir,
}

impl Offering {
    /// Offers nothing yet; has room for this number of networks.
    pub fn new(networks: u32) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let text = format!(
            "[applications]\nsocket = \"{}\"\nnetworks = {networks}\n[bpf]\ncontrol_fraction = 0.0\n[holdout]\nfraction = 0.0",
            socket(&folder).display()
        );
        let config = Config::parse(&text, Path::new("agent.toml"))?;
        let clock = Clock::start();
        let applications = Applications::listen(&config, clock)?.context("a socket is configured")?;
        Ok(Self { applications, clock, folder })
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        socket(&self.folder)
    }

    /// Offers forty segments for a network, for an hour.
    pub fn decide(&self, network: Network, paused: bool) {
        let now = self.clock.now();
        let share = Window::from_segments(SHARE, Bytes(1_448));
        let expires = now.after(Micros::from_secs(3_600));
        let advice = Advice { estimate: estimate(network, share, now), lease: None, expires };
        self.applications.offer(&Question {
            network,
            within: None,
            advice: Some(&advice),
            now,
            wall_unix_s: 0,
            paused,
            connection: Connection::default(),
        });
    }

    /// Waits for what applications bring.
    pub async fn hear(&mut self) -> Heard {
        self.applications.hear().await
    }

    /// Starts that were computed for applications without a table.
    pub fn starts(&self) -> u64 {
        self.applications.status().starts
    }
}

fn socket(folder: &TempDir) -> PathBuf {
    folder.path().join("applications.sock")
}
