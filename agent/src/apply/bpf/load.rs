//! Loads and attaches the programs. All of it ends with this process, however that ends: the kernel closes the links, the
//! congestion controls' names disappear, and connections that use one finish on it.

use std::fs::{File, Metadata};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput};
use spand_proto::operator::Failure;

use super::bbr::OnBbr;
use super::{NotStarted, layout, refusal};
use crate::apply::{Lack, Part};
use crate::config::{Bbr, Variant};
use crate::probe::{self, Features};

pub(super) static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/spand.bpf.o"));

/// Time between two readings of the kernel's tick counter. At 100 ticks a second the error is one tick in twenty.
const TICK_SAMPLE: Duration = Duration::from_millis(200);

/// The values that the kernel's HZ is built with.
const TICKS_PER_S: [u64; 5] = [100, 200, 250, 300, 1_000];

/// The programs in the kernel.
pub(super) struct Programs {
    object: Object,
    /// Of the congestion controls, held for as long as this lives.
    _registered: Vec<Link>,
    /// On the cgroup.
    links: Vec<Link>,
    /// The congestion control on BBR, where it was asked for and the kernel takes it.
    pub(super) on_bbr: Option<OnBbr>,
    /// Device and inode of the cgroup that they are attached to.
    cgroup: Option<(u64, u64)>,
    /// The one in force: never `Auto`.
    pub(super) variant: Variant,
    /// What the kernel does not take of what was asked for.
    pub(super) lacks: Vec<Lack>,
    pub(super) ticks_per_s: u64,
}

/// What the programs' clocks show at one moment.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    ticks: u64,
    /// Stands still while the host is suspended, like the ticks.
    ns: u64,
    boot_ns: u64,
}

/// What is set before loading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Networks in the tables, at most.
    pub(super) networks: NonZeroUsize,
    /// Names of the congestion controls.
    pub(super) names: Names,
}

/// Names of the congestion controls, closed by zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    pub(super) on_cubic: [u8; layout::NAME_BYTES],
    pub(super) on_reno: [u8; layout::NAME_BYTES],
    pub(super) at_start: [u8; layout::NAME_BYTES],
    pub(super) on_bbr: [u8; layout::NAME_BYTES],
}

impl Names {
    /// Names that begin with `first`, which the configuration keeps short enough.
    pub(super) fn new(first: &str) -> Self {
        let name = |last: &str| {
            let mut name = [0; layout::NAME_BYTES];
            for (to, from) in name.iter_mut().zip(format!("{first}_{last}").bytes()) {
                *to = from;
            }
            name
        };
        Self { on_cubic: name("cubic"), on_reno: name("reno"), at_start: name("start"), on_bbr: name("bbr") }
    }

    fn of(&self, map: &str) -> Option<&[u8; layout::NAME_BYTES]> {
        match map {
            "on_cubic" | "on_cubic_tx" => Some(&self.on_cubic),
            "on_reno" | "on_reno_tx" => Some(&self.on_reno),
            "at_start" => Some(&self.at_start),
            _ => None,
        }
    }
}

impl Programs {
    /// Loads the first candidate of `variant` that the kernel accepts, and registers its congestion controls. No socket is touched
    /// before [`Self::attach`].
    pub(super) fn load(variant: Variant, bbr: Bbr, room: &Room) -> Result<Self, NotStarted> {
        refusal::listen();
        let (object, registered, variant, mut lacks) = load_any(variant, room)?;
        check_sizes(&object)?;
        let on_bbr = match bbr {
            Bbr::Full => load_on_bbr(&object, variant, &room.names)
                .map_err(|reason| lacks.push(Lack { part: Part::Bbr, reason }))
                .ok(),
            Bbr::Window => None,
        };
        let ticks_per_s = ticks_per_s(&object)?;
        Ok(Self {
            object,
            _registered: registered,
            links: Vec::new(),
            on_bbr,
            cgroup: None,
            variant,
            lacks,
            ticks_per_s,
        })
    }

    /// Attaches to `cgroup`, in place of the one before. Nothing is started before [`Self::write_settings`].
    /// `others` may hold it for themselves.
    pub(super) fn attach(&mut self, cgroup: &Path, others: &[refusal::Other]) -> Result<(), Failure> {
        let directory = File::open(cgroup)
            .map_err(|error| Failure::Environment(format!("cannot open the cgroup {}: {error}", cgroup.display())))?;
        let mut links = Vec::new();
        for name in ["on_setsockopt", "on_socket"] {
            let program = self.object.progs_mut().find(|program| program.name() == name);
            let program = program.ok_or_else(|| incomplete(name))?;
            let kind = program.prog_type();
            links.push(
                program
                    .attach_cgroup(directory.as_raw_fd())
                    .map_err(|error| Failure::Environment(refusal::not_attached(&error, kind, cgroup, others)))?,
            );
        }
        self.links = links;
        self.cgroup = Some(identity(&directory.metadata().map_err(Failure::environment)?));
        Ok(())
    }

