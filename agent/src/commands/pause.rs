//! `pause` and `resume`: advice off and on at run time.

use std::path::Path;

use spand_proto::operator::Failure;
use spand_proto::units::counted;

use super::{print, print_json};
use crate::args::{Format, Pause};
use crate::control::{AskError, Paused, Reply, Request, try_ask};

pub(crate) fn pause(socket: &Path, pause: &Pause) -> Result<(), Failure> {
    // To the next whole second.
    let length_s = pause.length.map(|length| length.as_secs() + u64::from(length.subsec_nanos() > 0));
    let paused = change(socket, &Request::Pause { length_s }).map_err(Failure::environment)?;
    show(&paused, pause.format)
}

pub(crate) fn resume(socket: &Path, format: Format) -> Result<(), Failure> {
    let paused = change(socket, &Request::Resume).map_err(Failure::environment)?;
    show(&paused, format)
}

/// A change that did not come about.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChangeError {
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("{0}")]
    Refused(String),
    #[error("the running agent is of an older release, which cannot be paused: restart it, or stop it")]
    Older,
}

/// Asks the running agent for a change.
pub(super) fn change(socket: &Path, request: &Request) -> Result<Paused, ChangeError> {
    match try_ask(socket, request)? {
        Reply::Pause(paused) => Ok(*paused),
        Reply::Error(error) if error.contains("unknown variant") => Err(ChangeError::Older),
        Reply::Error(error) => Err(ChangeError::Refused(error)),
        Reply::Status(_) | Reply::Explained(_) => {
            Err(ChangeError::Refused("the agent answered another question".to_owned()))
        }
    }
}

/// What does not hold of a pause, or of its end, as it was asked for.
pub(super) fn shortfall(paused: &Paused) -> Option<String> {
    if paused.paused && paused.networks_in_force > 0 {
        return Some(format!(
            "the kernel refused to remove the advice for {}: the agent goes on trying, and its log has the reason",
            networks(paused.networks_in_force)
        ));
    }
    let what = if paused.paused { "advice is paused" } else { "advice is resumed" };
    paused.not_kept.as_ref().map(|why| format!("{what}, but only until the agent is started again: {why}"))
}

fn show(paused: &Paused, format: Format) -> Result<(), Failure> {
    if format.json {
        print_json(paused)?;
    } else {
        print(&for_people(paused))?;
    }
    shortfall(paused).map_or(Ok(()), |shortfall| Err(Failure::Environment(shortfall)))
}

fn networks(count: usize) -> String {
    counted(count, "network", "networks")
}

fn for_people(paused: &Paused) -> String {
    match (paused.paused, &paused.paused_until) {
        (true, Some(until)) => {
            format!(
                "advice is paused until {until}: no connection starts on advice; `spand-agent resume` ends it earlier"
            )
        }
        (true, None) => "advice is paused: no connection starts on advice until `spand-agent resume`".to_owned(),
        (false, _) if !paused.was_paused => {
            format!("advice was not paused: it is in force for {}", networks(paused.networks_in_force))
        }
        (false, _) => format!("advice is resumed: it is in force for {}", networks(paused.networks_in_force)),
    }
}
