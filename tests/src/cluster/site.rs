//! Servers and gateways of one site, in a namespace of their own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_nats::jetstream;

use super::gateway::{Gateway, Setup};
use super::{Server, Servers};
use crate::cluster::cases::Programs;
use crate::lab::namespace::Namespace;

/// Gateways that do not share by then have failed.
const SHARES_WITHIN: Duration = Duration::from_secs(30);
const SITE: &str = "here";

/// Servers, and gateways numbered from 1 that share over them.
#[derive(Debug)]
pub struct Site {
    /// Where all of them are.
    pub namespace: Namespace,
    /// Its servers.
    pub servers: Servers,
    /// Its gateways, in the order of their numbers.
    pub gateways: Vec<Gateway>,
}

impl Site {
    /// Starts both, and returns when every gateway hears all others. `None` where there is no program to start as a server.
    ///
    /// # Errors
    /// Where something does not start, or gateways do not find each other.
    pub fn start(programs: &Programs, servers: usize, gateways: u16, more: &str) -> Result<Option<Self>> {
        Self::start_with(programs, servers, gateways, |_| (String::new(), more.to_owned()))
    }

    /// The same, with lines of the `[share]` section and further sections for each gateway by its number.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        programs: &Programs,
        servers: usize,
        gateways: u16,
        lines: impl Fn(u16) -> (String, String),
    ) -> Result<Option<Self>> {
        let namespace = Namespace::create("site")?;
        let Some(servers) = namespace.enter(|| Servers::start(servers, ""))? else { return Ok(None) };
        let mut site = Self { namespace, servers, gateways: Vec::new() };
        for number in 1..=gateways {
            let (share, more) = lines(number);
            let setup = Setup {
                number,
                program: &programs.gateway,
                arguments: vec!["run".to_owned()],
                servers: site.servers.urls(),
                share: format!("site = \"{SITE}\"\nkept_mib = 200\n{share}"),
                backend: "auto",
                more,
            };
            site.gateways.push(Gateway::start(&site.namespace, &setup, |_| Ok(()))?);
        }
        let latest = Instant::now() + SHARES_WITHIN;
        for gateway in &site.gateways {
            while gateway.metrics()?.sum("spand_share_members") < f64::from(gateways - 1) - 0.5 {
                ensure!(
                    Instant::now() < latest,
                    "gateway {} does not hear the others: {}",
                    gateway.number(),
                    gateway.log()
                );
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(Some(site))
    }

    /// The server that leads the stream of closed cells.
    ///
    /// # Errors
    /// Where none does.
    pub fn leader(&mut self) -> Result<&mut Server> {
        // Those that do not run are passed over.
        let urls: Vec<async_nats::ServerAddr> =
            self.servers.urls().iter().map(|url| url.parse()).collect::<Result<_, _>>()?;
        let name = self.namespace.enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let client = async_nats::connect(urls).await?;
                let stream = jetstream::new(client).get_stream(format!("spand-main-{SITE}")).await?;
                let leader = stream.cached_info().cluster.clone().and_then(|cluster| cluster.leader);
                leader.context("the stream has no leader")
            })
        })?;
        self.server(&name)
    }

    /// A server by its name.
    ///
    /// # Errors
    /// Where there is none with it.
    pub fn server(&mut self, name: &str) -> Result<&mut Server> {
        self.servers.named(name).context("no such server")
    }

    /// Starts a server again.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn start_server(&mut self, name: &str) -> Result<()> {
        let place = self.servers.all().iter().position(|server| server.name == name).context("no such server")?;
        let servers = &mut self.servers;
        self.namespace.enter(|| servers.start_one(place))
    }
}
