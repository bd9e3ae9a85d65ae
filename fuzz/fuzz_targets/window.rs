//! The sliding windows against a twin that keeps every single thing it was input.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use spand_core::fuzzing::{Input, WindowPair};
use spand_core::types::{Limiter, SampleReason};

#[derive(Arbitrary, Debug)]
enum Step {
    Sample { network: u8, size: u16, connection: u8, reason: u8 },
    Rtt { network: u8, us: u32, host: u8 },
    Loss(u8),
    Limiter(u8, u8),
    Wait(u16),
    WaitLong(u8),
    Expire,
    Restart,
}

/// The twin goes through everything at every step.
const MOST_STEPS: usize = 200;

fuzz_target!(|steps: Vec<Step>| {
    let mut pair = WindowPair::new();
    for step in steps.into_iter().take(MOST_STEPS) {
        match step {
            Step::Sample { network, size, connection, reason } => {
                use SampleReason::{Ecn, End, EndAppLimited, EndReceiverLimited, Loss};
                let reasons = [End, Loss, Ecn, EndAppLimited, EndReceiverLimited];
                // 14 connections of 7 hosts: fewer than a bucket keeps apart.
                let (host, other) = (u64::from(connection % 7), u64::from(connection / 7 % 2));
                let input = Input::Sample {
                    segments: f64::from(size.max(1)) / 100.0,
                    connection: host * host / 8 + 200 * other,
                    reason: reasons[usize::from(reason) % reasons.len()],
                };
                pair.feed(network % 3, input);
            }
            Step::Rtt { network, us, host } => {
                pair.feed(network % 3, Input::Rtt { us: u64::from(us).clamp(1, 10_000_000), host: host % 9 });
            }
            Step::Loss(network) => pair.feed(network % 3, Input::Loss),
            Step::Limiter(network, limiter) => {
                let limiters = [Limiter::Window, Limiter::Receiver, Limiter::Application];
                pair.feed(network % 3, Input::Limiter(limiters[usize::from(limiter) % 3]));
            }
            Step::Wait(ms) => pair.wait(ms.into()),
            Step::WaitLong(seconds) => pair.wait(u64::from(seconds) * 3_000),
            Step::Expire => pair.expire(),
            Step::Restart => pair.restart(),
        }
        pair.compare(0);
    }
    pair.compare(100_000);
});
