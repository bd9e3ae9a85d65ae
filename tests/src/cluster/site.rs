//! Servers and gateways of one site, in a namespace of their own.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use async_nats::jetstream;
use async_nats::jetstream::stream::{Config, External, Source, StorageType};

use super::gateway::{Gateway, Setup};
use super::{Server, Servers};
use crate::cluster::cases::Programs;
use crate::lab::namespace::Namespace;
use crate::patience::PATIENCE;

const SITE: &str = "here";

/// Has servers keep a copy of the stream of the site `of`, as the documentation does it with `nats stream add`.
///
/// # Errors
/// Where the servers make none.
pub async fn copy_stream(server: &str, of: &str, replicas: usize) -> Result<()> {
    let name = format!("spand-main-{of}");
    let external = External { api_prefix: format!("$JS.{of}.API"), delivery_prefix: None };
    let stream = Config {
        name: name.clone(),
        storage: StorageType::Memory,
        mirror: Some(Source { name, external: Some(external), ..Source::default() }),
        max_age: Duration::from_secs(330),
        num_replicas: replicas,
        allow_direct: true,
        ..Config::default()
    };
    let client = async_nats::connect(server).await?;
    jetstream::new(client)
        .create_stream(stream)
        .await
        .with_context(|| format!("no copy of the stream of site {of}"))?;
    Ok(())
}

/// The same, and waits for it.
///
/// # Errors
/// As [`copy_stream`].
pub fn keep_copy(server: &str, of: &str, replicas: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(copy_stream(server, of, replicas))
}

/// Servers, and gateways that share over them.
#[derive(Debug)]
pub struct Site {
    /// Its name.
    pub name: String,
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
        let mut site = Self::of(SITE, namespace, servers);
        site.add(programs, 1..=gateways, lines)?;
        site.hear(gateways - 1)?;
        Ok(Some(site))
    }

    /// With servers that run, and no gateways yet.
    pub fn of(name: &str, namespace: Namespace, servers: Servers) -> Self {
        Self { name: name.to_owned(), namespace, servers, gateways: Vec::new() }
    }

    /// Starts gateways with these numbers.
    ///
    /// # Errors
    /// Where one does not start.
    pub fn add(
        &mut self,
        programs: &Programs,
        numbers: RangeInclusive<u16>,
        lines: impl Fn(u16) -> (String, String),
    ) -> Result<()> {
        for number in numbers {
            let (share, more) = lines(number);
            let setup = Setup {
                number,
                program: &programs.gateway,
                arguments: vec!["run".to_owned()],
                servers: self.servers.urls(),
                share: format!("site = \"{}\"\nkept_mib = 200\n{share}", self.name),
                backend: "auto",
                more,
            };
            self.gateways.push(Gateway::start(&self.namespace, &setup, |_| Ok(()))?);
        }
        Ok(())
    }

    /// Waits until each of its gateways hears N others.
    ///
    /// # Errors
    /// Where one does not.
    pub fn hear(&self, others: u16) -> Result<()> {
        let latest = Instant::now() + PATIENCE;
        for gateway in &self.gateways {
            while gateway.metrics()?.sum("spand_share_members") < f64::from(others) - 0.5 {
                ensure!(
                    Instant::now() < latest,
                    "gateway {} does not hear the others: {}",
                    gateway.number(),
                    gateway.log()
                );
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(())
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
                let stream = jetstream::new(client).get_stream(format!("spand-main-{}", self.name)).await?;
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
