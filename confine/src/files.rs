//! Files, TCP ports and signals, by Landlock (landlock(7)).

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::Part;
use super::plan::Plan;

/// The newest interface of which something is used; an older kernel does what it knows.
const NEWEST: ABI = ABI::V6;

/// Restricts the calling thread and those that it starts, and says for each part whether that is in force. What has to stay
/// open for the rules to hold goes to `pinned`.
pub(crate) fn restrict(plan: &Plan, pinned: &mut Vec<OwnedFd>) -> [(Part, Result<(), String>); 3] {
    let abi = match apply(plan, pinned) {
        Ok(status) => match status.landlock {
            LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi),
            LandlockStatus::NotEnabled => {
                Err("Landlock is not among the kernel's modules (boot with lsm=landlock)".to_owned())
            }
            LandlockStatus::NotImplemented => {
                Err("the kernel has no Landlock, or the service may not use it".to_owned())
            }
        },
        Err(error) => Err(error.to_string()),
    };
    let from = |least, linux: &str| match &abi {
        Ok(abi) if *abi >= least => Ok(()),
        Ok(_) => Err(format!("Linux {linux} and later can do that")),
        Err(why) => Err(why.clone()),
    };
    // Before the third version a file that may not be written could still be cut short.
    [(Part::Files, from(ABI::V3, "6.2")), (Part::Tcp, from(ABI::V4, "6.7")), (Part::Signals, from(ABI::V6, "6.12"))]
}

fn apply(plan: &Plan, pinned: &mut Vec<OwnedFd>) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let special = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::Execute;
    let change = AccessFs::from_all(NEWEST) & !special;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for (paths, access) in [
        (&plan.read, read),
        (&plan.write, change),
        (&plan.write_to, AccessFs::ReadFile | AccessFs::WriteFile),
        (&plan.start, read | AccessFs::Execute),
    ] {
        for path in paths {
            rules = allow(rules, path, access, pinned)?;
        }
    }
    for port in &plan.connect {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    rules.restrict_self()
}

/// Allows `access` to a path and what lies below. One that is not there stays forbidden.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
    pinned: &mut Vec<OwnedFd>,
) -> Result<RulesetCreated, RulesetError> {
    // A relative path's parent may be nothing at all.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let Ok(opened) = PathFd::new(path) else { return Ok(rules) };
    if path.starts_with("/proc") {
        pinned.extend(opened.as_fd().try_clone_to_owned());
    }
    // What folders alone know is refused for a file.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(opened, access))
}
