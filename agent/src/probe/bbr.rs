//! What starts on BBR need of this kernel: BBR's functions, the prototype of `bbr_main`, and the fields of `struct bbr` at the places that the
//! programs expect. It loads nothing.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use super::btf::{Member, Types};
use super::{BTF, congestion_controls, read};
use crate::capabilities::Capabilities;

/// Types of the module, where BBR is one.
const MODULE: &str = "/sys/kernel/btf/tcp_bbr";

/// What `bbr_main` takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Prototype {
    /// As `Four`, and the start of a transfer is a function of its own: since Linux 7.1.
    FourAndStart,
    /// Socket, acknowledgement, flags and sample: since Linux 6.10.
    Four,
    /// Socket and sample.
    Two,
}

/// What a host lacks for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Lack {
    /// The kernel's types cannot be read.
    Types,
    /// The kernel registers no congestion controls of ours.
    CongestionControls(String),
    /// No `bbr` is registered.
    Bbr,
    /// BBR is a module, whose functions are shown to few.
    Module,
    /// One of its functions is not there.
    Function(&'static str),
    /// `bbr_main` takes something else.
    Main(Vec<String>),
    /// A field is not where it is expected: another BBR.
    Field(&'static str),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Types => write!(f, "the kernel's type information cannot be read (CONFIG_DEBUG_INFO_BTF)"),
            Self::CongestionControls(reason) => f.write_str(reason),
            Self::Bbr => write!(f, "the kernel has no congestion control bbr (modprobe tcp_bbr)"),
            Self::Module => {
                write!(
                    f,
                    "bbr is a module, whose functions the kernel shows only with CAP_SYS_ADMIN: give it to the service, which drops it \
                     before it attaches to any socket"
                )
            }
            Self::Function(name) => write!(f, "the kernel's types have no function {name}"),
            Self::Main(parameters) => {
                write!(
                    f,
                    "the kernel's bbr_main takes ({}), which matches neither known version",
                    parameters.join(", ")
                )
            }
            Self::Field(name) => {
                write!(f, "`{name}` of the kernel's struct bbr is not where BBR version 1 has it: this is another BBR")
            }
        }
    }
}

/// The functions that are called beside `bbr_main`.
const FUNCTIONS: [&str; 6] =
    ["bbr_init", "bbr_sndbuf_expand", "bbr_undo_cwnd", "bbr_ssthresh", "bbr_min_tso_segs", "bbr_set_state"];

/// The function for events, and the one that Linux 7.1 has in its place.
const EVENT: &str = "bbr_cwnd_event";
const TX_START: &str = "bbr_cwnd_event_tx_start";

/// The fields of `struct bbr` (`bpf/bbr.h`): name, where it begins and how long it is, in bits, in BBR version 1.
const FIELDS: [(&str, u32, u32); 13] = [
    ("min_rtt_us", 0, 32),
    ("bw", 96, 192),
    ("rtt_cnt", 288, 32),
    ("cycle_mstamp", 384, 64),
    ("mode", 448, 3),
    ("round_start", 455, 1),
    ("pacing_gain", 608, 10),
    ("cwnd_gain", 618, 10),
    ("full_bw_reached", 628, 1),
    ("full_bw_cnt", 629, 2),
    ("cycle_idx", 631, 3),
    ("has_seen_rtt", 634, 1),
    ("full_bw", 672, 32),
];

/// Whether BBR is a module: then its functions are shown with `CAP_SYS_ADMIN` alone.
pub(crate) fn bbr_is_module() -> bool {
    Path::new(MODULE).exists()
}

/// Looks at this host.
pub(crate) fn bbr() -> Result<Prototype, Lack> {
    // Types do not change while a kernel runs, and the look through them takes its time.
    static JUDGED: OnceLock<Result<Prototype, Lack>> = OnceLock::new();
    congestion_controls().map_err(Lack::CongestionControls)?;
    let available = read("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    if !available.split(' ').any(|name| name == "bbr") {
        return Err(Lack::Bbr);
    }
    let module = fs::read(MODULE).ok();
    if module.is_some() && !Capabilities::own().is_some_and(Capabilities::may_see_modules) {
        return Err(Lack::Module);
    }
    let types = || fs::read(BTF).ok().and_then(|kernel| Types::read(kernel, module)).ok_or(Lack::Types);
    JUDGED.get_or_init(|| judge(&types()?)).clone()
}

/// Compares the kernel's types with what is used.
fn judge(types: &Types) -> Result<Prototype, Lack> {
    if let Some(lacking) = FUNCTIONS.into_iter().find(|name| types.parameters(name).is_none()) {
        return Err(Lack::Function(lacking));
    }
    let parameters = types.parameters("bbr_main").ok_or(Lack::Function("bbr_main"))?;
    let prototype = match parameters.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sock", "u32", "int", "rate_sample"] if types.parameters(TX_START).is_some() => Prototype::FourAndStart,
        ["sock", "u32", "int", "rate_sample"] => Prototype::Four,
        ["sock", "rate_sample"] => Prototype::Two,
        _ => return Err(Lack::Main(parameters)),
    };
    if prototype != Prototype::FourAndStart && types.parameters(EVENT).is_none() {
        return Err(Lack::Function(EVENT));
    }
    compare(&types.members("bbr").unwrap_or_default())?;
    Ok(prototype)
}

/// Holds the members of `struct bbr` against what is used of it.
fn compare(members: &[Member]) -> Result<(), Lack> {
    let is_there = |(name, at, bits): (&str, u32, u32)| {
        members.iter().any(|member| (member.name.as_str(), member.at, member.bits) == (name, at, bits))
    };
    FIELDS.into_iter().find(|field| !is_there(*field)).map_or(Ok(()), |(name, _, _)| Err(Lack::Field(name)))
}

