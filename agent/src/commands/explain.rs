//! `explain`: what the running agent decides for a destination.

use std::net::IpAddr;
use std::path::Path;

use spand_proto::operator::Failure;

use super::{addresses, print_answers, print_json_answers};
use crate::args::Explain;
use crate::control::{Explained, Reply, Request, ask};

pub(crate) fn explain(socket: &Path, question: &Explain) -> Result<(), Failure> {
    let addresses = addresses(&question.destination)?;
    let explained: Result<Vec<_>, _> =
        addresses.into_iter().map(|address| explain_one(socket, question, address)).collect();
    if question.format.json {
        print_json_answers(&question.destination, &explained?)
    } else {
        print_answers(&explained?, for_people)
    }
}

fn explain_one(socket: &Path, question: &Explain, destination: IpAddr) -> Result<Explained, Failure> {
    let request = Request::Explain {
        destination,
        bytes: question.bytes.map(std::num::NonZeroU64::get),
        mss: question.mss.map(std::num::NonZeroU64::get),
    };
    ask_agent(socket, &request)
}

/// The answer of the running agent to [`Request::Explain`].
pub(super) fn ask_agent(socket: &Path, request: &Request) -> Result<Explained, Failure> {
    match ask(socket, request)? {
        Reply::Explained(explained) => Ok(*explained),
        Reply::Error(error) => Err(Failure::Environment(error)),
        Reply::Status(_) | Reply::Pause(_) => {
            Err(Failure::Environment("the agent answered another question".to_owned()))
        }
    }
}

/// The decision first, then the steps that led to it.
fn for_people(explained: &Explained) -> String {
    let mut lines = vec![format!("{}: {}", explained.destination, explained.decision)];
    let steps: Vec<_> = explained.steps.iter().filter(|step| !step.no_effect).collect();
    let width = steps.iter().map(|step| step.name.len()).max().unwrap_or(0);
    for step in steps {
        let mark = if step.stopped { '!' } else { ' ' };
        lines.push(format!("{mark} {:width$}  {}", step.name, step.text));
    }
    lines.join("\n")
}
