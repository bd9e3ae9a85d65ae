//! `reset-experiment`: restarts the comparison of `/v1/benefit` from zero, for a stopped gateway. Nothing else is removed from its
//! store.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{Uid, User, geteuid};
use spand_proto::operator::{Failure, rfc3339};

use crate::config::Store;
use crate::store::{NotContinued, OpenError, Opened, SavedExperiment, SledStore};

/// Removes the experiment from the store of the configuration in `file`. Says what was removed.
pub(crate) fn reset(store: &Store, file: &Path) -> Result<String, Failure> {
    if !store.enabled {
        let why =
            "store.enabled is false: without a store the experiment starts from zero with each start of the gateway";
        return Err(Failure::Usage(format!("{}: {why}; restart it", file.display())));
    }
    let path = &store.directory;
    check_owner(path, file)?;
    let Opened { mut store, experiment, set_aside, .. } = SledStore::open(path).map_err(|error| cannot_open(&error))?;
    if let Some(set_aside) = set_aside {
        eprintln!("warning: {set_aside}");
    }
    store.remove_experiment().map_err(|error| Failure::Environment(format!("{}: {error}", path.display())))?;
    Ok(format!("{}: the next start of the gateway begins a new one", removed(experiment)))
}

fn removed(experiment: Result<Option<SavedExperiment>, NotContinued>) -> String {
    match experiment {
        Ok(Some(SavedExperiment { experiment, hosts, .. })) => {
            let (since, transfers) = (rfc3339(experiment.since), experiment.comparison.transfers());
            let hosts = hosts.len();
            let plural = |count| if count == 1 { "" } else { "s" };
            format!(
                "removed the experiment since {since}, of {transfers} transfer{} and {hosts} host{}",
                plural(transfers),
                plural(hosts as u64)
            )
        }
        Ok(None) => "the store holds no experiment".to_owned(),
        Err(why) => format!("removed an experiment that {why}"),
    }
}

/// The database writes files: those of another user than the gateway's would keep the gateway out.
fn check_owner(store: &Path, file: &Path) -> Result<(), Failure> {
    let shown = store.display();
    let owner = match fs::metadata(store) {
        Ok(metadata) => Uid::from_raw(metadata.uid()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let why = "the gateway's first start makes it, and begins an experiment";
            return Err(Failure::Environment(format!("there is no store {shown}: {why}")));
        }
        Err(error) => {
            let way_out = "run this as the gateway's user, or mend store.directory";
            return Err(Failure::Environment(format!("cannot look at the store {shown}: {error}; {way_out}")));
        }
    };
    if owner == geteuid() {
        return Ok(());
    }
    let user = User::from_uid(owner).ok().flatten().map_or_else(|| format!("#{owner}"), |user| user.name);
    let command =
        format!("runuser -u {user} -- spand-gateway reset-experiment --config {} --store {shown}", file.display());
    Err(Failure::Environment(format!(
        "the store {shown} belongs to the user `{user}`: run this as that one, `{command}`"
    )))
}

fn cannot_open(error: &OpenError) -> Failure {
    Failure::Environment(match error {
        OpenError::InUse(path) => format!(
            "the store {} is in use: stop the gateway first (systemctl stop spand-gateway); it keeps its estimates",
            path.display()
        ),
        error => error.to_string(),
    })
}
