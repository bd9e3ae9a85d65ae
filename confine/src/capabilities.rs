//! Capabilities: those of a plan stay, in the calling thread and in the threads that it starts.

pub use caps::Capability;
use caps::errors::CapsError;
use caps::{CapSet, CapsHashSet};

use super::plan::Plan;

/// Takes from the bounding set what no program that this process starts may ever get. That takes `CAP_SETPCAP`, and without
/// it nothing is lost: with `no_new_privs` the set is a second lock on the same door.
pub(crate) fn bound(plan: &Plan) {
    let keep = if plan.starts() { kept(plan) } else { CapsHashSet::new() };
    for capability in caps::read(None, CapSet::Bounding).unwrap_or_default().difference(&keep) {
        if let Err(error) = caps::drop(None, CapSet::Bounding, *capability) {
            tracing::debug!(%capability, %error, "the bounding set stays as it is");
            return;
        }
    }
}

/// Takes up what the process may have: a file of a program that gives capabilities (setcap(8)) may leave it to the program to
/// put them in force, and then also starts where the bounding set holds fewer.
pub fn take_up() {
    let taken = caps::read(None, CapSet::Permitted).and_then(|all| caps::set(None, CapSet::Effective, &all));
    if let Err(error) = taken {
        tracing::debug!(%error, "capabilities stay as they are");
    }
}

/// Drops one capability of the calling thread.
pub(crate) fn give_up(capability: Capability) -> Result<(), String> {
    let sets = [CapSet::Ambient, CapSet::Inheritable, CapSet::Effective, CapSet::Permitted];
    sets.into_iter().try_for_each(|set| caps::drop(None, set, capability)).map_err(words)
}

/// Drops every capability of the calling thread but those of the plan. Programs that it starts get them only where the
/// plan has such.
pub(crate) fn keep(plan: &Plan) -> Result<(), String> {
    keep_of(&kept(plan), plan.starts()).map_err(words)
}

/// Drops every capability of the calling thread.
pub(crate) fn drop_all() -> Result<(), String> {
    keep_of(&CapsHashSet::new(), false).map_err(words)
}

fn keep_of(keep: &CapsHashSet, hand_on: bool) -> Result<(), CapsError> {
    let keep: CapsHashSet = caps::read(None, CapSet::Permitted)?.intersection(keep).copied().collect();
    // In this order: what is in force must be permitted, and what is handed on must be inheritable.
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)?;
    let handed_on = if hand_on { keep } else { CapsHashSet::new() };
    caps::set(None, CapSet::Inheritable, &handed_on)?;
    caps::set(None, CapSet::Ambient, &handed_on)
}

fn kept(plan: &Plan) -> CapsHashSet {
    plan.keep.iter().copied().collect()
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in map_err")]
fn words(error: CapsError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_permitted_is_taken_up() {
        // Capabilities are a thread's. Without root there are none, and nothing to take up.
        let thread = std::thread::spawn(|| {
            caps::clear(None, CapSet::Effective).unwrap();
            take_up();
            (caps::read(None, CapSet::Permitted).unwrap(), caps::read(None, CapSet::Effective).unwrap())
        });
        let (permitted, in_force) = thread.join().unwrap();
        assert_eq!(permitted, in_force);
    }
}
