//! `explain`: what the running agent decides for a destination.

use spand_proto::operator::Failure;

use super::{print, print_json};
use crate::args::Explain;
use crate::config::Config;
use crate::control::{Explained, Reply, Request, ask};

pub(crate) fn explain(config: &Config, question: &Explain) -> Result<(), Failure> {
    let request = Request::Explain {
        destination: question.destination,
        bytes: question.bytes.map(std::num::NonZeroU64::get),
        mss: question.mss.map(std::num::NonZeroU64::get),
    };
    match ask(&config.control_socket(), &request)? {
        Reply::Explained(explained) if question.format.json => print_json(&explained),
        Reply::Explained(explained) => print(&for_people(&explained)),
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
