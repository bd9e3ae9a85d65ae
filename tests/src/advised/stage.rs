//! The lab with the agent's programs in this process.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use spand_agent::Clock;
use spand_agent::apply::bpf::BpfApplier;
use spand_agent::apply::{Applier as _, Decided, Desired, DesiredStarts, Inputs, News, Skipped, StartReason};
use spand_agent::config::{ApplyMethod, Bbr, Config, Namespaces};
use spand_agent::policy::Policy;
use spand_proto::growth::Growth;
use spand_proto::network::Network;
use spand_proto::report::ConnectionReport;
use spand_proto::start::{Mode, Shape};
use spand_proto::units::{Micros, Segments};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::lab::namespace::Cgroup;
use crate::lab::topology::{NetworkPlan, Topology};
use crate::lab::traffic::{Client, Conduct, Plan, Server, Transfer};
use crate::lab::truth::{FlowId, Record, Row, SegmentTruth};

/// How long the advice holds; longer than any run.
const LIFETIME: Micros = Micros::from_secs(3_600);

/// How connections to a network start, and grow in slow start.
#[derive(Clone, Copy, Debug)]
pub struct Advice {
    /// Growth in slow start.
    pub growth: Growth,
    /// What is known of the network.
    pub inputs: Inputs,
}

impl Advice {
    /// A start of this shape, which knows the round trip and nothing else.
    pub fn shape(shape: Shape, rtt: Duration) -> Self {
        let rtt = Micros(u64::try_from(rtt.as_micros()).unwrap_or(u64::MAX));
        let inputs = Inputs {
            share_half_bytes: 0,
            pipe_half_bytes: 0,
            bdp_bytes: 0,
            threshold_bytes: 0,
            rtt: Some(rtt),
            proven: true,
            backed: true,
            lossless: false,
            cap: None,
            lease: None,
            shape,
            opening_half_bytes: 0,
            losses: None,
            overflow_bytes: 0,
        };
        Self { growth: Growth::Standard, inputs }
    }

    /// A start with a window and a threshold in segments of `mss` bytes.
    pub fn start(window: u32, threshold: u32, mss: u64, rtt: Duration) -> Self {
        let mut advice = Self::shape(Shape::Paced, rtt);
        let half_bytes = 2 * u64::from(window) * mss;
        (advice.inputs.share_half_bytes, advice.inputs.pipe_half_bytes) = (half_bytes, half_bytes);
        advice.inputs.threshold_bytes = u64::from(threshold) * mss;
        advice
    }

    /// The same with another growth.
    #[must_use]
    pub fn growing(self, growth: Growth) -> Self {
        Self { growth, ..self }
    }
}

/// A lab that stands, with connections to its server under advice. One in a process at a time.
pub struct Stage {
    server: Server,
    applier: Mutex<BpfApplier>,
    advised: Vec<(Network, Advice)>,
    clock: Clock,
    mode: Mode,
    runtime: Runtime,
    truth: SegmentTruth,
    record: Record,
    _cgroup: Cgroup,
    /// Its namespaces and paths.
    pub lab: Topology,
}

impl Stage {
    /// Builds it: `base` is the host's congestion control. Networks without advice start as the host does. What is advised is
    /// started with: no part of it and no floor is taken. The limit by the bottleneck's buffer holds where advice knows that.
    ///
    /// # Errors
    /// Without root, or where the kernel refuses.
    pub fn build(base: &str, networks: &[(NetworkPlan, Option<Advice>)]) -> Result<Self> {
        Self::build_with(base, (Bbr::Window, true), networks)
    }

    /// The same with what connections on BBR get, and whether those on CUBIC and Reno are checked.
    ///
    /// # Errors
    /// Without root, or where the kernel refuses.
    pub fn build_with(base: &str, starts: (Bbr, bool), networks: &[(NetworkPlan, Option<Advice>)]) -> Result<Self> {
        let plans: Vec<NetworkPlan> = networks.iter().map(|(plan, _)| *plan).collect();
        let lab = Topology::build(&plans)?;
        lab.server.default_congestion_control(base)?;
        let cgroup = Cgroup::make("advised")?;
        let record = Record::default();
        let truth = SegmentTruth::start(record.clone(), lab.port)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let advised: Vec<(Network, Advice)> =
            networks.iter().filter_map(|(plan, advice)| Some((Network::new(plan.prefix), (*advice)?))).collect();
        let mode = if is_compared_only(&advised) { Mode::Paper } else { Mode::Careful };
        let clock = Clock::start();
        // Reports of connections are waited for inside the runtime.
        let applier = runtime.block_on(async { applier(&cgroup, starts, mode, &advised, clock) })?;
        let server = cgroup.enter(|| Server::start_with(&lab.server, lab.port, &Conduct::default()))?;
        let applier = Mutex::new(applier);
        let stage = Self { server, applier, advised, clock, mode, runtime, truth, record, _cgroup: cgroup, lab };
        stage.renew(LIFETIME);
        Ok(stage)
    }

