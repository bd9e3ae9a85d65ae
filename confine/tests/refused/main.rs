//! What a confined process may not do, tried: each attempt by a process that confined itself as a program does, and by one
//! that did not. The first is refused with the error of the part that refuses; what is refused to the second as well shows
//! nothing.
//!
//! A program of its own: it starts itself as those processes, which have one thread when they confine themselves. They keep
//! every capability unless it is capabilities that are tried, so that nothing but the part in question can refuse.

mod calls;
mod capabilities;
mod files;
mod ports;
mod stage;

use spand_needs::{Need, lacks, needs};
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use spand_confine::{Capability, Confined, Plan, Process, confine};

use stage::Stage;

/// One thing that is tried.
struct Attempt {
    name: &'static str,
    /// The error of a confined process; none where it may do that.
    refused: Option<Errno>,
    work: fn(&Stage, &mut Confined) -> nix::Result<()>,
}

/// Attempts of one process, and what it goes on to need.
struct Group {
    name: &'static str,
    plan: fn(&Stage) -> Plan,
    attempts: &'static [Attempt],
}

const GROUPS: &[Group] = &[files::GROUP, ports::GROUP, ports::LISTENING, capabilities::GROUP, capabilities::BOUNDING];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["attempt", group, confined, stage] = words[..] {
        attempt(group, confined == "confined", &Stage::of(stage));
        return ExitCode::SUCCESS;
    }
    if let [capabilities::WORD, confined] = words[..] {
        capabilities::become_another(confined == "confined");
        return ExitCode::SUCCESS;
    }
    if !needs(Need::Root) {
        return ExitCode::SUCCESS;
    }
    let mut faults = Vec::new();
    let mut tried = 0;
    for group in GROUPS {
        let [free, confined] = [false, true].map(|confined| outcomes(group.name, confined));
        for attempt in group.attempts {
            let wanted = attempt.refused.map_or("done".to_owned(), |error| format!("{error:?}"));
            tried += 1;
            // A kernel that has no such sockets answers otherwise than the filter.
            check(&mut faults, group.name, attempt.name, &free, |outcome| {
                outcome == "done" || attempt.refused.is_some() && outcome.ends_with("NOSUPPORT")
            });
            check(&mut faults, group.name, attempt.name, &confined, |outcome| outcome == wanted);
        }
    }
    for group in calls::GROUPS {
        let [free, confined] = [false, true].map(|confined| outcomes(group.name, confined));
        for (name, _) in group.forbidden {
            let answer = format!("{:?}", calls::answer(name));
            for name in calls::by_second_number(name).iter().map(String::as_str).chain([*name]) {
                tried += 1;
                check(&mut faults, group.name, name, &free, |outcome| outcome != "EPERM" && outcome != answer);
                check(&mut faults, group.name, name, &confined, |outcome| outcome == answer);
            }
        }
        for (name, _) in group.left {
            tried += 1;
            check(&mut faults, group.name, name, &confined, |outcome| {
                outcome != "EPERM" && Some(outcome) == self::outcome(&free, name)
            });
        }
    }
    // What ends the process that tries it: by the kernel's rule for faults where it does not know such calls.
    let ended = [false, true].map(|confined| outcomes(calls::OF_32_BITS, confined));
    if outcome(&ended[0], "process").is_some_and(|end| end.contains("signal")) {
        lacks(Need::Calls32, "this kernel has none");
    } else {
        tried += 1;
        check(&mut faults, calls::OF_32_BITS, "process", &ended[1], |end| end.contains("SIGSYS"));
    }
    tried += 2;
    faults.extend(capabilities::faults());
    for fault in &faults {
        println!("refused: FAILED: {fault}");
    }
    println!("refused: {tried} attempts, {} faults", faults.len());
    ExitCode::from(u8::from(!faults.is_empty()))
}

fn check(faults: &mut Vec<String>, group: &str, name: &str, printed: &str, right: impl Fn(&str) -> bool) {
    match outcome(printed, name) {
        Some(outcome) if right(outcome) => {}
        found => {
            let who = printed.lines().next().unwrap_or_default();
            faults.push(format!("{group}, {who}: {name}: {}", found.unwrap_or("no outcome printed")));
        }
    }
}

fn outcome<'a>(printed: &'a str, name: &str) -> Option<&'a str> {
    printed.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// What a process says that tries a group's attempts, on a stage of its own.
fn outcomes(group: &str, confined: bool) -> String {
    let stage = Stage::build().expect("a folder and listeners");
    let who = if confined { "confined" } else { "free" };
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let output = command.args(["attempt", group, who, &stage.to_string()]).output().expect("a process of this program");
    let faults = String::from_utf8_lossy(&output.stderr);
    format!("{who}\n{}process: {} {faults}\n", String::from_utf8_lossy(&output.stdout), output.status)
}

/// The process that tries.
fn attempt(group: &str, confined: bool, stage: &Stage) {
    // No terminal is hung up by the attempt to.
    _ = nix::unistd::setsid();
    let process = Process { user: None, confine: confined };
    let confine = |plan: &Plan| confine(&process, plan).unwrap_or_else(|failure| panic!("{failure}"));
    let say = |name: &str, outcome: nix::Result<()>| match outcome {
        Ok(()) => println!("{name}: done"),
        Err(error) => println!("{name}: {error:?}"),
    };
    if let Some(group) = GROUPS.iter().find(|one| one.name == group) {
        let mut sandbox = confine(&(group.plan)(stage));
        for attempt in group.attempts {
            say(attempt.name, (attempt.work)(stage, &mut sandbox));
        }
    }
    if group == calls::OF_32_BITS {
        let sandbox = confine(&Plan::default());
        calls::make_one_of_32_bits();
        drop(sandbox);
    }
    if let Some(group) = calls::GROUPS.iter().find(|one| one.name == group) {
        let sandbox = confine(&(group.plan)());
        group.forbidden.iter().chain(group.left).for_each(|call| calls::make(*call, say));
        drop(sandbox);
    }
}

/// Every capability that the process has.
fn every_capability() -> Vec<Capability> {
    caps::read(None, caps::CapSet::Permitted).expect("capabilities").into_iter().collect()
}
