//! The phases of Careful Resume in the kernel against the contract's, event by event.

use std::cell::RefCell;
use std::collections::BTreeMap;

use spand_proto::resume::{Ack, CarefulResume, Jump, Phase};

use super::*;

/// `struct careful_trial`, and where its parts lie.
const TRIAL_BYTES: usize = 96;
const PIPE_SIZE_AT: usize = 8;
const WINDOW_AT: usize = 12;
const PHASE_AT: usize = 28;
const ENDED_IN_AT: usize = 29;
const ACK_AT: usize = 32;
const ENTERED_AT: usize = 84;
const MAY_JUMP_AT: usize = 88;

const RTT: Micros = Micros(100_000);

/// `enum careful_step`.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// To this window.
    Jumps(Option<u32>),
    Acked,
    Congested,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
struct Event {
    step: Step,
    sent: u32,
    acked: u32,
    after_us: u32,
    min_rtt_us: u32,
    recovering: bool,
    cwnd: u32,
    waiting: u32,
}

/// `enum careful_phase`.
fn phase(number: u8) -> Phase {
    match number {
        0 => Phase::Normal,
        1 => Phase::Reconnaissance,
        2 => Phase::Unvalidated,
        3 => Phase::Validating,
        4 => Phase::SafeRetreat,
        other => panic!("no phase has the number {other}"),
    }
}

/// What one step shows: whether the connection might have jumped before, whether a phase began, and the state after it.
#[derive(Debug, Eq, PartialEq)]
struct Shown {
    may_jump: bool,
    entered: bool,
    phase: Phase,
    ended_in: Phase,
    pipe_size: u32,
    window: u32,
}

struct InKernel<'a> {
    programs: &'a Object,
    trial: Vec<u8>,
}

impl<'a> InKernel<'a> {
    fn new(programs: &'a Object, initial: u32, initial_end: u64) -> Self {
        let careful = Encoder::default().u32(initial).u32(low(initial_end)).u32(0).u32(0).u32(0).u32(0).u32(0);
        let mut trial = careful.bytes(&[1, 1, 0, 0]).done();
        trial.resize(TRIAL_BYTES, 0);
        Self { programs, trial }
    }

    fn at(&self, place: usize) -> u32 {
        u32::from_ne_bytes(*self.trial[place..].first_chunk().unwrap())
    }

    fn step(&mut self, event: &Event, ack: &Ack) -> Shown {
        let (step, window) = match event.step {
            Step::Jumps(window) => (0, window.unwrap_or(0)),
            Step::Acked => (1, 0),
            Step::Congested => (2, 0),
        };
        let given = Encoder::default()
            .u32(low(ack.now.0))
            .u32(low(ack.acked))
            .u32(low(ack.newest))
            .u32(low(ack.sent))
            .u32(low(ack.flight))
            .u32(low(ack.rtt.0))
            .u32(low(ack.min_rtt.0))
            .u32(u32::from(ack.recovering))
            .u32(step)
            .u32(window)
            .u32(low(RTT.0))
            .u32(event.cwnd)
            .u32(event.waiting)
            .u32(0)
            .u32(0)
            .u32(0)
            .done();
        self.trial[ACK_AT..].copy_from_slice(&given);
        let program = self.programs.progs_mut().find(|program| program.name() == "try_careful").unwrap();
        program.test_run(ProgramInput { context_in: Some(&mut self.trial), ..ProgramInput::default() }).unwrap();
        Shown {
            may_jump: self.at(MAY_JUMP_AT) != 0,
            entered: self.at(ENTERED_AT) != 0,
            phase: phase(self.trial[PHASE_AT]),
            ended_in: phase(self.trial[ENDED_IN_AT]),
            pipe_size: self.at(PIPE_SIZE_AT),
            window: self.at(WINDOW_AT),
        }
    }
}

/// The low half, which is all that the kernel has.
fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap()
}