    /// Whether the cgroup at this path is the one that they are attached to. One that is removed takes the links with it; another
    /// may have its name by then.
    pub(super) fn are_attached_to(&self, cgroup: &Path) -> bool {
        std::fs::metadata(cgroup).is_ok_and(|there| Some(identity(&there)) == self.cgroup)
    }

    /// A handle of a table that outlives this borrow.
    pub(super) fn table(&self, name: &str) -> Result<MapHandle, Failure> {
        let map = self.object.maps().find(|map| map.name() == name).ok_or_else(|| incomplete(name))?;
        MapHandle::try_from(&map).map_err(Failure::environment)
    }

    /// Now, by the clock that the programs hold lifetimes against.
    pub(super) fn now_ns(&self) -> Result<u64, Failure> {
        read_clocks(&self.object).map(|clocks| clocks.boot_ns)
    }

    /// The cookie of the network namespace of the thread that asks.
    pub(super) fn own_namespace(&self) -> Result<u64, Failure> {
        let [cookie] = ask(&self.object, "read_namespace")?;
        Ok(cookie)
    }

    /// Writes the settings for all connections; before that no connection is started.
    pub(super) fn write_settings(&self, settings: &[u8]) -> Result<(), Failure> {
        let table = self.table("settings")?;
        table.update(&0_u32.to_ne_bytes(), settings, MapFlags::ANY).map_err(Failure::environment)
    }
}

/// The congestion control on BBR, or why there is none: everything else works without it.
fn load_on_bbr(others: &Object, variant: Variant, names: &Names) -> Result<OnBbr, String> {
    if variant == Variant::Sockops {
        return Err("starts are set by socket options only".to_owned());
    }
    OnBbr::load(others, &names.on_bbr)
}

/// An object in the kernel, with what is registered of it, of which variant, and what the kernel does not take.
type Loaded = (Object, Vec<Link>, Variant, Vec<Lack>);

/// The first candidate that the kernel takes.
fn load_any(configured: Variant, room: &Room) -> Result<Loaded, NotStarted> {
    // The reason of the first that was not possible: the others need less, so theirs follows from it.
    let mut lacking: Option<String> = None;
    for candidate in configured.candidates() {
        let refused = match lacking_for(*candidate) {
            Some(reason) => reason,
            None => match load_one(*candidate, room) {
                Ok((object, links)) => {
                    let part = if *candidate == Variant::Sockops { Part::CongestionControls } else { Part::Stay };
                    let lacks = lacking.map(|reason| Lack { part, reason }).into_iter().collect();
                    return Ok((object, links, *candidate, lacks));
                }
                Err(Refused::NameTaken(name)) => return Err(name_taken(&name).into()),
                Err(Refused::ByKernel(reason)) => reason,
            },
        };
        // The last candidate needs the least.
        if *candidate == Variant::Sockops {
            return Err(Lack { part: Part::Programs, reason: refused }.into());
        }
        lacking.get_or_insert(refused);
    }
    Err(incomplete("any variant").into())
}

/// What the kernel's types show that it lacks for a variant.
fn lacking_for(variant: Variant) -> Option<String> {
    if variant == Variant::Sockops {
        return None;
    }
    if let Err(reason) = probe::congestion_controls() {
        return Some(reason);
    }
    let cubic = Features::of_this_kernel().is_none_or(|features| features.cubic);
    (variant == Variant::Stay && !cubic).then(|| "the kernel's types have not all functions of CUBIC".to_owned())
}

/// Why a variant is not in the kernel.
enum Refused {
    ByKernel(String),
    NameTaken(String),
}

fn load_one(variant: Variant, room: &Room) -> Result<(Object, Vec<Link>), Refused> {
    refusal::forget_warnings();
    let by_kernel = |error: libbpf_rs::Error| Refused::ByKernel(refusal::reason(&error));
    let mut object = open_and_load(variant, room).map_err(by_kernel)?;
    let mut links = Vec::new();
    // Only the ones of this variant: maps that were not created are listed as well.
    for mut map in object.maps_mut().filter(|map| registers(variant, &map.name().to_string_lossy())) {
        links.push(map.attach_struct_ops().map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                let name = room.names.of(&map.name().to_string_lossy()).copied().unwrap_or_default();
                Refused::NameTaken(String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned())
            }
            _ => by_kernel(error),
        })?);
    }
    Ok((object, links))
}

