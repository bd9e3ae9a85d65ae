//! The commands that print what a running gateway answers at its HTTP interface (`status`, `networks`, `network`, `agents`, `benefit` and
//! `events`), or show it on the screen (`top`). They change nothing.
//!
//! Lists are printed page by page while they come. With `--json` an answer is printed as it came, but for
//! characters that act on a terminal: JSON has escapes for them.

mod document;
mod gateway;
mod top;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use clap::{Args, Subcommand};
use serde_json::Value;
use spand_proto::network::Network;
use spand_proto::operator::{Failure, parse_seconds, printable, printable_json};
use spand_proto::units::counted;

use self::document::Printed;
use self::gateway::{Gateway, MOST_ROWS, Url, encoded, has_rows};
use crate::api::sorts;
use crate::replay::Width;

/// Rows of a later page with `--all`: the most that the interface gives.
const WHOLE_PAGE: u64 = MOST_ROWS as u64;
/// Pages of one list: those of ten million networks.
const MOST_PAGES: usize = 10_000;
/// To the upper left corner, and clear what is below: the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The commands that ask a running gateway.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Those that print an answer.
    #[command(flatten)]
    Print(Printing),
    /// Show the networks of the running gateway on the whole screen, the most traffic first
    Top {
        /// Which, and in what order
        #[command(flatten)]
        which: Which,
        /// Where the gateway answers, and as whom it is asked
        #[command(flatten)]
        place: Place,
        /// Ask again every S seconds, 1 to 3600
        #[arg(long, value_name = "S", default_value_t = 2, value_parser = interval)]
        every: u64,
    },
}

/// The commands that print an answer.
#[derive(Debug, Subcommand)]
pub enum Printing {
    /// Print whether every part of the running gateway works, and what it sees
    Status {
        /// How it is asked
        #[command(flatten)]
        how: How,
    },
    /// List the networks that the running gateway knows
    Networks {
        /// Which, and in what order
        #[command(flatten)]
        which: Which,
        /// How many
        #[command(flatten)]
        page: Page,
        /// How it is asked
        #[command(flatten)]
        how: How,
    },
    /// Print what the running gateway knows of one network
    Network {
        /// The network, or an address inside it
        #[arg(value_name = "PREFIX", value_parser = NonEmptyStringValueParser::new())]
        prefix: String,
        /// How it is asked
        #[command(flatten)]
        how: How,
    },
    /// List the agents that are subscribed at the running gateway
    Agents {
        /// How many
        #[command(flatten)]
        page: Page,
        /// How it is asked
        #[command(flatten)]
        how: How,
    },
    /// Print what advice does to transfers, by what hosts reported to the running gateway
    Benefit {
        /// How it is asked
        #[command(flatten)]
        how: How,
    },
    /// List what happened lately at the running gateway
    Events {
        /// How many of the newest, 1 to 1000
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000))]
        limit: u64,
        /// Only those from this sequence number on
        #[arg(long, value_name = "SEQUENCE", value_parser = clap::value_parser!(u64).range(1..))]
        from: Option<u64>,
        /// How it is asked
        #[command(flatten)]
        how: How,
    },
}

/// Where the gateway answers, and as whom it is asked.
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// Where the gateway answers; unless given, at port 7480 of this machine
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// Ask as this name of admin.passwords
    #[arg(long, value_name = "NAME", requires = "password_file")]
    user: Option<String>,
    /// The file whose first line is the password
    #[arg(long, value_name = "FILE", requires = "user")]
    password_file: Option<PathBuf>,
    /// The certificates of the authority that signed the gateway's, for a URL with https://
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Place {
    fn gateway(&self) -> Result<Gateway, Failure> {
        Gateway::new(self.url.as_ref(), self.ca.as_deref(), self.user.as_deref(), self.password_file.as_deref())
    }
}

/// How the gateway is asked.
#[derive(Args, Clone, Debug)]
pub struct How {
    /// Where the gateway answers, and as whom it is asked
    #[command(flatten)]
    place: Place,
    /// Print the answer in JSON, as it came
    #[arg(long)]
    json: bool,
    /// Ask again every S seconds, 1 to 3600, until stopped; without S every second
    #[arg(long, value_name = "S", num_args = 0..=1, default_missing_value = "1", value_parser = interval)]
    watch: Option<u64>,
}

