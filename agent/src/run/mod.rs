//! The running agent: one task that owns all state, fed by the subscription, the kernel, commands and time.

use std::fs;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use spand_confine::{Capability, Confined};
use spand_proto::contract::HostName;
use spand_proto::operator::Failure;
use spand_proto::push::{self, AgentDescription};
use spand_proto::report::PushCount;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::{error, info, warn};

mod addresses;
mod agent;
mod explain;
mod gateway;
mod in_force;
mod needs;
mod pause;
mod pushes;
mod scrape;
mod seen;
mod startup;
mod status;

use agent::Agent;

use crate::applications::{Applications, Heard};
use crate::apply::bpf::{self, BpfApplier, NotStarted};
use crate::apply::route::{RouteApplier, only_agent_here};
use crate::apply::{Applier, DryRun, Lack, News};
use crate::capabilities::Capabilities;
use crate::clock::Clock;
use crate::config::{ApplyMethod, Config, Fallback, Variant};
use crate::control::{Pending, Server};
use crate::pause::Pause;
use crate::subscriber::{Dialer, QUEUE, Reporter, Subscriber, TlsError};

/// How often lifetimes and time slots are looked at. Half of this is the mean delay of an end.
const TICK: Duration = Duration::from_secs(1);

/// Capacity of each queue of ended connections: of the kernel's, and of applications'.
const ENDED_QUEUE: usize = 4_096;

/// How long a stop may take to remove what is in force.
const STOP_PATIENCE: Duration = Duration::from_secs(4);

/// What a running agent has of its own, whatever its apply method.
#[derive(Debug)]
struct Own {
    clock: Clock,
    dialer: Arc<Dialer>,
    confined: Confined,
    /// The configuration's, read again on SIGHUP.
    file: PathBuf,
    hangup: Signal,
    /// Where metrics are asked for.
    scraped: Option<TcpListener>,
    taken: Taken,
}

/// What this machine takes of the configuration's apply method.
#[derive(Clone, Debug)]
struct Taken {
    /// Apply method and variant, as configured.
    configured: (ApplyMethod, Variant),
    /// The same in force.
    in_force: (ApplyMethod, Variant),
    lacks: Vec<Lack>,
}

impl Taken {
    /// All of it.
    fn whole(config: &Config) -> Self {
        let configured = (config.apply, config.bpf.variant);
        Self { configured, in_force: configured, lacks: Vec::new() }
    }

    /// This of it.
    fn part(config: &Config, in_force: (ApplyMethod, Variant), lacks: Vec<Lack>) -> Self {
        Self { in_force, lacks, ..Self::whole(config) }
    }

    /// A configuration as it is in force: what was asked for at the start stays what it became.
    fn of(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if (config.apply, config.bpf.variant) == self.configured {
            (config.apply, config.bpf.variant) = self.in_force;
        }
        config
    }
}

/// Runs until SIGTERM or SIGINT with the configuration of `file`, which SIGHUP has it read again.
pub(crate) fn run(config: &Config, file: &Path) -> Result<(), Failure> {
    config.log.start();
    for warning in &config.renamed {
        warn!("{}: {warning}", file.display());
    }
    if let Some(exposed) = config.tls.key.as_deref().and_then(spand_confine::exposed) {
        warn!("{exposed}");
    }
    let scraped = config.metrics.listen.map(scrape::bind).transpose()?;
    // The kernel lists them for a capability that goes next.
    let others = if config.apply == ApplyMethod::Bpf { bpf::others() } else { Vec::new() };
    let confined = spand_confine::confine(&config.process, &needs::needs(config, file))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::environment)?;
    runtime.block_on(serve(config, (confined, others), file, scraped))
}

