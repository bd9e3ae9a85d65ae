//! The start function in the kernel against the contract's own.

mod careful;
mod growth;
mod networks;

use std::num::NonZeroUsize;

use libbpf_rs::{MapType, Object, ObjectBuilder, ProgramInput};
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};
use spand_needs::{Need, needs};
use spand_proto::estimate::{Confidence, Estimate, RuleKind};
use spand_proto::opening::{LossClock, Opening};
use spand_proto::start::{
    DEFAULT_INITIAL_WINDOW, Floor, Fraction, Limit, PacingRule, Refusal, RefusalReason, RttBounds, Shape, Start,
    StartPolicy, StartRequest, TransferSize, start,
};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp, Window};
use strum::VariantArray;

use super::layout::{self, Encoder, Place};
use crate::apply::Inputs;
use crate::config::Variant;

/// `struct trial` of `spand.bpf.c`: network, transfer, policy, start.
const TRIAL_BYTES: usize = ANSWER_AT + 40;
/// Where its `struct start` stands: after what is known of the network, the transfer and the policy.
const ANSWER_AT: usize = layout::NETWORK_BYTES + 56 + layout::POLICY_BYTES;

/// The programs without those that need a congestion control; `None` without the right
/// to load them.
fn programs() -> Option<Object> {
    programs_with_room(65_536)
}

/// The same, for N networks.
fn programs_with_room(networks: u32) -> Option<Object> {
    if !needs(Need::Root) {
        return None;
    }
    let mut open = ObjectBuilder::default().open_memory(super::load::PROGRAMS).unwrap();
    for mut map in open.maps_mut().filter(|map| map.map_type() == MapType::StructOps) {
        map.set_autocreate(false).unwrap();
    }
    for mut map in open.maps_mut().filter(|map| map.name() == "networks" || map.name() == "budgets") {
        map.set_max_entries(networks).unwrap();
    }
    for mut program in open.progs_mut() {
        program.set_autoload(program.section() == "syscall");
    }
    Some(open.load().unwrap())
}

/// The result of the kernel's function: window, threshold, rate, the limit that clipped and the jump, or the refusal's number.
type Answer = Result<(u32, u32, u64, u32, u32), u32>;

fn in_kernel(programs: &Object, inputs: &Inputs, request: &StartRequest<'_>, policy: &StartPolicy) -> Answer {
    let (bytes, usual) = match request.size {
        TransferSize::Known(bytes) => (bytes.0, 0),
        TransferSize::Usual(bytes) => (bytes.0, 1),
        TransferSize::Unknown => (0, 0),
    };
    let lost_ns = inputs.losses.map_or(0, |losses| losses.last.0);
    let mut trial = layout::network(inputs, u64::MAX, lost_ns, Place { slot: 0, era: 0 });
    let small = |number: u64| u32::try_from(number).unwrap();
    trial.extend(
        Encoder::default()
            .u64(bytes)
            .u64(request.snd_wnd.unwrap().0)
            .u32(small(request.mss.0))
            .u32(request.handshake_rtt.map_or(0, |rtt| small(rtt.0)))
            .u32(request.initial_window.0)
            .u32(request.budget.map_or(u32::MAX, |left| left.0))
            .u32(DEFAULT_INITIAL_WINDOW.0)
            .u32(usual)
            .u64(request.now.0)
            .u32(layout::shape(policy.shape))
            .u32(0)
            .done(),
    );
    trial.extend(layout::policy(policy, TransferSize::Unknown));
    trial.resize(TRIAL_BYTES, 0);
    let program = programs.progs_mut().find(|program| program.name() == "try_start").unwrap();
    program.test_run(ProgramInput { context_in: Some(&mut trial), ..ProgramInput::default() }).unwrap();
    let at = |place: usize| u32::from_ne_bytes(*trial[ANSWER_AT + place..].first_chunk().unwrap());
    let rate = u64::from_ne_bytes(*trial[ANSWER_AT..].first_chunk().unwrap());
    match at(20) {
        0 => Ok((at(8), at(12), rate, at(16), at(32))),
        refusal => Err(refusal),
    }
}

fn in_contract(request: &StartRequest<'_>, policy: &StartPolicy) -> Answer {
    let number = |refusal: &Refusal| match refusal.reason() {
        RefusalReason::NoRtt => 5,
        RefusalReason::RttMismatch => 6,
        RefusalReason::MssZero => 7,
        RefusalReason::NoOpening => 9,
        other => panic!("the kernel's function is not called where the contract's gives {other}"),
    };
    let limit = |start: &Start| match start.clipped_by {
        None => 0,
        Some(Limit::Fraction) => 1,
        Some(Limit::Cap) => 2,
        Some(Limit::PeerWindow) => 3,
        Some(Limit::Budget) => 4,
        Some(Limit::Buffer) => 5,
        Some(Limit::Floor) => panic!("a floor clips nothing"),
    };
    match start(request, policy) {
        Ok(start) => {
            let rate = start.pacing.map_or(0, |pacing| pacing.rate.0);
            let jump = start.account.jump.map_or(0, |jump| jump.0);
            Ok((start.cwnd.0, start.ssthresh.0, rate, limit(&start), jump))
        }
        Err(refusal) => Err(number(&refusal)),
    }
}

