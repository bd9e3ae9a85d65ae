//! What a process that was root has left as another user, with the sandbox on and off.

use std::process::Command;

use caps::CapSet;
use spand_confine::{Capability, Plan, Process, confine};

/// The argument that makes a process become another user and print its capabilities.
pub(crate) const WORD: &str = "become";

const SETS: [CapSet; 4] = [CapSet::Permitted, CapSet::Effective, CapSet::Inheritable, CapSet::Ambient];
const WANTED: &str = "Permitted [CAP_NET_RAW], Effective [CAP_NET_RAW], Inheritable [], Ambient []";

/// What is wrong, with `confine` on and off.
pub(crate) fn faults() -> impl Iterator<Item = String> {
    ["confined", "free"].into_iter().filter_map(|who| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let output = command.args([WORD, who]).output().expect("a process of this program");
        let (printed, faults) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (printed.trim() != WANTED).then(|| format!("another user, {who}: {printed}{faults}"))
    })
}

/// The process that becomes another user.
pub(crate) fn become_another(confined: bool) {
    let process = Process { user: Some("nobody".to_owned()), confine: confined };
    let plan = Plan { keep: vec![Capability::CAP_NET_RAW], ..Plan::default() };
    let sandbox = confine(&process, &plan).unwrap_or_else(|failure| panic!("{failure}"));
    let sets = SETS.map(|set| {
        let mut has: Vec<_> = caps::read(None, set).expect("capabilities").into_iter().collect();
        has.sort_unstable_by_key(Capability::index);
        format!("{set:?} {has:?}")
    });
    println!("{}", sets.join(", "));
    drop(sandbox);
}