/// Seconds between two questions.
fn interval(text: &str) -> Result<u64, String> {
    let before = if text.parse::<Network>().is_ok() { "; write the prefix before --watch" } else { "" };
    parse_seconds(text, 1, 3_600).map_err(|why| format!("{why}{before}"))
}

/// Which networks, and in what order.
#[derive(Args, Clone, Debug, Default)]
pub struct Which {
    /// Sort by this
    #[arg(long, value_name = "VALUE", value_parser = PossibleValuesParser::new(sorts()))]
    sort: Option<String>,
    /// Smallest first or largest first
    #[arg(long, value_name = "ORDER", value_parser = ["asc", "desc"])]
    order: Option<String>,
    /// Only networks inside this one
    #[arg(long, value_name = "PREFIX")]
    within: Option<Network>,
    /// Only networks found by this: an address inside, a network around, or a part of the prefix
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only networks with an estimate, or only those without
    #[arg(long, value_name = "WHICH", value_parser = ["yes", "no"])]
    estimate: Option<String>,
}

/// Which part of a list.
#[derive(Args, Clone, Debug)]
pub struct Page {
    /// How many, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    limit: u64,
    /// How many to skip
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// All of them, however many there are
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

/// Asks, prints, and with `--watch` goes on with that.
pub fn run(command: &Command) -> Result<(), Failure> {
    let command = match command {
        Command::Print(command) => command,
        Command::Top { which, place, every } => {
            return top::run(place.gateway()?, which, Duration::from_secs(*every));
        }
    };
    let (_, _, how) = command.parts();
    let gateway = how.place.gateway()?;
    let terminal = io::stdout().is_terminal();
    // What is no screen needs no fit.
    let width = if terminal { Width::of_standard_output() } else { Width::UNLIMITED };
    let mut first = true;
    loop {
        let before = before(how, terminal, first);
        match once(command, &gateway, width, before) {
            Ok(true) => first = false,
            Ok(false) => return Ok(()),
            // One that is restarted is there again soon.
            Err(failure) if !first => eprintln!("error: {failure}"),
            Err(failure) => return Err(failure),
        }
        let Some(seconds) = how.watch else { return Ok(()) };
        sleep(Duration::from_secs(seconds));
    }
}

/// What is printed before an answer with `--watch`: documents of JSON are one a line.
const fn before(how: &How, terminal: bool, first: bool) -> &'static str {
    match (how.watch, how.json) {
        (Some(_), false) if terminal => CLEAR,
        (Some(_), false) if !first => "\n",
        _ => "",
    }
}

/// Prints one answer, `before` first. Whether somebody still reads.
fn once(command: &Printing, gateway: &Gateway, width: Width, mut before: &'static str) -> Result<bool, Failure> {
    let (printed, page, how) = command.parts();
    let first = page.map_or(0, |page| page.offset);
    let mut offset = first;
    for _ in 0..MOST_PAGES {
        let (body, document) = gateway.document(&command.path(offset))?;
        let next = document["next_offset"].as_u64().filter(|next| *next > offset);
        if next.is_some() && !has_rows(&document) {
            return Err(gateway.no_gateway());
        }
        let more = next.filter(|_| page.is_some_and(|page| page.all));
        let rest = if more.is_some() { None } else { next };
        let text = match command.empty(&document) {
            _ if how.json => printable_json(&body),
            Some(sentence) if offset == first => sentence,
            _ => printed.text(&document, width, offset == first, rest),
        };
        if !print(before, &text)? {
            return Ok(false);
        }
        let Some(more) = more else { return Ok(true) };
        (offset, before) = (more, "");
    }
    // A list of a server that always has one more page.
    Err(gateway.no_gateway())
}

/// Whether somebody still reads: a reader that had enough (`| head`) is no fault.
fn print(before: &str, text: &str) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{before}{}", text.trim_end()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::Environment(format!("cannot print: {error}"))),
    }
}

impl Printing {
    /// What is printed, which part of a list, and how it is asked for.
    const fn parts(&self) -> (Printed, Option<&Page>, &How) {
        match self {
            Self::Status { how } => (Printed::Status, None, how),
            Self::Networks { page, how, .. } => (Printed::Networks, Some(page), how),
            Self::Network { how, .. } => (Printed::Network, None, how),
            Self::Agents { page, how } => (Printed::Agents, Some(page), how),
            Self::Benefit { how } => (Printed::Benefit, None, how),
            Self::Events { how, .. } => (Printed::Events, None, how),
        }
    }