/// The pacing of mode `paper` by this way.
const AFTER_BURST: PacingRule = PacingRule::AfterBurst { burst: DEFAULT_INITIAL_WINDOW };

fn estimate(share: Window, rtt: Option<Micros>, loss_connections: u32) -> Estimate {
    Estimate {
        network: "192.0.2.0/24".parse().unwrap(),
        share,
        mss: Bytes(1_448),
        rtt_min: rtt.map(|Micros(mean)| Micros(mean - mean / 4)),
        rtt_mean: rtt,
        samples: 10,
        connections: 5,
        loss_connections,
        loss_window: None,
        is_lower_bound: false,
        opening: None,
        buffer: None,
        bdp: None,
        losses: loss_connections.saturating_sub(2).into(),
        refreshed: Timestamp(0),
        confidence: Confidence::new(0.5),
        rule: RuleKind::Robust,
        mark: None,
    }
}

fn inputs(estimate: &Estimate, policy: &StartPolicy) -> Inputs {
    Inputs::new(estimate, None, None, policy)
}

/// The model alone: every share up to 100 with every size of up to two epochs, larger shares with every 97th.
#[test]
fn the_kernels_model_is_the_contracts() {
    let Some(programs) = programs() else { return };
    let policy = StartPolicy { pacing: AFTER_BURST, ..StartPolicy::PAPER };
    let mss = Bytes(1_000);
    let mut tried = 0;
    for share in 1_u32..=200 {
        let epoch =
            spand_proto::model::Epoch::new(Segments(share), spand_proto::model::LINUX_SEGMENTS_PER_ACK).length();
        let stride = if share <= 100 { 1 } else { 97 };
        for size in (1..=2 * u32::try_from(epoch).unwrap() + 1).step_by(stride) {
            let estimate = estimate(Window::from_segments(Segments(share), mss), Some(Micros(100_000)), 0);
            let request = StartRequest {
                estimate: Some(&estimate),
                now: Timestamp(0),
                size: TransferSize::Known(Bytes(u64::from(size) * mss.0)),
                mss,
                snd_wnd: Some(Bytes(1 << 30)),
                handshake_rtt: None,
                initial_window: DEFAULT_INITIAL_WINDOW,
                budget: None,
            };
            let kernels = in_kernel(&programs, &inputs(&estimate, &policy), &request, &policy);
            assert_eq!(kernels, in_contract(&request, &policy), "share {share}, {size} segments");
            tried += 1;
        }
    }
    assert!(tried > 100_000, "only {tried} cases");
}

prop_compose! {
    fn policies()(
        fraction in prop::option::of(0.01_f64..=1.0),
        cap in prop::option::of(1_u32..300),
        floor in prop::option::of((1_u32..30, 0_u32..4)),
        budgeted: bool,
        bounds in prop::option::of((0.01_f64..=1.0, 1.0_f64..50.0)),
        fills_pipe: bool,
        threshold_needs_loss: bool,
        of_share: bool,
        shape in prop::sample::select(Shape::VARIANTS),
        buffered: bool,
        crowd: bool,
    ) -> StartPolicy {
        StartPolicy {
            fraction: fraction.map(|fraction| Fraction::try_from(fraction).unwrap()),
            cap: cap.map(Segments),
            floor: floor.map(|(lowest, loss_connections)| Floor { lowest: Segments(lowest), loss_connections }),
            budgeted,
            rtt_bounds: bounds.map(|(low, high)| RttBounds { low, high }),
            fills_pipe,
            threshold_needs_loss,
            pacing: if of_share { StartPolicy::CAREFUL.pacing } else { AFTER_BURST },
            shape,
            buffered,
            crowd,
            ..StartPolicy::CAREFUL
        }
    }
}

prop_compose! {
    fn openings()(
        threshold in 0.0_f64..4e6,
        clock in prop::option::of((0_u64..200_000_000, any::<u64>(), 0_u64..400_000_000)),
    ) -> Opening {
        let losses = clock.map(|(interval, oldest, age_us)| LossClock {
            interval: Micros(interval),
            oldest_interval: Micros(oldest % 400_000_000),
            last: NOW.before(Micros(age_us)),
        });
        Opening { rule: RuleKind::Robust, threshold: Window::from_bytes(threshold).unwrap(), losses }
    }
}