/// Whether a variant registers the congestion control of this map on this kernel.
fn registers(variant: Variant, map: &str) -> bool {
    match variant {
        Variant::Auto | Variant::Sockops => false,
        Variant::HandOver => map == "at_start",
        Variant::Stay if Features::of_this_kernel().is_some_and(|features| features.tx_start) => {
            matches!(map, "on_cubic_tx" | "on_reno_tx")
        }
        Variant::Stay => matches!(map, "on_cubic" | "on_reno"),
    }
}

pub(super) fn open_and_load(variant: Variant, room: &Room) -> Result<Object, libbpf_rs::Error> {
    let mut open = ObjectBuilder::default().name("spand")?.open_memory(PROGRAMS)?;
    let networks = u32::try_from(room.networks.get()).unwrap_or(u32::MAX);
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        match name.as_str() {
            "networks" | "budgets" => map.set_max_entries(networks)?,
            _ => {}
        }
        let Some(own) = room.names.of(&name) else { continue };
        // The programs of one that is not created are not loaded.
        map.set_autocreate(registers(variant, &name))?;
        layout::set_name(&mut map, own);
    }
    for mut program in open.progs_mut().filter(|program| program.name().to_string_lossy().starts_with("try_")) {
        program.set_autoload(false);
    }
    open.load()
}

fn identity(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

fn check_sizes(object: &Object) -> Result<(), Failure> {
    let expected = [
        ("settings", 4, layout::SETTINGS_BYTES),
        ("networks", layout::PREFIX_BYTES, layout::NETWORK_BYTES),
        ("budgets", 4, layout::BUDGET_BYTES),
        ("services", layout::SERVICE_BYTES, 8),
        (".data.growths", 4, 8),
        ("growth_prefixes", layout::PREFIX_BYTES, 4),
        ("growth_services", layout::SERVICE_BYTES, 4),
    ];
    for (name, key, value) in expected {
        let map = object.maps().find(|map| map.name() == name).ok_or_else(|| incomplete(name))?;
        if (map.key_size() as usize, map.value_size() as usize) != (key, value) {
            return Err(Failure::Environment(format!(
                "the table {name} of the kernel programs has {} and {} bytes instead of {key} and {value}: this program \
                 was built wrongly",
                map.key_size(),
                map.value_size()
            )));
        }
    }
    Ok(())
}

/// The kernel's HZ, from its tick counter against its clock: no interface exports it on every system.
fn ticks_per_s(object: &Object) -> Result<u64, Failure> {
    let before = read_clocks(object)?;
    std::thread::sleep(TICK_SAMPLE);
    let after = read_clocks(object)?;
    let passed_us = after.ns.saturating_sub(before.ns).max(1_000) / 1_000;
    let measured = after.ticks.saturating_sub(before.ticks) * 1_000_000 / passed_us;
    // The set is spread wider than the reading's error.
    Ok(TICKS_PER_S.into_iter().min_by_key(|hz| hz.abs_diff(measured)).unwrap_or(250))
}

fn read_clocks(object: &Object) -> Result<Clocks, Failure> {
    let [ticks, ns, boot_ns] = ask(object, "read_clocks")?;
    Ok(Clocks { ticks, ns, boot_ns })
}

/// The numbers that one of the programs for questions gives.
fn ask<const N: usize>(object: &Object, name: &str) -> Result<[u64; N], Failure> {
    let program = object.progs_mut().find(|program| program.name() == name);
    let program = program.ok_or_else(|| incomplete(name))?;
    let mut answer = vec![0; 8 * N];
    let input = ProgramInput { context_in: Some(&mut answer), ..ProgramInput::default() };
    program.test_run(input).map_err(Failure::environment)?;
    let mut numbers = answer.chunks_exact(8).filter_map(<[u8]>::first_chunk).map(|bytes| u64::from_ne_bytes(*bytes));
    Ok(std::array::from_fn(|_| numbers.next().unwrap_or(0)))
}

fn name_taken(name: &str) -> Failure {
    Failure::Environment(format!(
        "a congestion control named {name} is registered already: another agent runs on this machine; stop it first"
    ))
}

fn incomplete(name: &str) -> Failure {
    Failure::Environment(format!("the kernel programs lack `{name}`: this program was built wrongly"))
}
