//! A gateway's listeners on loopback, as its configuration says, and clients of all kinds.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, Once, PoisonError};
use std::thread::ThreadId;
use std::{fs, io, thread};

use anyhow::{Context, Result, bail};
use spand_confine::Confined;
use spand_core::event::Event;
use spand_gateway::api::{Access, Api, ApiConfig};
use spand_gateway::config::Config;
use spand_gateway::publisher::{Batch, MonotonicClock, PacketClock, Part, Published};
use spand_proto::units::Window;
use spand_proto::v1::spand_client::SpandClient;
use spand_proto::{made_up, v1};
use strum::VariantArray;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::authority::{Authority, Made};

/// What a stage is made of.
pub struct Setup {
    /// The authority of both sides.
    pub authority: Authority,
    /// The gateway's certificate.
    pub gateway: Made,
    /// Lines of its configuration; `tls` is there already.
    pub more: String,
    /// What limits it beside that.
    change: Box<dyn FnOnce(&mut ApiConfig) + Send>,
}

/// Running listeners, on the caller's runtime.
pub struct Stage {
    /// Where its files lie: `gateway.pem`, `gateway.key`, `ca.pem`, `revoked.pem`.
    pub folder: TempDir,
    /// What proves agents.
    pub authority: Authority,
    /// What it asks of those who connect.
    pub access: Access,
    /// What is published.
    pub published: Published,
    /// Where agents connect.
    pub grpc: SocketAddr,
    /// Where people connect.
    pub http: SocketAddr,
    stop: watch::Sender<bool>,
}

impl Setup {
    /// The usual: a gateway named `localhost` and `127.0.0.1`.
    pub fn new() -> Result<Self> {
        let authority = Authority::new("agents")?;
        let gateway = authority.make(&["localhost", "127.0.0.1"])?;
        Ok(Self { authority, gateway, more: String::new(), change: Box::new(|_| {}) })
    }

    /// The same with these lines in its configuration.
    pub fn with(more: &str) -> Result<Self> {
        Ok(Self { more: more.to_owned(), ..Self::new()? })
    }

    /// The same with other limits than those of its configuration.
    #[must_use]
    pub fn limited(self, change: impl FnOnce(&mut ApiConfig) + Send + 'static) -> Self {
        Self { change: Box::new(change), ..self }
    }

    /// Starts the listeners. It knows one network, `192.0.2.0/24`.
    pub async fn start(self) -> Result<Stage> {
        let Self { authority, gateway, more, change } = self;
        let folder = tempfile::tempdir()?;
        gateway.write(folder.path(), "gateway")?;
        fs::write(folder.path().join("ca.pem"), authority.certificate())?;
        fs::write(folder.path().join("revoked.pem"), authority.revoke(&[])?)?;
        let tls = "[tls]\ncertificate = \"gateway.pem\"\nkey = \"gateway.key\"\nca = \"ca.pem\"\n\
                   revoked = \"revoked.pem\"\n";
        let tls = if more.contains("[tls]") { "" } else { tls };
        let file = folder.path().join("gateway.toml");
        fs::write(&file, format!("{tls}{more}"))?;
        let config = Config::load(&file)?;
        let clock = MonotonicClock::from_wall_clock();
        let published = Published::new(config.publisher(), clock);
        tokio::spawn(published.clone().run());
        let network = "192.0.2.0/24".parse().map_err(|error| anyhow::anyhow!("{error}"))?;
        let share = Window::from_bytes(28_960.0).context("a window")?;
        let estimate = Event::estimate(made_up::estimate(network, share, clock.now()));
        published.apply(Batch { events: vec![estimate], ..Batch::new() });
        for &part in Part::VARIANTS {
            published.readiness().ready(part);
        }
        let access = Access::open(&config)?;
        let mut limits = config.api();
        change(&mut limits);
        let api = Api::with_access(limits, access.clone(), published.clone(), (None, None), &Confined::default());
        let (grpc, http) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
        let (grpc_address, http_address) = (grpc.local_addr()?, http.local_addr()?);
        let (stop, stopped) = watch::channel(false);
        let (also, also_stopped) = (api.clone(), stopped.clone());
        tokio::spawn(async move { also.serve_grpc(grpc, also_stopped).await });
        tokio::spawn(async move { api.serve_http(http, stopped).await });
        Ok(Stage { folder, authority, access, published, grpc: grpc_address, http: http_address, stop })
    }
}

