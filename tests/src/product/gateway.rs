//! One gateway in the lab: its process, killed and started again with what it saved.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::api::Api;
use super::daemon::Daemon;
use super::running::{HTTP_PORT, utf8, wait, write};
use super::setup::GatewaySetup;
use crate::lab::namespace::Namespace;
use crate::patience::PATIENCE;

/// What gateways that share hash under: these share nothing with anyone else.
const SECRET: &str = "00112233445566778899aabbccddeeff\n";

/// A gateway, running or killed.
#[derive(Debug)]
pub struct Gateway {
    daemon: Option<Daemon>,
    api: Api,
    program: PathBuf,
    folder: PathBuf,
}

impl Gateway {
    /// Starts it and waits until it is ready. Its files are in `folder`, made where it is missing.
    pub fn start(namespace: &Namespace, program: &Path, setup: &GatewaySetup, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        write(&folder.join("gateway.toml"), &setup.toml())?;
        if setup.sharing.is_some() {
            write(&folder.join("share.secret"), SECRET)?;
        }
        let address = SocketAddr::new(setup.management.into(), HTTP_PORT);
        let api = Api { namespace: namespace.clone(), address };
        let mut gateway = Self { daemon: None, api, program: program.to_owned(), folder: folder.to_owned() };
        gateway.run()?;
        Ok(gateway)
    }

    /// Starts it again after [`Self::kill`], and waits until it is ready.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.daemon.is_none(), "the gateway runs already");
        let log = self.folder.join("spand-gateway.log");
        std::fs::rename(&log, self.folder.join("spand-gateway.before.log"))?;
        self.run()
    }

    fn run(&mut self) -> Result<()> {
        let config = self.folder.join("gateway.toml");
        let arguments = ["run", "--config", utf8(&config)?];
        let daemon = Daemon::start("spand-gateway", &self.program, &arguments, &self.api.namespace, &self.folder)?;
        self.daemon = Some(daemon);
        wait("the gateway's start", PATIENCE, || {
            self.check()?;
            Ok(self.api.get("/readyz").is_ok_and(|(status, _)| status == 200).then_some(()))
        })
    }

    /// Its JSON interface.
    pub const fn api(&self) -> &Api {
        &self.api
    }

    /// Fails where it ended by itself.
    pub fn check(&mut self) -> Result<()> {
        self.daemon.as_mut().map_or(Ok(()), Daemon::check)
    }

    /// Ends it at once (SIGKILL): it sends and saves nothing more.
    pub fn kill(&mut self) -> Result<()> {
        self.daemon.take().map_or(Ok(()), Daemon::kill)
    }

    /// Stops it in order, and says how that went.
    pub fn stop(self) -> String {
        self.daemon.map_or_else(|| "spand-gateway was killed".to_owned(), Daemon::stop)
    }
}
