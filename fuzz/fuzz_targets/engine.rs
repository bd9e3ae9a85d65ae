//! The engine as a whole with the smallest tables: it tells the same whatever its hash, keeps every limit, and ends.

#![no_main]

use std::num::NonZeroUsize;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use spand_core::config::{EngineConfig, FlowReports, Limits, Tunnels};
use spand_core::counters::Ignored;
use spand_core::engine::Engine;
use spand_core::event::Event;
use spand_core::wire::Frame;
use spand_fuzz::{Counting, Packet, Talk};
use spand_openings::{LossCount, PLACES, openings};
use spand_proto::estimate::RuleKind;
use spand_proto::units::{Micros, Timestamp};
use strum::VariantArray;

#[global_allocator]
static MEMORY: Counting = Counting::new();

/// What two engines with tables of so few places may hold, everything counted: a bound found by fuzzing, doubled.
const MOST_BYTES: usize = 4 << 20;

#[derive(Arbitrary, Debug)]
enum Step {
    See(Packet),
    SeeOften(Packet, u8),
    Timeout,
    Advise(u8),
    Store,
    Ask,
}

#[derive(Arbitrary, Debug)]
struct Setting {
    rule: u8,
    inside: bool,
    reports: u8,
    read_window_option: bool,
    base: u64,
}

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    let Ok(setting) = Setting::arbitrary(&mut input) else { return };
    let before = MEMORY.bytes();
    let mut engines = [engine(&setting, 0), engine(&setting, 0x9e37_79b9_7f4a_7c15)];
    // Mostly a time such as there is; else any.
    let base = if setting.base % 4 == 0 { setting.base } else { 1_700_000_000_000_000_000 };
    let mut talk = Talk::new(base);
    let mut frames = 0;
    let mut clock = 0;
    // Without input there is no end of zeros.
    while !input.is_empty() {
        let Ok(step) = Step::arbitrary(&mut input) else { break };
        match step {
            Step::See(packet) => talk.take(&packet),
            Step::SeeOften(packet, times) => (0..times % 16).for_each(|_| talk.take(&packet)),
            Step::Timeout => {
                // The engine believes no time after its own latest; the year 2262 is far enough.
                let now = talk.now.min(u64::MAX / 2 - 1);
                // Reports wait for room among the events: once more for each of the few connections is enough.
                for _ in 0..20 {
                    engines.iter_mut().for_each(|engine| engine.handle_timeout(Timestamp(now)));
                    drain(&mut engines);
                }
                let due = engines[0].poll_timeout();
                assert!(due.is_none_or(|due| due.0 > now), "{due:?} was due at {now}");
                assert_eq!(due, engines[1].poll_timeout());
                clock = clock.max(now);
            }
            Step::Advise(host) => {
                for engine in &mut engines {
                    engine.note_advised(
                        [192, 0, 2, 1].into(),
                        [198, 51, host % 5, host % 12].into(),
                        Timestamp(talk.now),
                    );
                }
            }
            Step::Store => {
                let [a, b] = engines.each_mut().map(|engine| engine.networks_mut().changed_records(2));
                assert_eq!(a, b);
                for (network, record) in a {
                    let Some(record) = record else { continue };
                    for engine in &mut engines {
                        engine.restore(network, record.clone(), Timestamp(talk.now));
                    }
                }
                drain(&mut engines);
            }
            Step::Ask => {
                let now = Timestamp(talk.now);
                let [a, b] = engines.each_ref().map(|engine| engine.networks().views(now));
                assert_eq!(a, b);
                assert!(a.len() <= 3, "networks");
                for view in a {
                    assert!(view.estimate.is_none_or(|estimate| estimate.share.bytes() > 0.0));
                }
            }
        }
        while let Some((at, packet)) = talk.packets.pop_front() {
            let wire_len = match packet.get(2..6) {
                Some(&[a, b, c, d]) => {
                    u32::from(u16::from_be_bytes(if packet[0] >> 4 == 6 { [c, d] } else { [a, b] })) + 40
                }
                _ => 0,
            };
            let frame = Frame { link_type: 101, wire_len, input: 0, data: &packet };
            for engine in &mut engines {
                engine.handle_frame(Timestamp(at), &frame);
            }
            frames += 1;
            drain(&mut engines);
        }
    }
    for engine in &mut engines {
        assert_eq!(engine.counters().frames, frames);
        engine.finish(Timestamp(clock));
    }
    let held = MEMORY.bytes().saturating_sub(before);
    assert!(held <= MOST_BYTES, "{held} bytes are held");
    drain(&mut engines);
    for engine in &engines {
        assert_eq!(engine.connections(), 0, "all have ended");
    }
});

fn engine(setting: &Setting, hash_seed: u64) -> Engine {
    let few = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
    let limits = Limits {
        connections: few(8),
        networks: few(3),
        outstanding_segments: 16.try_into().unwrap(),
        sequence_ranges: 4.try_into().unwrap(),
        services: few(2),
        report_samples: 8.try_into().unwrap(),
        events: few(16),
        ..Limits::default()
    };
    let rules = RuleKind::VARIANTS;
    let rule = rules[usize::from(setting.rule) % rules.len()];
    let reports = [FlowReports::None, FlowReports::Sums, FlowReports::Full];
    Engine::new(EngineConfig {
        internal: if setting.inside { vec!["192.0.2.0/24".parse().unwrap()] } else { Vec::new() },
        tunnels: Tunnels::ALL,
        read_window_option: setting.read_window_option,
        rule,
        openings: openings(rule, &[], PLACES, LossCount::Episodes),
        limits,
        hash_seed,
        flow_reports: reports[usize::from(setting.reports) % reports.len()],
        ..EngineConfig::default()
    })
}

/// Both tell the same, nothing was lost, and what they say of networks makes sense.
fn drain(engines: &mut [Engine; 2]) {
    loop {
        let [a, b] = engines.each_mut().map(Engine::poll_event);
        assert_eq!(a, b);
        match a {
            None => break,
            Some(Event::Estimate(estimate)) => {
                assert!(estimate.share.bytes() > 0.0 && estimate.mss.0 > 0 && estimate.samples >= 3, "{estimate:?}");
                assert!((0.0..=1.0).contains(&estimate.confidence.value()));
                assert!(estimate.rtt_min <= estimate.rtt_mean, "{estimate:?}");
                assert!(estimate.age(Timestamp(u64::MAX)) >= Micros(0));
            }
            Some(_) => {}
        }
    }
    for engine in engines.iter() {
        assert!(engine.connections() <= 8, "connections");
        assert_eq!(engine.counters().ignored(Ignored::EventQueueFull), 0);
    }
    assert_eq!(engines[0].counters(), engines[1].counters());
}
