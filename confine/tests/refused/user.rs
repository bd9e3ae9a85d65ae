//! What a process that was root has left as another user, whether or not it gives up anything else.

use std::process::Command;

use caps::CapSet;
use spand_confine::{Capability, Plan, Process, confine};

/// The word by which a process is told to become another user and say what it has.
pub(crate) const WORD: &str = "become";

const SETS: [CapSet; 4] = [CapSet::Permitted, CapSet::Effective, CapSet::Inheritable, CapSet::Ambient];
const WANTED: &str = "Permitted [CAP_NET_RAW], Effective [CAP_NET_RAW], Inheritable [], Ambient []";

/// What is wrong, with `confine` on and off.
pub(crate) fn faults() -> impl Iterator<Item = String> {
    ["confined", "free"].into_iter().filter_map(|who| {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let output = command.args([WORD, who]).output().expect("a process of this program");
        let (said, faults) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (said.trim() != WANTED).then(|| format!("another user, {who}: {said}{faults}"))
    })
}

/// The process that becomes another user.
pub(crate) fn become_another(confined: bool) {
    let process = Process { user: Some("nobody".to_owned()), confine: confined };
    let plan = Plan { keep: vec![Capability::CAP_NET_RAW], ..Plan::default() };
    let given_up = confine(&process, &plan).unwrap_or_else(|failure| panic!("{failure}"));
    let sets = SETS.map(|set| {
        let mut has: Vec<_> = caps::read(None, set).expect("capabilities").into_iter().collect();
        has.sort_unstable_by_key(Capability::index);
        format!("{set:?} {has:?}")
    });
    println!("{}", sets.join(", "));
    drop(given_up);
}
