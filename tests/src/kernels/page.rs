//! What trials found: a sentence for each finding, the page of results, and what of it is a fault.

use std::fmt;
use std::fmt::Write as _;

use spand_agent::config::Variant;

use super::stage::HOSTS;
use super::{Finding, Outcome, Times};

/// The trial of one kernel.
#[derive(Debug, Default)]
pub(super) struct Tried {
    /// Debian's release.
    pub(super) suite: String,
    /// In the order in which they came.
    pub(super) findings: Vec<Finding>,
    /// Why the guest did not end as it should.
    pub(super) fault: Option<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Good(words) => f.write_str(words),
            Self::Bad(why) => write!(f, "FAILED: {why}"),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { release } => write!(f, "Linux {release}"),
            Self::Gateway { backend, reads, sandbox } => write!(f, "gateway, {backend}: {reads}; sandbox{sandbox}"),
            Self::Agent { variant, up, lacks } => {
                let lacks: Vec<String> = lacks.iter().map(|lack| format!("; {lack}")).collect();
                write!(f, "agent, {variant}: {up}{}", lacks.concat())
            }
            Self::Transfers { host, family, plain, advised, events, first_flight, .. } => {
                write!(f, "{host}, IPv{family}: {} ms; {events}; {first_flight}", change(plain, advised))
            }
            Self::Refusal { without, sentence } => write!(f, "agent, {without}: {sentence}"),
            Self::Left { after, left } if left.is_empty() => write!(f, "nothing is left after {after}"),
            Self::Left { after, left } => write!(f, "LEFT after {after}: {}", left.join(", ")),
            Self::Repeated { times_us } => {
                let (least, most) = (times_us.iter().min(), times_us.iter().max());
                let (least, most) = (least.copied().unwrap_or_default(), most.copied().unwrap_or_default());
                write!(f, "{} transfers took {least} to {most} µs: a spread of {} µs", times_us.len(), most - least)
            }
            Self::Broken { step, why } => write!(f, "FAILED: {step}: {why}"),
        }
    }
}

impl Finding {
    /// Whether it is a fault; where the kernel may be too old, an agent that starts nothing is none.
    fn is_fault(&self, may_refuse: bool) -> bool {
        match self {
            Self::Kernel { .. } => false,
            Self::Gateway { reads, .. } => matches!(reads, Outcome::Bad(_)),
            // Only the default must work on every kernel, and whatever has worked before.
            Self::Agent { variant, up, .. } => {
                let must = variant.contains(',') || variant == Variant::default().name();
                matches!(up, Outcome::Bad(_)) && must && !may_refuse
            }
            // One more than those that are timed: the one that is looked at.
            Self::Transfers { advised, started, .. } => {
                *started != advised.count() + 1 && !(may_refuse && *started == 0)
            }
            Self::Refusal { sentence, .. } => matches!(sentence, Outcome::Bad(_)) && !may_refuse,
            Self::Left { left, .. } => !left.is_empty(),
            Self::Repeated { times_us } => {
                times_us.iter().max().zip(times_us.iter().min()).is_none_or(|(most, least)| most - least > 1_000)
            }
            Self::Broken { .. } => true,
        }
    }
}

impl Times {
    fn count(&self) -> u64 {
        (self.short_us.len() + self.long_us.len()) as u64
    }
}

impl Tried {
    /// Its faults, a sentence each.
    pub(super) fn faults(&self, may_refuse: bool) -> Vec<String> {
        let mut faults: Vec<String> =
            self.findings.iter().filter(|one| one.is_fault(may_refuse)).map(ToString::to_string).collect();
        let is_up = |one: &Finding| matches!(one, Finding::Agent { up: Outcome::Good(_), .. });
        let is_started = |one: &Finding| matches!(one, Finding::Transfers { .. });
        if self.findings.iter().any(is_up) && !self.findings.iter().any(is_started) {
            faults.push("no connection was tried".to_owned());
        }
        faults.extend(self.fault.clone());
        faults
    }

    fn release(&self) -> &str {
        let release = self.findings.iter().find_map(|one| match one {
            Finding::Kernel { release } => Some(release.as_str()),
            _ => None,
        });
        release.unwrap_or("not booted").trim_end_matches("-cloud-amd64")
    }

    fn agent(&self, wanted: &str) -> String {
        let up = self.findings.iter().find_map(|one| match one {
            Finding::Agent { variant, up, .. } if variant == wanted => Some(up),
            _ => None,
        });
        match up {
            Some(Outcome::Good(seconds)) => seconds.clone(),
            Some(Outcome::Bad(_)) => "no".to_owned(),
            None => "–".to_owned(),
        }
    }
}

