//! TCP/SPAND across five bottlenecks with cross traffic (Zhang, Qiu, Keshav, Figures 14 to 17), with the product on this kernel.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::benefit::result::{Learning, Measured, Run};
use crate::benefit::run::run as run_scenario;
use crate::benefit::scenario::{Arm, Question, Scenario, Senders, Site, Work};
use crate::benefit::{path, stage};
use crate::lab::path::Carrier;
use crate::papers::ns::Figures;
use crate::papers::row::{Programs, Setting};
use crate::product::{ApplyMethod, Mode, StartVariant};

/// Senders that share a path.
const SENDERS: [u8; 4] = [1, 6, 15, 30];
/// Who sends, each on paths of its own: Linux as it ships, and the initial window of the paper's time, both beside the product.
const ARMS: [Arm; 3] = [Arm::Product, Arm::Cubic, Arm::RenoFrom(3)];
const BYTES: u64 = 30_000;

const TIME: &str = "ms";
const AGAIN: &str = "repeats";

pub(super) fn run(setting: &Setting, seed: u64, programs: &Programs) -> Result<Figures> {
    let scenario = scenario(setting.option("udp")?);
    let run = Run {
        paths: Carrier::Emulator,
        scenario: scenario.name(),
        way: ApplyMethod::Bpf,
        mode: Mode::Careful,
        stated: true,
        learning: Learning::Plain,
        start: StartVariant::Plain,
        seed,
    };
    let programs = stage::Programs {
        gateway: programs.gateway.clone(),
        agent: programs.agent.clone(),
        agent_more: String::new(),
        keep: None,
    };
    let result = run_scenario(&scenario, &run, &programs, &|_| {})?;
    ensure!(result.fault.is_none(), "the run counts for nothing: {}", result.fault.unwrap_or_default());
    let mut figures = figures(&result.transfers);
    // What the starts rest on.
    for learnt in result.learnt {
        if let Some(share) = learnt.share_before {
            figures.insert(format!("{}_share_segments", learnt.case), f64::from(u32::try_from(share)?));
        }
    }
    Ok(figures)
}

/// Means over the transfers of each number of senders and kind.
fn figures(transfers: &[Measured]) -> Figures {
    let mut groups: BTreeMap<(&str, &str), Vec<&Measured>> = BTreeMap::new();
    for one in transfers {
        groups.entry((&one.case, &one.arm)).or_default().push(one);
    }
    let mut figures = Figures::new();
    for ((case, arm), of_it) in groups {
        let mean = |of: fn(&Measured) -> f64| of_it.iter().map(|one| of(one)).sum::<f64>() / of_it.len() as f64;
        figures.insert(format!("{case}_{arm}_{TIME}"), mean(|one| one.completion_ms));
        figures.insert(format!("{case}_{arm}_{AGAIN}"), mean(|one| f64::from(one.again)));
        figures.insert(format!("{case}_{arm}_first_flight"), mean(|one| f64::from(one.first_flight)));
    }
    figures
}

/// Every number of senders of every kind side by side, on paths of their own.
fn scenario(udp_kbit: u64) -> Scenario {
    // 10 ms of propagation for each bottleneck, 1 ms for the access link.
    let path = path::Way { bottlenecks: 5, cross_kbit: Some(udp_kbit), ..path::Way::reference(1_600, 51) };
    let mut sites = Vec::new();
    for senders in SENDERS {
        for arm in ARMS {
            sites.push(Site {
                beside: None,
                case: senders.to_string(),
                senders: Senders::All(arm),
                clients: senders,
                path,
                lane: u8::try_from(sites.len()).unwrap_or(u8::MAX),
                learners: 1 + senders / 30,
            });
        }
    }
    Scenario {
        family: "hops",
        part: "",
        question: Question::Together,
        congestion_control: Arm::Cubic.congestion_control(),
        sites,
        learn_bytes: (30_000, 2_000_000),
        learn: 20,
        work: Work::Rounds { bytes: BYTES, rounds: 8, warm: 2, within_ms: 10_000, every_ms: 13_000 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_every_number_of_senders_on_five_bottlenecks() {
        let scenario = scenario(12);
        assert_eq!(scenario.sites.len(), 12);
        for site in &scenario.sites {
            let crossed = site.path.config(1).down.hops().filter(|hop| hop.cross.is_some()).count();
            assert_eq!((crossed, site.case.as_str()), (5, site.clients.to_string().as_str()));
        }
    }
}