#[cfg(test)]
mod tests {
    use super::super::btf::tests::Made;
    use super::*;

    fn member(name: &str, at: u32, bits: u32) -> Member {
        Member { name: name.to_owned(), at, bits }
    }

    fn version_1() -> Vec<Member> {
        let of_others =
            [("min_rtt_stamp", 32, 32), ("prev_ca_state", 451, 3), ("lt_bw", 480, 32), ("unused_c", 826, 6)];
        FIELDS.into_iter().chain(of_others).map(|(name, at, bits)| member(name, at, bits)).collect()
    }

    #[test]
    fn every_field_must_be_where_version_1_has_it_and_as_long() {
        assert_eq!(compare(&version_1()), Ok(()));
        for (name, _, _) in FIELDS {
            let changed = |change: &dyn Fn(&mut Member)| {
                let mut members = version_1();
                members.iter_mut().filter(|member| member.name == name).for_each(change);
                compare(&members)
            };
            assert_eq!(changed(&|member| member.at += 1), Err(Lack::Field(name)));
            assert_eq!(changed(&|member| member.bits += 1), Err(Lack::Field(name)));
            assert_eq!(changed(&|member| member.name.push('2')), Err(Lack::Field(name)));
        }
        assert_eq!(compare(&[]), Err(Lack::Field("min_rtt_us")), "no struct bbr at all");
    }

    #[test]
    fn version_3_of_the_same_name_is_refused() {
        // This layout follows the source of version 3: two numbers for the bandwidth, two bits for the mode, eleven for each gain.
        let version_3 = [
            member("min_rtt_us", 0, 32),
            member("min_rtt_stamp", 32, 32),
            member("probe_rtt_done_stamp", 64, 32),
            member("probe_rtt_min_us", 96, 32),
            member("probe_rtt_min_stamp", 128, 32),
            member("next_rtt_delivered", 160, 32),
            member("cycle_mstamp", 192, 64),
            member("mode", 256, 2),
            member("prev_ca_state", 258, 3),
            member("round_start", 261, 1),
            member("pacing_gain", 320, 11),
            member("cwnd_gain", 331, 11),
            member("full_bw_reached", 342, 1),
            member("full_bw_cnt", 343, 2),
            member("has_seen_rtt", 350, 1),
            member("full_bw", 384, 32),
            member("bw_hi", 512, 64),
        ];
        let refused = compare(&version_3).unwrap_err();
        assert_eq!(refused, Lack::Field("bw"));
        assert!(refused.to_string().contains("another BBR"), "{refused}");
    }

    /// A kernel with these functions, whose `bbr_main` takes these, and these fields in its `struct bbr`.
    fn kernel(functions: &[&str], main: &[&str], fields: &[(&str, u32, u32)]) -> Types {
        let mut made = Made::after(0);
        let mut number = 0;
        let mut next = || {
            number += 1;
            number
        };
        // Integers in the place of structures and pointers to them: the same names.
        let parameters: Vec<u32> = main
            .iter()
            .flat_map(|parameter| {
                let name = made.name(parameter);
                made.add(name, 1, 0, 4, &[32]);
                [0, next()]
            })
            .collect();
        made.add(0, 13, u32::try_from(main.len()).unwrap(), 0, &parameters);
        let prototype = next();
        for function in functions {
            let name = made.name(function);
            made.add(name, 12, 1, prototype, &[]);
        }
        let number = made.name("u32");
        made.add(number, 1, 0, 4, &[32]);
        let number = next();
        let members: Vec<u32> =
            fields.iter().flat_map(|(name, at, bits)| [made.name(name), number, bits << 24 | at]).collect();
        let name = made.name("bbr");
        made.add(name, 4, u32::try_from(fields.len()).unwrap() | 1 << 31, 104, &members);
        Types::read(made.done(), None).unwrap()
    }

    #[test]
    fn the_prototype_decides_which_program_is_loaded_and_an_unknown_one_is_refused() {
        let all = [&["bbr_main", EVENT], &FUNCTIONS[..]].concat();
        let newest = [&["bbr_main", TX_START], &FUNCTIONS[..]].concat();
        let four = ["sock", "u32", "int", "rate_sample"];
        let of = |main: &[&str]| judge(&kernel(&all, main, &FIELDS));
        assert_eq!(of(&four), Ok(Prototype::Four));
        assert_eq!(judge(&kernel(&newest, &four, &FIELDS)), Ok(Prototype::FourAndStart));
        assert_eq!(of(&["sock", "rate_sample"]), Ok(Prototype::Two));
        assert_eq!(judge(&kernel(&all, &["sock", "rate_sample"], &FIELDS[1..])), Err(Lack::Field("min_rtt_us")));
        let others: [&[&str]; 3] = [&[], &["sock"], &["sock", "u32", "int", "rate_sample", "int"]];
        for other in others {
            let found = other.iter().map(|parameter| (*parameter).to_owned()).collect();
            assert_eq!(of(other), Err(Lack::Main(found)));
        }
    }

    #[test]
    fn a_function_that_is_not_there_is_named() {
        let main = ["sock", "rate_sample"];
        for lacking in FUNCTIONS.into_iter().chain(["bbr_main", EVENT]) {
            let rest: Vec<&str> =
                FUNCTIONS.into_iter().chain(["bbr_main", EVENT]).filter(|function| *function != lacking).collect();
            assert_eq!(judge(&kernel(&rest, &main, &FIELDS)), Err(Lack::Function(lacking)));
        }
    }
}