async fn serve(
    config: &Config,
    (confined, others): (Confined, Vec<bpf::Other>),
    file: &Path,
    scraped: Option<TcpListener>,
) -> Result<(), Failure> {
    // One that comes before everything is ready is answered then, and does not end the agent.
    let hangup = signal(SignalKind::hangup()).map_err(Failure::environment)?;
    let clock = Clock::start();
    let dialer = Arc::new(Dialer::new(config)?);
    make_state_dir(&config.state_dir)?;
    let taken = Taken::whole(config);
    let mut own = Own { clock, dialer, confined, file: file.to_owned(), hangup, scraped, taken };
    match config.apply {
        ApplyMethod::DryRun => run_with(config, own, DryRun::default()).await,
        ApplyMethod::Route => run_with_routes(config, own).await,
        ApplyMethod::Bpf => match started(config, &mut own, others) {
            Ok(applier) => {
                let taken = Taken::part(config, (config.apply, applier.variant()), applier.lacks().to_vec());
                run_with(&taken.of(config), Own { taken, ..own }, applier).await
            }
            Err(NotStarted::Lacking(lack)) if config.bpf.fallback != Fallback::Exit => {
                let routes = config.bpf.fallback == Fallback::Route;
                let (apply, goes_on) = if routes {
                    (ApplyMethod::Route, "routes are set in their place (bpf.fallback)")
                } else {
                    (ApplyMethod::DryRun, "the agent runs without advice (bpf.fallback)")
                };
                error!(part = %lack.part, "{}; {goes_on}", lack.sentence());
                let taken = Taken::part(config, (apply, config.bpf.variant), vec![lack]);
                let (config, own) = (&taken.of(config), Own { taken, ..own });
                if routes { run_with_routes(config, own).await } else { run_with(config, own, DryRun::default()).await }
            }
            Err(NotStarted::Lacking(lack)) => Err(Failure::Environment(lack.sentence())),
            Err(NotStarted::Failed(failure)) => Err(failure),
        },
    }
}

fn started(config: &Config, own: &mut Own, others: Vec<bpf::Other>) -> Result<BpfApplier, NotStarted> {
    let loaded = startup::loading(|| BpfApplier::load(config, others));
    // It was for the types of modules, and goes before a packet meets a program, and where none was loaded. Where the other two are not
    // known, it stands for them.
    if Capabilities::own().is_some_and(Capabilities::may_load_without_sys_admin) {
        own.confined.keep_no_more(Capability::CAP_SYS_ADMIN);
    }
    loaded?.attach(config, &config.policy(), own.clock)
}

async fn run_with_routes(config: &Config, own: Own) -> Result<(), Failure> {
    if Capabilities::own().is_some_and(|own| !own.may_change_routes()) {
        return Err(Failure::Environment(
            "apply = \"route\" needs the capability CAP_NET_ADMIN: run as root or give it to the service, or set apply to \
             dry_run"
                .to_owned(),
        ));
    }
    let _lock = only_agent_here()?;
    let applier = RouteApplier::start(config, own.clock.now()).await?;
    run_with(config, own, applier).await
}