impl Stage {
    /// Where a file of its configuration lies.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces a file of its configuration, and has it look.
    pub fn replace(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.path().join(name), text)?;
        self.access.look();
        Ok(())
    }

    /// A client that takes the gateway for `name`, proves it by the stage's authority, and shows what it has.
    pub async fn client(&self, shows: Option<&Made>) -> Result<SpandClient<Channel>> {
        let mut tls = ClientTlsConfig::new()
            .domain_name("localhost")
            .ca_certificate(Certificate::from_pem(self.authority.certificate()));
        if let Some(made) = shows {
            tls = tls.identity(Identity::from_pem(&made.certificate, &made.key));
        }
        let endpoint = Endpoint::from_shared(format!("https://{}", self.grpc))?.tls_config(tls)?;
        Ok(SpandClient::new(endpoint.connect().await?))
    }

    /// A client that speaks no TLS.
    pub async fn plain_client(&self) -> Result<SpandClient<Channel>> {
        Ok(SpandClient::connect(format!("http://{}", self.grpc)).await?)
    }

    /// Whether one who shows this gets an answer.
    pub async fn answers(&self, shows: Option<&Made>) -> Result<()> {
        let mut client = self.client(shows).await?;
        client.query(question()).await?;
        Ok(())
    }

    /// Asks plainly over HTTP with these lines of a head: status, head and body.
    pub async fn get(&self, path: &str, head: &str) -> Result<(u16, String, String)> {
        let mut tcp = TcpStream::connect(self.http).await?;
        let request = format!("GET {path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n");
        tcp.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        tcp.read_to_string(&mut answer).await?;
        split(&answer)
    }

    /// The value of a metric, by its name with labels.
    pub async fn metric(&self, name: &str) -> Result<u64> {
        let (_, _, text) = self.get("/metrics", "Host: localhost\r\n").await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.with_context(|| format!("no {name} in {text}"))?.parse().with_context(|| format!("{name} is no number"))
    }

    /// Refusals for a reason.
    pub async fn refused(&self, api: &str, reason: &str) -> Result<u64> {
        self.metric(&format!("spand_api_refused_total{{api=\"{api}\",reason=\"{reason}\"}}")).await
    }

    /// Stops the listeners.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// An answer's status, head and body.
fn split(answer: &str) -> Result<(u16, String, String)> {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { bail!("no answer: {answer:?}") };
    let status = head.split(' ').nth(1).context("a status")?.parse()?;
    Ok((status, head.to_owned(), body.to_owned()))
}

/// A question about the network that the stage knows.
pub fn question() -> v1::QueryRequest {
    let question = v1::Question { address: "192.0.2.7".to_owned(), ..v1::Question::default() };
    v1::QueryRequest { contract_version: 1, questions: vec![question], ..v1::QueryRequest::default() }
}

// What a thread logs, to be looked at.

/// What each thread logged. One subscriber for all: one for each thread would miss lines whose place another thread
/// passed first.
static LINES: Mutex<Option<HashMap<ThreadId, Vec<u8>>>> = Mutex::new(None);
static STARTED: Once = Once::new();

/// What was logged on a thread, and so by the tasks of a runtime that has no other.
#[derive(Clone, Copy, Debug)]
pub struct Log(ThreadId);

impl Log {
    /// What this thread logs from now on.
    pub fn of_this_thread() -> Self {
        STARTED.call_once(|| {
            let started = tracing_subscriber::fmt().with_ansi(false).with_writer(|| ToThread).try_init();
            // Where a test has one of its own, nothing is found here, and it fails.
            drop(started);
        });
        Self(thread::current().id())
    }

    /// Lines that hold `words`.
    pub fn lines(self, words: &str) -> Vec<String> {
        let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let own = lines.as_ref().and_then(|all| all.get(&self.0)).map_or(&[][..], Vec::as_slice);
        let text = String::from_utf8_lossy(own);
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

struct ToThread;

impl Write for ToThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        let own = lines.get_or_insert_default().entry(thread::current().id()).or_default();
        own.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