fn in_contract(resume: &mut CarefulResume, event: &Event, ack: &Ack) -> Shown {
    let may_jump = resume.may_jump(ack, event.waiting.into(), event.cwnd.into());
    let transition = match event.step {
        Step::Jumps(window) => {
            let jump = window.map(|window| Jump { window: window.into(), saved_rtt: RTT });
            resume.jump(jump, ack, event.cwnd.into())
        }
        Step::Acked => resume.on_ack(ack),
        Step::Congested => resume.on_congestion(ack.sent),
    };
    let (pipe_size, window) = (low(resume.pipe_size()), low(resume.window()));
    let (phase, ended_in) = (resume.phase(), resume.ended_in());
    Shown { may_jump, entered: transition.is_some(), phase, ended_in, pipe_size, window }
}

fn events() -> impl Strategy<Value = Event> {
    let step = prop_oneof![
        4 => prop::option::weighted(0.9, 0_u32..250).prop_map(Step::Jumps),
        24 => Just(Step::Acked),
        1 => Just(Step::Congested),
    ];
    // About half, the saved one and ten times that.
    let min_rtt = prop_oneof![
        1 => prop::sample::select(vec![0, 49_999, 50_000, 50_001, 999_999, 1_000_000, 1_000_001]),
        12 => Just(100_000_u32),
    ];
    let after = prop_oneof![12 => 0_u32..20_000, 1 => 99_999_u32..100_003];
    (step, 0_u32..70, 0_u32..30, after, min_rtt, prop::bool::weighted(0.2), 0_u32..120, 0_u32..40).prop_map(
        |(step, sent, acked, after_us, min_rtt_us, recovering, cwnd, waiting)| Event {
            step,
            sent,
            acked,
            after_us,
            min_rtt_us,
            recovering,
            cwnd,
            waiting,
        },
    )
}

#[test]
fn the_kernels_phases_are_the_contracts() {
    let Some(programs) = programs() else { return };
    // About where the low half of a position, and of a time, begins again; and anywhere.
    let begin =
        || prop_oneof![(1_u64..1_000, 0_u64..600).prop_map(|(turns, before)| (turns << 32) - before), 0_u64..1 << 62];
    let cases = (begin(), begin(), 0_u32..30, prop::collection::vec(events(), 1..40));
    let seen: RefCell<BTreeMap<(Phase, Phase), u32>> = RefCell::default();
    let mut runner = TestRunner::new(Runs { cases: 8_000, failure_persistence: None, ..Runs::default() });
    let outcome = runner.run(&cases, |(first, began, initial, sequence)| {
        let initial_end = first + u64::from(initial);
        let mut kernel = InKernel::new(&programs, initial, initial_end);
        let mut contract = CarefulResume::new(initial.into(), initial_end);
        let (mut now, mut sent, mut newest) = (began, initial_end, first);
        for event in sequence {
            now += u64::from(event.after_us);
            let acked = u64::from(event.acked).min(sent - newest);
            newest += acked;
            let flight = sent - newest;
            sent += u64::from(event.sent);
            let ack = Ack {
                now: Micros(now),
                acked,
                newest,
                sent,
                flight: flight + u64::from(event.sent),
                rtt: RTT,
                min_rtt: Micros(event.min_rtt_us.into()),
                recovering: event.recovering,
            };
            let before = contract.phase();
            let contracts = in_contract(&mut contract, &event, &ack);
            if contracts.entered {
                *seen.borrow_mut().entry((before, contracts.phase)).or_default() += 1;
            }
            prop_assert_eq!(kernel.step(&event, &ack), contracts);
        }
        Ok(())
    });
    outcome.unwrap();
    let seen = seen.into_inner();
    println!("{seen:?}");
    let rare: Vec<_> = seen.iter().filter(|(_, times)| **times < 100).collect();
    // Every line of the RFC's figure 1.
    assert!(seen.len() == 8 && rare.is_empty(), "{seen:?}");
}