async fn run_with<A: Applier>(config: &Config, mut own: Own, applier: A) -> Result<(), Failure> {
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::environment)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::environment)?;
    let (ask, mut asked) = mpsc::channel::<Pending>(16);
    let scrapes = own.scraped.take().map(|listener| tokio::spawn(scrape::serve(listener, ask.clone())));
    let _server = Server::start(&config.control_socket(), ask)?;
    // TCP is advised all the same.
    let (applications, applications_error) = match Applications::listen(config, own.clock) {
        Ok(applications) => (applications, None),
        Err(failure) => {
            warn!("applications are given no advice: {failure}; start the agent again once that is fixed");
            (None, Some(failure.to_string()))
        }
    };
    own.confined.listen_no_more();
    let pause = Pause::open(&config.pause_file(), own.clock).map_err(Failure::environment)?;
    let (pausing, paused) = watch::channel(pause.pausing());

    let host_name = host_name(config)?;
    let (change_addresses, addresses) = watch::channel(addresses::find(config).await?);
    let (signals, mut heard) = mpsc::channel(QUEUE);
    let speaker = (host_name.clone(), description(config));
    let (change_mode, mode) = watch::channel(config.mode);
    let subscriber = Subscriber::new(Arc::clone(&own.dialer), own.clock, speaker, signals)
        .with_pause(paused.clone())
        .with_mode(mode);
    let subscription = tokio::spawn(subscriber.run(addresses.clone()));
    let (count, counted) = watch::channel(PushCount::default());
    let reporter =
        Reporter::new(Arc::clone(&own.dialer), host_name.clone(), own.clock.now()).with_pause(own.clock, paused);
    let (end, ended) = mpsc::channel(ENDED_QUEUE);
    let (end_application, ended_application) = mpsc::channel(ENDED_QUEUE);
    let reports = tokio::spawn(reporter.run(counted, ended, ended_application));

    let mut agent = Agent::new(config, own, host_name, addresses, (pause, pausing), change_mode, applier);
    (agent.applications, agent.applications_error) = (applications, applications_error);
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = interval(addresses::INTERVAL);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let batch = Duration::from_millis(config.route.batch_ms.get());
    let mut last_batch = Instant::now().checked_sub(batch).unwrap_or_else(Instant::now);
    agent.confined.say();
    info!(mode = %config.mode, apply = %config.apply, gateway = agent.dialer.urls().join(", "), "running");
    supervise(NotifyState::Ready);
    let watched = sd_notify::watchdog_enabled().is_some();

    loop {
        tokio::select! {
            biased;
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = agent.hangup.recv() => agent.reload().await,
            // First of all: a next hop in doubt goes before anything else is read.
            news = agent.applier.news() => match news {
                News::Disturbed => {
                    agent.reconcile().await;
                }
                News::Ended(connections) => agent.on_ended(connections, &end),
            },
            // Only changes are held back: an announced start must not wait because nothing had to be done a moment ago.
            () = sleep_until(last_batch + batch), if agent.is_stale() => {
                if agent.reconcile().await {
                    last_batch = Instant::now();
                }
            }
            Some(pending) = asked.recv() => agent.answer(pending).await,
            signal = heard.recv() => match signal {
                Some(signal) => agent.on_signal(signal),
                // The subscriber only ends with its receiver.
                None => return Err(Failure::Environment("the subscription ended for good".to_owned())),
            },
            _ = tick.tick() => {
                if watched {
                    supervise(NotifyState::Watchdog);
                }
                agent.on_tick();
                agent.seen.on_tick(agent.applier.seen(), agent.clock.now());
                agent.pushes.publish(agent.seen.missed(), &count);
            }
            _ = look.tick() => addresses::refresh(config, &change_addresses).await,
            // This branch is the last one, since an application may send without end. The queue has a limit, and what does not fit is counted.
            heard = hear(&mut agent.applications) => agent.on_application(&heard, &end_application),
        }
    }
    info!("stopping: what is in force is removed");
    supervise(NotifyState::Stopping);
    subscription.abort();
    reports.abort();
    if let Some(scrapes) = scrapes {
        scrapes.abort();
    }
    agent.stop(STOP_PATIENCE).await
}

/// Waits for what applications bring, where they may ask.
async fn hear(applications: &mut Option<Applications>) -> Heard {
    match applications {
        Some(applications) => applications.hear().await,
        None => std::future::pending().await,
    }
}

/// Sends a state to the service manager, where there is one, by `sd_notify(3)`.
fn supervise(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager takes no notification");
    }
}

impl From<TlsError> for Failure {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::Unreadable { .. } => Self::environment(error),
            TlsError::Pem(_) | TlsError::Unusable(_) => Self::Usage(error.to_string()),
        }
    }
}

/// What the gateway shows of this agent.
fn description(config: &Config) -> AgentDescription {
    let method = match config.apply {
        ApplyMethod::DryRun => push::ApplyMethod::DryRun,
        ApplyMethod::Route => push::ApplyMethod::Route,
        ApplyMethod::Bpf => push::ApplyMethod::Bpf,
    };
    AgentDescription {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: Some(config.mode),
        method: Some(method),
        pause: None,
    }
}

fn make_state_dir(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path)
        .map_err(|error| Failure::Environment(format!("cannot make the state directory {}: {error}", path.display())))
}

/// The configured name, or the machine's.
fn host_name(config: &Config) -> Result<HostName, Failure> {
    HostName::try_from(config.own_name()).map_err(|error| Failure::Usage(format!("host_name: {error}")))
}

/// Whether an address is one that others reach this host by.
pub(crate) fn is_reachable(address: IpAddr) -> bool {
    let link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || link_local)
}
