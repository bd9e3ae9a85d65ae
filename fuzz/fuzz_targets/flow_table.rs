//! The table of connections against a plain list.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use spand_core::fuzzing::FlowTablePair;

#[derive(Arbitrary, Debug)]
enum Step {
    Open(u8),
    Close(u8),
    Packet(u8, bool),
    Arm(u8, u16),
    Turn,
    Expire,
    Wait(u16),
    WaitLong(u8),
}

fuzz_target!(|input: (u8, Vec<Step>)| {
    let (limit, steps) = input;
    let mut pair = FlowTablePair::new(usize::from(limit).max(1));
    for step in steps {
        match step {
            Step::Open(port) => pair.open(port.into()),
            Step::Close(port) => pair.close(port.into()),
            Step::Packet(port, established) => pair.packet(port.into(), established),
            Step::Arm(port, ms) => pair.arm(port.into(), ms.into()),
            Step::Turn => pair.turn(),
            Step::Expire => pair.expire(),
            Step::Wait(ms) => pair.wait(ms.into()),
            Step::WaitLong(minutes) => pair.wait(u64::from(minutes) * 60_000),
        }
        pair.compare();
    }
});