/// When every start is computed.
const NOW: Timestamp = Timestamp::from_micros(300_000_000);

/// Everything together, at random.
#[test]
fn the_kernels_start_is_the_contracts() {
    let Some(programs) = programs() else { return };
    let cases = (
        policies(),
        (0.0_f64..2e6, prop::option::of(0_u64..3_000_000), 0_u32..6, prop::option::of(0.0_f64..4e8)),
        ((prop::option::of(1_u64..5_000_000), any::<bool>()), 500_u64..9_000, 0_u64..2_000_000),
        (prop::option::of(0_u64..3_000_000), 1_u32..20, prop::option::of(0_u32..200)),
        (prop::option::of(openings()), prop::option::of(0.0_f64..1e6), prop::option::of(0.0_f64..2e5)),
    );
    let mut runner = TestRunner::new(Runs { cases: 20_000, failure_persistence: None, ..Runs::default() });
    let outcome = runner.run(
        &cases,
        |(
            policy,
            (share, rtt, losses, at_losses),
            ((size, usual), mss, peer),
            (own_rtt, first, budget),
            (opening, buffer, bdp),
        )| {
            let loss_window = at_losses.map(|bytes| Window::from_bytes(bytes).unwrap());
            let buffer = buffer.map(|bytes| Window::from_bytes(bytes).unwrap());
            let estimate = estimate(Window::from_bytes(share).unwrap(), rtt.map(Micros), losses);
            let bdp = bdp.map(|bytes| Window::from_bytes(bytes).unwrap());
            let estimate = Estimate { loss_window, opening, buffer, bdp, refreshed: NOW, ..estimate };
            let request = StartRequest {
                estimate: Some(&estimate),
                now: NOW,
                size: match size.map(Bytes) {
                    Some(bytes) if usual => TransferSize::Usual(bytes),
                    size => size.into(),
                },
                mss: Bytes(mss),
                snd_wnd: Some(Bytes(peer)),
                handshake_rtt: own_rtt.map(Micros),
                initial_window: Segments(first),
                budget: budget.map(Segments),
            };
            let kernels = in_kernel(&programs, &inputs(&estimate, &policy), &request, &policy);
            prop_assert_eq!(kernels, in_contract(&request, &policy));
            Ok(())
        },
    );
    outcome.unwrap();
}

#[test]
fn every_counter_of_the_programs_has_a_name() {
    let open = ObjectBuilder::default().open_memory(super::load::PROGRAMS).unwrap();
    let counters = open.maps().find(|map| map.name() == "counts").unwrap();
    assert_eq!(counters.max_entries() as usize, super::events::NAMES.len());
}

/// Looks at the programs of every variant, loaded.
fn for_each_variant(look: impl Fn(&Object)) {
    let Some(_may_load) = programs() else { return };
    let room = super::Room { networks: const { NonZeroUsize::new(16).unwrap() }, names: super::Names::new("test") };
    for variant in Variant::Auto.candidates() {
        look(&super::load::open_and_load(*variant, &room).unwrap());
    }
}

/// `BPF_FUNC_ktime_get_ns`: a clock that stands still while the host is suspended.
const STANDING_CLOCK: i32 = 5;

#[test]
fn no_lifetime_is_held_against_a_clock_that_stands_still_with_the_host() {
    let calls = |program: &libbpf_rs::Program<'_>, helper| {
        // BPF_JMP | BPF_CALL
        program.insns().iter().any(|one| one.code == 0x85 && one.src_reg() == 0 && one.imm == helper)
    };
    for_each_variant(|all| {
        let asking = all.progs().filter(|program| calls(program, STANDING_CLOCK));
        let names: Vec<_> = asking.map(|program| program.name().to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["read_clocks"], "except for the length of a tick");
    });
}

#[test]
fn no_counter_is_read_and_written_in_two_steps() {
    // BPF_LDX | BPF_DW, BPF_ALU64 | BPF_ADD, BPF_STX | BPF_DW: a softirq's program may come between.
    let in_steps = |program: &libbpf_rs::Program<'_>| {
        program.insns().windows(3).any(|three| {
            let [load, add, store] = three else { return false };
            (load.code, add.code, store.code, add.imm) == (0x79, 0x07, 0x7b, 1)
                && (load.src_reg(), load.dst_reg(), load.off) == (store.dst_reg(), store.src_reg(), store.off)
        })
    };
    for_each_variant(|all| {
        let names: Vec<_> = all.progs().filter(in_steps).map(|program| program.name().to_owned()).collect();
        assert!(names.is_empty(), "{names:?}");
    });
}
