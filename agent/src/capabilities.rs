//! What a process may do, as `/proc` shows it (capabilities(7), the set `CapEff`).

use std::fs;

const NET_ADMIN: u64 = 1 << 12;
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

/// The capabilities in force of a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Capabilities(u64);

impl Capabilities {
    /// Those of this process; `None` where `/proc` does not say.
    pub(crate) fn own() -> Option<Self> {
        Self::read("self")
    }

    /// Those of another.
    pub(crate) fn of(process: u32) -> Option<Self> {
        Self::read(&process.to_string())
    }

    fn read(process: &str) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(set.trim(), 16).ok().map(Self)
    }

    const fn has(self, all: u64) -> bool {
        self.0 & all == all
    }

    /// Whether it may change routes: `CAP_NET_ADMIN`.
    pub(crate) const fn may_change_routes(self) -> bool {
        self.has(NET_ADMIN)
    }

    /// Whether it may load programs and change sockets: `CAP_BPF`, `CAP_PERFMON` and `CAP_NET_ADMIN`, or `CAP_SYS_ADMIN`
    /// for the first two.
    pub(crate) const fn may_load(self) -> bool {
        self.has(NET_ADMIN) && (self.has(SYS_ADMIN) || self.may_load_without_sys_admin())
    }

    /// What it lacks of that.
    pub(crate) fn lacking_to_load(self) -> Option<String> {
        let named = [(BPF, "CAP_BPF"), (PERFMON, "CAP_PERFMON")].into_iter().filter(|_| !self.has(SYS_ADMIN));
        let all = named.chain([(NET_ADMIN, "CAP_NET_ADMIN")]);
        let lacking: Vec<&str> = all.filter(|(one, _)| !self.has(*one)).map(|(_, name)| name).collect();
        (!lacking.is_empty()).then(|| lacking.join(" and "))
    }

    /// Whether it has `CAP_SYS_ADMIN`, without which the kernel shows no types and no functions of modules.
    pub(crate) const fn may_see_modules(self) -> bool {
        self.has(SYS_ADMIN)
    }

    /// Whether it may look at the programs of others: `CAP_SYS_ADMIN`, which the kernel asks for to list them.
    pub(crate) const fn may_list_programs(self) -> bool {
        self.has(SYS_ADMIN)
    }

    /// Whether it has `CAP_BPF` and `CAP_PERFMON`, which kernels before 5.8 do not know.
    pub(crate) const fn may_load_without_sys_admin(self) -> bool {
        self.has(BPF | PERFMON)
    }
}
