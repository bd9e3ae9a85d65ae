//! Openings by the senders under way (Yu & Newman, section 5), with the product's own programs.

use std::time::Duration;

use anyhow::Result;
use spand_proto::estimate::RuleKind;
use spand_proto::start::Shape;
use spand_proto::units::BytesPerSecond;

use crate::lab::path::{PathConfig, Queue};
use crate::papers::crowd::{self, Advice, Arm, Crowd, Host, Lives};
use crate::papers::ns::Figures;
use crate::papers::row::{Programs, Setting};
use crate::product::Mode;

/// The paper's baseline.
const PAPERS: Host = Host { window: 1, threshold: Some(10) };
/// Linux as it is.
const STOCK: Host = Host { window: 10, threshold: None };
/// With the product: the paper's first window, and no threshold but the opening's.
const ADVISED: Host = Host { window: 1, threshold: None };

const RENO: &str = "reno1";
const LINUX: &str = "reno";
const LISS: &str = "liss";
const ISS: &str = "iss";
const MISS: &str = "miss";
const JS: &str = "js";

const fn advised(name: &'static str, rule: RuleKind, shape: Shape, mode: Mode) -> Arm {
    Arm { name, host: ADVISED, advice: Some(Advice { rule, shape, mode }) }
}

const ARMS: [Arm; 6] = [
    Arm { name: RENO, host: PAPERS, advice: None },
    Arm { name: LINUX, host: STOCK, advice: None },
    advised(LISS, RuleKind::Liss, Shape::Threshold, Mode::Careful),
    advised(ISS, RuleKind::Iss, Shape::Threshold, Mode::Careful),
    // Its shape is for comparison and runs in this mode alone.
    advised(MISS, RuleKind::Miss, Shape::Measured, Mode::Paper),
    advised(JS, RuleKind::Liss, Shape::Jump, Mode::Careful),
];

pub(super) fn run(setting: &Setting, seed: u64, programs: &Programs) -> Result<Figures> {
    let seconds = |name: &str| setting.option(name).map(Duration::from_secs);
    let crowd = Crowd {
        path: PathConfig::bottleneck(BytesPerSecond(2_000_000), Duration::from_millis(150), Queue::Packets(50)),
        clients: 5,
        others: setting.option("others")?,
        lives: Lives {
            arrivals: Duration::from_secs(5),
            life: seconds("life_s")?,
            shape: 1.35,
            length: seconds("length_s")?,
        },
    };
    crowd::run(&crowd, &ARMS, seed, programs)
}
