//! Kernel features that the programs need, by the kernel's own types (BTF). It loads nothing, and it compares no release: distributions backport
//! features to older ones.

use std::fs;
use std::sync::OnceLock;

use super::BTF;
use super::btf::Types;

/// Functions of CUBIC that a congestion control on it calls, beside that for events.
const CUBIC: [&str; 5] =
    ["cubictcp_init", "cubictcp_recalc_ssthresh", "cubictcp_cong_avoid", "cubictcp_state", "cubictcp_acked"];

/// What the kernel has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Features {
    /// Programs of sockets see their network namespace (upstream since Linux 5.15).
    pub(crate) socket_namespaces: bool,
    /// Congestion controls are registered by links, which go with their process (upstream since Linux 6.4).
    pub(crate) links: bool,
    /// The start of a transfer is a function of its own in a congestion control, and no event (upstream since Linux 7.1).
    pub(crate) tx_start: bool,
    /// The functions of CUBIC are in the kernel itself.
    pub(crate) cubic: bool,
    /// Tables count as locked memory (upstream before Linux 5.11).
    pub(crate) counts_locked_memory: bool,
}

impl Features {
    /// Those of the running kernel; `None` where its types cannot be read.
    pub(crate) fn of_this_kernel() -> Option<Self> {
        static FOUND: OnceLock<Option<Features>> = OnceLock::new();
        *FOUND
            .get_or_init(|| fs::read(BTF).ok().and_then(|types| Types::read(types, None)).map(|types| Self::of(&types)))
    }

    fn of(types: &Types) -> Self {
        let has_member = |structure, name| {
            types.members(structure).is_some_and(|members| members.iter().any(|member| member.name == name))
        };
        let has_function = |name: &str| types.parameters(name).is_some();
        let tx_start = has_member("tcp_congestion_ops", "cwnd_event_tx_start");
        let event = if tx_start { "cubictcp_cwnd_event_tx_start" } else { "cubictcp_cwnd_event" };
        Self {
            socket_namespaces: has_function("bpf_get_netns_cookie_sock_ops"),
            links: types.members("bpf_struct_ops_link").is_some(),
            tx_start,
            cubic: CUBIC.into_iter().chain([event]).all(has_function),
            counts_locked_memory: types.members("bpf_map_memory").is_some(),
        }
    }

    /// Why no program of ours can run here.
    pub(crate) const fn lacking_for_programs(self) -> Option<&'static str> {
        if self.socket_namespaces {
            return None;
        }
        Some(
            "this kernel's programs of sockets do not see the network namespace (upstream since Linux 5.15): use a newer kernel",
        )
    }

    /// Why no congestion control of ours can be registered here.
    pub(crate) const fn lacking_for_congestion_controls(self) -> Option<&'static str> {
        if self.links {
            return None;
        }
        Some("this kernel registers congestion controls by no link that ends with the agent (upstream since Linux 6.4)")
    }
}

#[cfg(test)]
mod tests {
    use super::super::btf::tests::Made;
    use super::*;

    /// A kernel with these functions, structures, and members of `struct tcp_congestion_ops`.
    fn kernel(functions: &[&str], structures: &[&str], members: &[&str]) -> Features {
        let mut made = Made::after(0);
        let number = made.name("u32");
        made.add(number, 1, 0, 4, &[32]); // 1
        made.add(0, 13, 0, 0, &[]); // 2
        for function in functions {
            let name = made.name(function);
            made.add(name, 12, 1, 2, &[]);
        }
        for structure in structures {
            let name = made.name(structure);
            made.add(name, 4, 0, 8, &[]);
        }
        let words: Vec<u32> = members.iter().flat_map(|member| [made.name(member), 1, 0]).collect();
        let name = made.name("tcp_congestion_ops");
        made.add(name, 4, u32::try_from(members.len()).unwrap(), 8, &words);
        Features::of(&Types::read(made.done(), None).unwrap())
    }

    #[test]
    fn types_decide_what_a_kernel_has() {
        let none = kernel(&[], &[], &[]);
        assert!(none.lacking_for_programs().is_some() && none.lacking_for_congestion_controls().is_some());
        assert!(!none.cubic && !none.tx_start && !none.counts_locked_memory);
        let newest = [&["bpf_get_netns_cookie_sock_ops", "cubictcp_cwnd_event_tx_start"], &CUBIC[..]].concat();
        let links = ["bpf_struct_ops_link"];
        let found = kernel(&newest, &links, &["cwnd_event_tx_start"]);
        assert!(found.cubic && found.tx_start && found.lacking_for_programs().is_none());
        assert!(found.lacking_for_congestion_controls().is_none());
        // The same functions do not fit a kernel whose congestion controls get the start as an event.
        assert!(!kernel(&newest, &links, &["cwnd_event"]).cubic);
        assert!(kernel(&[], &["bpf_map_memory"], &[]).counts_locked_memory);
    }
}