/// Means in milliseconds, before and with the agent.
fn change(plain: &Times, advised: &Times) -> String {
    let mean = |times: &[u64]| times.iter().sum::<u64>() as f64 / times.len().max(1) as f64 / 1e3;
    let pair = |plain: &[u64], advised: &[u64]| format!("{:.1} → {:.1}", mean(plain), mean(advised));
    let [long, short] = [pair(&plain.long_us, &advised.long_us), pair(&plain.short_us, &advised.short_us)];
    if advised.short_us.is_empty() { long } else { format!("{long}, {short}") }
}

fn cell(finding: &Finding, wanted: &str, by: u8) -> Option<String> {
    match finding {
        Finding::Transfers { host, family, plain, advised, started, seeded, first_flight, .. }
            if host == wanted && *family == by =>
        {
            let rate = if *seeded > 0 { format!(", {seeded} with rate") } else { String::new() };
            let of = advised.count() + 1;
            Some(format!("{}; {started} of {of}{rate}; {first_flight}", change(plain, advised)))
        }
        _ => None,
    }
}

/// The page of results.
pub(super) fn page(all: &[Tried], repeated: Option<&Tried>) -> String {
    let build = if cfg!(debug_assertions) { "a development build, slower than a release" } else { "a release" };
    let mut text = HEAD.replace("BUILD", build);
    for tried in all {
        let variants = ["auto", "stay", "hand_over", "sockops"].map(|variant| tried.agent(variant));
        let again = tried.findings.iter().find_map(|one| match one {
            Finding::Agent { variant, up, .. } if variant.ends_with("after SIGKILL") => Some(up.to_string()),
            _ => None,
        });
        let gateways: Vec<String> = tried.findings.iter().filter_map(gateway).collect();
        let left = tried.findings.iter().filter(|one| matches!(one, Finding::Left { left, .. } if !left.is_empty()));
        writeln!(
            text,
            "| {} ({}) | {} | {} | {} | {} |",
            tried.release(),
            tried.suite,
            variants.join(" | "),
            again.as_deref().unwrap_or("–"),
            left.count(),
            gateways.join(", ")
        )
        .ok();
    }
    text += TRANSFERS;
    for tried in all {
        for wanted in [4, 6] {
            write!(text, "| {}, IPv{wanted} |", tried.release()).ok();
            for host in HOSTS {
                let cell = tried.findings.iter().find_map(|one| cell(one, host.name, wanted));
                write!(text, " {} |", cell.unwrap_or_else(|| "–".to_owned())).ok();
            }
            text.push('\n');
        }
    }
    text += "\n## What a kernel does not take, what did not work, and how each gateway is confined\n\n";
    for tried in all {
        let refused = |one: &&Finding| match one {
            Finding::Agent { variant, up: Outcome::Good(_), lacks } => {
                *variant == Variant::default().name() && !lacks.is_empty()
            }
            Finding::Agent { .. } => !one.is_fault(false),
            _ => false,
        };
        let refusals = tried.findings.iter().filter(refused).map(ToString::to_string);
        for sentence in tried.faults(true).into_iter().chain(refusals) {
            writeln!(text, "- {}: {sentence}", tried.release()).ok();
        }
        if let Some(confined) = tried.findings.iter().find(|one| matches!(one, Finding::Gateway { .. })) {
            writeln!(text, "- {}: {confined}", tried.release()).ok();
        }
    }
    for one in repeated.iter().flat_map(|tried| &tried.findings) {
        if matches!(one, Finding::Repeated { .. }) {
            writeln!(text, "- The same 1 MB again and again, while this machine ran two busy loops a core: {one}.")
                .ok();
        }
    }
    text
}

fn gateway(finding: &Finding) -> Option<String> {
    let Finding::Gateway { backend, reads, .. } = finding else { return None };
    Some(match reads {
        Outcome::Good(with) => format!("{backend}: {with}"),
        Outcome::Bad(_) => format!("{backend}: no"),
    })
}

const HEAD: &str = "# The product on Debian's kernels

Made by `make kernels`: each kernel in a guest of qemu without KVM, whose clock counts instructions. A path of 20 Mbit/s, 40 ms and 100
packets (netem). Times are the guest's. The emulated processor has no cmpxchg16b: kernels from 6.18 on run with the slab allocator's
debugging. The programs are those of BUILD.

Seconds from the agent's start by each `bpf.variant` to its subscription, as the packaged user, with what is in force then and the thousands
of instructions that the verifier walked for it; the same after a SIGKILL (again); how often something was left in the kernel (programs, maps,
links, pins, congestion controls); what the gateway reads with by each `capture.backend`. `no`: refused.

| kernel | auto | stay | hand_over | sockops | again | left | gateway |
| --- | --- | --- | --- | --- | --- | --- | --- |
";

const TRANSFERS: &str = "
Mean times in ms from the SYN to the last byte of 1 MB (ten transfers) and 100 KB (six), before the agent ran and with it; connections that
the agent counted as started, and how many of these on BBR with rate and estimate; congestion control, window and threshold in segments that
`ss` shows in a first flight.

| kernel | CUBIC | Reno | BBR | BBR, fq |
| --- | --- | --- | --- | --- |
";
