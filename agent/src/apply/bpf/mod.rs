//! Starts connections one by one, by programs in the kernel (`src/bpf`): window, threshold and rate from the network, the
//! transfer's size, the peer's window and the connection's own round trip.
//!
//! Nothing is left behind: the programs go with this process, however it ends, and what they read carries the end of the
//! advice's lifetime. Knows nothing about estimates beyond [`Inputs`](super::Inputs), and decides for no network.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use spand_proto::network::Network;
use spand_proto::operator::Failure;
use spand_proto::units::{Bytes, Segments, Timestamp};
use tracing::{info, warn};

mod attached;
mod bbr;
mod events;
mod growths;
mod layout;
mod load;
mod networks;
mod refusal;
#[cfg(test)]
mod tests;

use super::{Applier, ApplyCounts, ByDirection, Decided, Lack, Limitation, News, Outcome, Part};
use crate::clock::Clock;
use crate::config::{ApplyMethod, Config, Namespaces, Variant};
use crate::policy::{Growths, Policy};
use crate::probe;

pub(crate) use attached::{Attached, attached, cgroup2_or, is_cgroup2, no_cgroup2};
pub use events::Ended;
use events::Events;
use growths::GrowthTables;
use layout::Settings;
use load::{Names, Programs, Room};
use networks::{Moment, Networks};
pub(crate) use refusal::{Other, others};

/// The applier.
pub struct BpfApplier {
    cgroup: PathBuf,
    detached: bool,
    programs: Programs,
    networks: Networks,
    counters: MapHandle,
    services: MapHandle,
    /// Services whose size could not be removed from the kernel's table yet.
    services_left: BTreeSet<SocketAddr>,
    events: Events,
    counts: ApplyCounts,
    growths: Growths,
    growth_tables: GrowthTables,
    policy: Vec<u8>,
    settings: Settings,
    /// Whether starts shall be paused, and whether the kernel's settings say so.
    paused: bool,
    paused_in_kernel: bool,
    /// The settings that the kernel has.
    written: Vec<u8>,
}

/// Why the applier did not start.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// This machine takes none of the programs.
    #[error("{}", .0.sentence())]
    Lacking(Lack),
    /// Something else is at fault.
    #[error(transparent)]
    Failed(#[from] Failure),
}

impl From<Lack> for NotStarted {
    fn from(lack: Lack) -> Self {
        Self::Lacking(lack)
    }
}

/// What this machine took of the programs.
pub(crate) struct Trial {
    pub(crate) variant: Variant,
    pub(crate) lacks: Vec<Lack>,
    /// Whether the kernel attaches them to the configured cgroup, beside programs of others.
    pub(crate) attached: Result<(), Failure>,
}

/// Loads the programs, registers their congestion controls, attaches them without settings, and removes all of it: no socket is touched.
pub(crate) fn try_out(config: &Config) -> Result<Trial, NotStarted> {
    // Two trials at a time have different names.
    let names = Names::new(&format!("try{:x}", std::process::id() & 0xf_ffff));
    let room = Room { networks: config.limits.networks, names };
    let others = others();
    let mut programs = Programs::load(config.bpf.variant, config.bpf.bbr, &room)?;
    // A cgroup that is not there is another check's.
    let attached = attached::cgroup(&config.bpf.cgroup).map_or(Ok(()), |cgroup| programs.attach(&cgroup, &others));
    Ok(Trial { variant: programs.variant, lacks: std::mem::take(&mut programs.lacks), attached })
}

/// The programs in the kernel, attached to nothing yet.
pub struct Loaded {
    cgroup: PathBuf,
    names: Names,
    programs: Programs,
    others: Vec<Other>,
}

impl BpfApplier {
    /// Loads the programs and attaches them to the configured cgroup.
    pub fn start(config: &Config, policy: &Policy, clock: Clock) -> Result<Self, NotStarted> {
        Self::load(config, others())?.attach(config, policy, clock)
    }

    /// Loads the programs: what comes after it needs no `CAP_SYS_ADMIN`. `others` were in the kernel before.
    pub(crate) fn load(config: &Config, others: Vec<Other>) -> Result<Loaded, NotStarted> {
        let cgroup = attached::cgroup(&config.bpf.cgroup)?;
        let names = Names::new(&config.bpf.name);
        let room = Room { networks: config.limits.networks, names };
        // The kernel takes its time to check them: seconds on a busy machine.
        info!(cgroup = %cgroup.display(), variant = %config.bpf.variant, "loading the kernel programs");
        let programs = Programs::load(config.bpf.variant, config.bpf.bbr, &room)?;
        programs.lacks.iter().for_each(report);
        Ok(Loaded { cgroup, names, programs, others })
    }
}