    /// Advises the same once more, from now on for this time.
    pub fn renew(&self, lifetime: Micros) {
        let now = self.clock.now();
        let desired = |advice: &Advice| Desired {
            window: Segments(1),
            reason: StartReason { mode: self.mode, share: Segments(1), clipped_by: None },
            expires: now.after(lifetime),
            announced: None,
            inputs: advice.inputs,
        };
        let desired: DesiredStarts = self.advised.iter().map(|(network, advice)| (*network, desired(advice))).collect();
        let decided = Decided { desired: &desired, skipped: &Skipped::new(), touched: None };
        self.runtime.block_on(self.applier.lock().reconcile(&decided, now));
    }

    /// Connections that started on advice so far.
    pub fn started(&self) -> u64 {
        self.count("started")
    }

    /// What the programs count under this name.
    pub fn count(&self, name: &str) -> u64 {
        self.applier.lock().counts().get(name).copied().unwrap_or_default()
    }

    /// The next reports of connections that ended; none within a second.
    pub fn reports(&mut self) -> Vec<ConnectionReport> {
        let applier = self.applier.get_mut();
        let news = self.runtime.block_on(async { timeout(Duration::from_secs(1), applier.news()).await });
        match news {
            Ok(News::Ended(ended)) => ended.into_iter().map(|ended| ended.report).collect(),
            Ok(News::Disturbed) | Err(_) => Vec::new(),
        }
    }

    /// Ends it: what the kernel reported of every segment, in order of time. What is still on its way then is not waited for.
    ///
    /// # Errors
    /// Where the kernel's words have holes.
    pub fn finish(self) -> Result<Vec<Row>> {
        drop(self.server);
        ensure!(self.truth.finish()? == 0, "segments without room in the truth");
        ensure!(self.record.dropped() == 0, "more segments than a record keeps");
        Ok(self.record.rows())
    }
}

/// One request of a network's client: how its answer went.
///
/// # Errors
/// Where there is no such client, or the answer stalls.
pub fn ask(lab: &Topology, network: usize, client: usize, plan: &Plan) -> Result<Transfer> {
    let network = lab.networks.get(network).context("a network that was not asked for")?;
    let from = *network.addresses.get(client).context("a client that was not asked for")?;
    let target = lab.server_address(network.plan.prefix);
    network.namespace.enter(|| Client::connect(from, target)?.ask(plan))
}

/// The rows of each connection, in order of time.
pub fn by_connection(rows: Vec<Row>) -> BTreeMap<FlowId, Vec<Row>> {
    let mut connections: BTreeMap<FlowId, Vec<Row>> = BTreeMap::new();
    for row in rows {
        connections.entry(row.flow()).or_default().push(row);
    }
    connections
}

fn is_compared_only(advised: &[(Network, Advice)]) -> bool {
    advised.iter().any(|(_, advice)| advice.inputs.shape.is_compared_only())
}

fn applier(
    cgroup: &Cgroup,
    (bbr, check): (Bbr, bool),
    mode: Mode,
    advised: &[(Network, Advice)],
    clock: Clock,
) -> Result<BpfApplier> {
    let mut config = Config { apply: ApplyMethod::Bpf, mode, ..Config::default() };
    // Names of congestion controls are the whole machine's.
    config.bpf.name = format!("s{}", std::process::id());
    config.bpf.control_fraction = 0.0;
    (config.bpf.bbr, config.bpf.check) = (bbr, check);
    cgroup.folder().clone_into(&mut config.bpf.cgroup);
    // The server of that cgroup is in another one than this.
    config.bpf.namespaces = Namespaces::All;
    let mut policy: Policy = config.policy();
    (policy.start.fraction, policy.start.floor, policy.start.buffered) = (None, None, true);
    policy.growths.prefixes.extend(advised.iter().map(|(network, advice)| (*network, advice.growth)));
    Ok(BpfApplier::start(&config, &policy, clock)?)
}