    /// Why a list has no row here, where the options are the reason.
    fn empty(&self, document: &Value) -> Option<String> {
        if has_rows(document) {
            return None;
        }
        let (total, page) = (document["total"].as_u64()?, self.parts().1?);
        if total > 0 {
            let what = if matches!(self, Self::Agents { .. }) { ["agent", "agents"] } else { ["network", "networks"] };
            let (offset, [one, several]) = (page.offset, what);
            return Some(format!("none from --offset {offset} on: there are {}", counted(total, one, several)));
        }
        let Self::Networks { which, .. } = self else { return None };
        let limits = [
            which.search.as_ref().map(|text| format!("--search {}", printable(text))),
            which.within.map(|within| format!("--within {within}")),
            which.estimate.as_ref().map(|which| format!("--estimate {which}")),
        ];
        let limits: Vec<_> = limits.into_iter().flatten().collect();
        (!limits.is_empty()).then(|| format!("no network matches {}: leave it out to see others", limits.join(" ")))
    }

    /// What is asked for, of a list from `offset` on.
    fn path(&self, offset: u64) -> String {
        let mut part = Vec::new();
        if let (_, Some(page), _) = self.parts() {
            // The first page is small, so that it is there at once.
            let limit = if page.all && offset > page.offset { WHOLE_PAGE } else { page.limit };
            part.extend([("limit", limit.to_string()), ("offset", offset.to_string())]);
        }
        match self {
            Self::Status { .. } => "/v1/traffic".to_owned(),
            Self::Networks { which, .. } => which.path(part),
            Self::Network { prefix, .. } => format!("/v1/networks/{}", encoded(prefix)),
            Self::Agents { .. } => with("/v1/agents", part),
            Self::Benefit { .. } => "/v1/benefit".to_owned(),
            Self::Events { limit, from, .. } => {
                part.push(("limit", limit.to_string()));
                part.extend(from.map(|from| ("from", from.to_string())));
                with("/v1/events", part)
            }
        }
    }
}

impl Which {
    /// The path of a part of the networks.
    fn path(&self, mut part: Vec<(&str, String)>) -> String {
        let Self { sort, order, within, search, estimate } = self.clone();
        let within = within.map(|within| within.to_string());
        let given = [("sort", sort), ("order", order), ("within", within), ("search", search), ("estimate", estimate)];
        part.extend(given.into_iter().filter_map(|(name, value)| Some((name, value?))));
        with("/v1/networks", part)
    }
}

/// A path with its parameters.
fn with(path: &str, parameters: Vec<(&str, String)>) -> String {
    let query: Vec<_> = parameters.into_iter().map(|(name, value)| format!("{name}={}", encoded(&value))).collect();
    format!("{path}?{}", query.join("&"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(subcommand)]
        command: Command,
    }

    fn command(line: &str) -> Printing {
        match Line::try_parse_from(line.split_whitespace()).unwrap().command {
            Command::Print(command) => command,
            Command::Top { .. } => panic!("{line} prints nothing"),
        }
    }

    #[test]
    fn only_a_terminal_that_is_watched_is_cleared() {
        let cleared = |line: &str, terminal| before(command(line).parts().2, terminal, false);
        assert_eq!(cleared("- status --watch", true), CLEAR);
        assert_eq!(cleared("- status --watch", false), "\n");
        assert_eq!(before(command("- status --watch").parts().2, false, true), "");
        for line in ["- status", "- status --watch=2 --json", "- status --json"] {
            assert_eq!(cleared(line, true), "", "{line}");
        }
    }

    #[test]
    fn options_are_the_parameters_of_the_interface() {
        let path = |line: &str| command(line).path(7);
        assert_eq!(path("- status"), "/v1/traffic");
        assert_eq!(path("- networks --all"), "/v1/networks?limit=1000&offset=7", "a later page");
        assert_eq!(command("- agents --all").path(0), "/v1/agents?limit=50&offset=0");
        let all = "- networks --limit 2 --sort rtt --order desc --within 2001:db8::/32 --search a&b --estimate no";
        let written = "limit=2&offset=7&sort=rtt&order=desc&within=2001%3Adb8%3A%3A%2F32&search=a%26b&estimate=no";
        assert_eq!(path(all), format!("/v1/networks?{written}"));
        assert_eq!(path("- network 192.0.2.0/24"), "/v1/networks/192.0.2.0%2F24");
        assert_eq!(path("- events --limit 3 --from 9"), "/v1/events?limit=3&from=9");
    }
}