impl Loaded {
    /// Attaches the programs to the cgroup.
    pub(crate) fn attach(self, config: &Config, policy: &Policy, clock: Clock) -> Result<BpfApplier, NotStarted> {
        let Self { cgroup, names, mut programs, others } = self;
        programs.attach(&cgroup, &others)?;
        // The programs' first: a lifetime may end too early by what passes between the two, and never too late.
        let programs_ns = programs.now_ns()?;
        let start = Moment { agent: clock.now(), programs_ns };
        let networks = Networks::new(programs.table("networks")?, programs.table("budgets")?, start);
        let events = Events::read(programs.table("events")?)?;
        let on_bbr = if programs.on_bbr.is_some() { names.on_bbr } else { [0; layout::NAME_BYTES] };
        let settings = Settings {
            arm_seed: config.bpf.control_seed,
            ticks_per_s: programs.ticks_per_s,
            control_fraction: config.bpf.control_fraction,
            variant: match programs.variant {
                Variant::Auto | Variant::Stay => 0,
                Variant::HandOver => 1,
                Variant::Sockops => 2,
            },
            write_option: config.bpf.window_option,
            initial_timeout: config.bpf.initial_timeout,
            check: config.bpf.check,
            names: [names.on_cubic, names.on_reno, names.at_start, on_bbr],
            pauses: 0,
            namespace: match config.bpf.namespaces {
                Namespaces::Own => Some(programs.own_namespace()?),
                Namespaces::All => None,
            },
        };
        let growths = policy.growths.clone();
        let (prefixes, services) = (programs.table("growth_prefixes")?, programs.table("growth_services")?);
        let mut growth_tables = GrowthTables::new(programs.table(".data.growths")?, prefixes, services);
        growth_tables.write(&growths, programs.variant == Variant::Stay).map_err(Failure::environment)?;
        let policy = layout::policy(&policy.start, policy.service_size);
        let written = layout::settings(&policy, &settings);
        programs.write_settings(&written)?;
        let bbr = if programs.on_bbr.is_some() { "full" } else { "window" };
        info!(cgroup = %cgroup.display(), variant = %programs.variant, bbr, "the kernel programs are in place");
        Ok(BpfApplier {
            cgroup,
            detached: false,
            counters: programs.table("counts")?,
            services: programs.table("services")?,
            services_left: BTreeSet::new(),
            programs,
            networks,
            events,
            counts: ApplyCounts::new(),
            growths,
            growth_tables,
            policy,
            settings,
            paused: false,
            paused_in_kernel: false,
            written,
        })
    }
}

impl BpfApplier {
    /// The variant that the kernel took.
    pub(crate) const fn variant(&self) -> Variant {
        self.programs.variant
    }

    /// What the kernel does not take.
    pub(crate) fn lacks(&self) -> &[Lack] {
        &self.programs.lacks
    }

    /// Brings the programs' settings in line. Where that fails it is tried again; of a pause, the entries of the networks hold it.
    fn write_settings(&mut self) {
        // Only a congestion control of ours sees acknowledgements.
        let may_grow = self.programs.variant == Variant::Stay && !self.paused;
        if let Err(error) = self.growth_tables.write(&self.growths, may_grow) {
            self.count("settings_failed", 1);
            warn!(%error, "the kernel's table did not take the rules of slow start");
        }
        let turns = self.paused != self.paused_in_kernel;
        let settings = Settings { pauses: self.settings.pauses.wrapping_add(turns.into()), ..self.settings };
        let wanted = layout::settings(&self.policy, &settings);
        if wanted == self.written {
            return;
        }
        match self.programs.write_settings(&wanted) {
            Ok(()) => {
                self.settings = settings;
                self.paused_in_kernel = self.paused;
                self.written = wanted;
            }
            Err(error) => {
                self.count("settings_failed", 1);
                warn!(%error, paused = self.paused, "the kernel's table did not take the settings");
            }
        }
    }

    /// A service manager removes the cgroup of a service that it restarts, and makes another one of the same name: attaches to that.
    fn follow_cgroup(&mut self) {
        if self.programs.are_attached_to(&self.cgroup) {
            return;
        }
        let cgroup = self.cgroup.display();
        match self.programs.attach(&self.cgroup, &[]) {
            Ok(()) => {
                info!(%cgroup, "the cgroup was made again: the kernel programs are attached to it");
                self.detached = false;
                self.count("cgroup_attached_again", 1);
            }
            Err(error) if !self.detached => {
                self.detached = true;
                warn!(%error, "the cgroup was removed: its connections are plain TCP until there is one at {cgroup} again");
            }
            Err(_) => {}
        }
    }

