//! TCP/SPAND across five bottlenecks with cross traffic (Zhang, Qiu, Keshav, Figures 14 to 17), with the product on this kernel.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use crate::benefit::result::{Learning, Measured, Run};
use crate::benefit::run::run as run_scenario;
use crate::benefit::scenario::{Arm, Question, Scenario, Senders, Site, Work};
use crate::benefit::{path, stage};
use crate::campaign::statistics::Mean;
use crate::lab::path::Carrier;
use crate::papers::ns::Figures;
use crate::papers::row::{Judged, Outcomes, Programs, Row, Setting, Way, percent};
use crate::product::{ApplyMethod, Mode, StartVariant};

/// Rates of a source of cross traffic in kbit/s.
const LIGHT: u64 = 12;
const HEAVY: u64 = 48;
/// Senders that share a path.
const SENDERS: [u8; 4] = [1, 6, 15, 30];
/// Who sends, each on paths of its own: Linux as it ships, and the initial window of the paper's time, both beside the product.
const ARMS: [Arm; 3] = [Arm::Product, Arm::Cubic, Arm::RenoFrom(3)];
const BYTES: u64 = 30_000;

/// Under light cross traffic: the least that six senders gain against CUBIC.
const GAIN: f64 = -0.20;
/// Under heavy: the most that any may lose.
const WORSE_MOST: f64 = 0.02;

/// K1.
pub(super) fn five_bottlenecks() -> Row {
    let setting = |kbit: u64| Setting::new(format!("udp-{kbit}"), &[]).with("udp", kbit);
    Row {
        id: "K1",
        what: "Zhang, Qiu, Keshav Figures 14 to 17 with the product: 30 KB over five bottlenecks of 1.6 Mbit/s, ten packets and 40 UDP sources each",
        expected: "at 12 kbit/s a source six senders take 20 % less than CUBIC or better; at 48 nobody takes more than 2 % longer",
        source: "6.2; against Linux of today a proposal of this project",
        way: Way::Kernel { version: 1, run },
        seeds: 3,
        quick_seeds: 1,
        settings: [LIGHT, HEAVY].map(setting).to_vec(),
        judge: judged,
    }
}

fn judged(outcomes: &Outcomes) -> Judged {
    let mut judged = Judged::default();
    for kbit in [LIGHT, HEAVY] {
        let setting = format!("udp-{kbit}");
        for senders in SENDERS {
            let of = |arm: Arm, what: &str| outcomes.mean(&setting, &figure(senders, arm, what));
            let against = |other: Arm| {
                let (ours, theirs) = (figure(senders, Arm::Product, TIME), figure(senders, other, TIME));
                outcomes.change((&setting, &ours), (&setting, &theirs))
            };
            let at = format!("{kbit} kbit/s, {senders} senders");
            let change = against(Arm::Cubic);
            let what = format!("{at}: against CUBIC");
            if kbit == HEAVY {
                judged.within(what, "+2 % or less", f64::NEG_INFINITY..=WORSE_MOST, change, percent);
            } else if senders == 6 {
                judged.within(what, "-20 % or less", f64::NEG_INFINITY..=GAIN, change, percent);
            } else {
                judged.report(what, "", change.map(|change| percent(&change)));
            }
            let published = if kbit == HEAVY { "below (Figures 16, 17)" } else { "-25 to -55 % (Figures 14, 15)" };
            let against_reno = against(ARMS[2]).map(|change| percent(&change));
            judged.report(format!("{at}: against Reno from 3 segments"), published, against_reno);
            for (what, digits) in [(TIME, 0), (AGAIN, 2)] {
                let found: Option<Vec<Mean>> = ARMS.into_iter().map(|arm| of(arm, what)).collect();
                let text = |found: Vec<Mean>| {
                    found.iter().map(|mean| format!("{:.digits$}", mean.value)).collect::<Vec<_>>().join(" / ")
                };
                let name = if what == TIME { "mean time in ms" } else { "repeats a transfer" };
                judged.report(format!("{at}: {name}, product / CUBIC / Reno"), "", found.map(text));
            }
        }
    }
    judged
}

const TIME: &str = "ms";
const AGAIN: &str = "repeats";

/// The name of a figure.
fn figure(senders: u8, arm: Arm, what: &str) -> String {
    format!("{senders}_{}_{what}", arm.name())
}

fn run(setting: &Setting, seed: u64, programs: &Programs) -> Result<Figures> {
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
    use crate::papers::row::Verdict;

    #[test]
    fn every_kind_has_every_number_of_senders_on_five_bottlenecks() {
        let scenario = scenario(LIGHT);
        assert_eq!(scenario.sites.len(), 12);
        for site in &scenario.sites {
            let crossed = site.path.config(1).down.hops().filter(|hop| hop.cross.is_some()).count();
            assert_eq!((crossed, site.case.as_str()), (5, site.clients.to_string().as_str()));
        }
    }

    #[test]
    fn the_row_is_judged_by_six_senders_and_by_the_losers() {
        let of_run = |gain: f64, loss: f64| {
            let mut outcomes = Outcomes::default();
            for (kbit, change) in [(LIGHT, gain), (HEAVY, loss)] {
                let mut figures = Figures::new();
                for senders in SENDERS {
                    let changes = senders == 6 || kbit == HEAVY;
                    for arm in ARMS {
                        let ms = if changes && arm == Arm::Product { 100.0 * (1.0 + change) } else { 100.0 };
                        figures.insert(figure(senders, arm, TIME), ms);
                        figures.insert(figure(senders, arm, AGAIN), 0.0);
                    }
                }
                outcomes.0.entry(format!("udp-{kbit}")).or_default().insert(1, figures);
            }
            judged(&outcomes).verdict()
        };
        assert_eq!(of_run(-0.21, 0.01), Verdict::Met);
        assert_eq!(of_run(-0.19, 0.01), Verdict::Short);
        assert_eq!(of_run(-0.21, 0.03), Verdict::Short);
        assert_eq!(judged(&Outcomes::default()).verdict(), Verdict::Incomplete);
    }
}