    fn count(&mut self, name: &'static str, number: u64) {
        if number > 0 {
            *self.counts.entry(name).or_default() += number;
        }
    }
}

/// Logs what the kernel does not take, where that concerns this host's connections.
fn report(lack: &Lack) {
    // Where BBR is not the default few connections are on it, or none.
    if lack.part == Part::Bbr && probe::default_control().as_deref() != Some("bbr") {
        info!(part = %lack.part, "{}", lack.sentence());
    } else {
        warn!(part = %lack.part, "{}", lack.sentence());
    }
}

impl Applier for BpfApplier {
    fn method(&self) -> ApplyMethod {
        ApplyMethod::Bpf
    }

    fn limitations(&self) -> &'static [Limitation] {
        match self.programs.variant {
            Variant::Auto | Variant::Stay => &Limitation::BPF_STAY,
            Variant::HandOver => &Limitation::BPF_HAND_OVER,
            Variant::Sockops => &Limitation::BPF_SOCKOPS,
        }
    }

    fn service_size(&mut self, service: SocketAddr, usual: Option<Bytes>) {
        let key = layout::service(service);
        let done = match usual {
            Some(usual) => self.services.update(&key, &usual.0.to_ne_bytes(), MapFlags::ANY),
            None => networks::delete(&self.services, &key),
        };
        self.services_left.remove(&service);
        if let Err(error) = done {
            self.count("services_failed", 1);
            warn!(%service, %error, "the kernel's table did not take a service's size");
            if usual.is_none() {
                self.services_left.insert(service);
            }
        }
    }

    fn set_policy(&mut self, config: &Config, policy: &Policy) {
        self.policy = layout::policy(&policy.start, policy.service_size);
        self.settings.control_fraction = config.bpf.control_fraction;
        self.growths.clone_from(&policy.growths);
        self.write_settings();
    }

    async fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
        self.write_settings();
    }

    async fn reconcile(&mut self, decided: &Decided<'_>, now: Timestamp) -> bool {
        self.write_settings();
        self.follow_cgroup();
        // At a look at everything only: these come at their own pace, however much changes.
        if decided.touched.is_none() {
            for service in std::mem::take(&mut self.services_left) {
                self.service_size(service, None);
            }
        }
        let changes = self.networks.write(decided, now);
        self.count("networks_added", changes.added);
        self.count("networks_changed", changes.changed);
        self.count("networks_removed", changes.removed);
        self.count("networks_no_room", changes.no_room);
        self.count("networks_failed", changes.failed);
        // A change costs no one else anything: the next one need not wait.
        false
    }

    async fn clear(&mut self) {
        self.networks.clear();
    }

    async fn news(&mut self) -> News {
        News::Ended(self.events.next().await)
    }

    fn outcome(&self, network: Network) -> Option<Outcome> {
        if self.paused_in_kernel {
            return None;
        }
        let (window, inputs) = self.networks.started(network)?;
        if self.detached {
            let cgroup = self.cgroup.display();
            let sentence = format!("the cgroup {cgroup} was removed; the agent attaches to the next one at this path");
            return Some(Outcome::NotApplied { reason: "cgroup_gone", sentence });
        }
        let variant = self.programs.variant;
        let lease = inputs.lease.map_or_else(String::new, |lease| {
            let under_way = self.networks.under_way(network).unwrap_or(0);
            format!("; {under_way} of the lease of {} are under way", lease.0)
        });
        let how = format!(
            "programs in the kernel ({variant}) decide at a connection's first data, from its size, its peer's window and \
             its own round trip{lease}"
        );
        Some(Outcome::InForce { window, how })
    }

    fn in_force(&self) -> Vec<(Network, Segments)> {
        if self.detached || self.paused_in_kernel { Vec::new() } else { self.networks.all_started().collect() }
    }

    fn seen(&self) -> Option<ByDirection<u64>> {
        let mut all = ApplyCounts::new();
        events::add(&self.counters, &mut all);
        let count = |name: &str| all.get(name).copied().unwrap_or(0);
        Some(ByDirection { accepted: count("seen_accepted"), opened: count("seen_opened") })
    }

    fn counts(&self) -> ApplyCounts {
        let mut all = self.counts.clone();
        events::add(&self.counters, &mut all);
        if self.detached {
            all.insert("cgroup_gone", 1);
        }
        let lost = self.events.lost();
        if lost > 0 {
            all.insert("events_no_room", lost);
        }
        all
    }
}
