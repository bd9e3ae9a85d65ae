//! Formats the interface's documents as tables for people. It asks nobody and prints nothing.

use serde_json::Value;
use spand_proto::operator::printable;
use spand_proto::units::counted;

use crate::names::in_short;
use crate::replay::Width;
use crate::replay::fit::{Column, NONE, fitted, inert, named, text};

/// What an answer is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Printed {
    Status,
    Networks,
    Network,
    Agents,
    Benefit,
    Events,
}

/// How the line begins that names columns without room.
const NO_ROOM: &str = "Some columns do not fit";

/// Most characters of a text that breaks into lines.
const TEXT: usize = 10_000;

/// What stands in a cell.
type Cell = fn(&Value) -> String;
/// A column, the least width of its cells, and what stands in them.
type Field = (Column, usize, Cell);

/// Cells have a width of their own, so that the pages of one list are alike.
const NETWORKS: [Field; 15] = [
    (Column::text("network", 0), 18, |n| shown(&n["prefix"])),
    (Column::number("share\nsegs", 1), 6, share),
    (Column::number("confi-\ndence", 3), 6, |n| decimals(&n["confidence"], 2)),
    (Column::number("RTT min\nms", 2), 7, |n| decimals(&n["rtt_min_ms"], 1)),
    (Column::number("mean\nms", 10), 6, |n| decimals(&n["rtt_mean_ms"], 1)),
    (Column::number("out\nMbit/s", 3), 7, |n| mbit(&n["traffic"]["out"]["bits_per_s"])),
    (Column::number("in\nMbit/s", 6), 7, |n| mbit(&n["traffic"]["in"]["bits_per_s"])),
    (Column::number("out loss\n%", 5), 8, |n| percent(&n["traffic"]["out"]["loss"])),
    (Column::number("samples", 7), 7, |n| shown(&n["samples"])),
    (Column::number("saving\ns", 12), 7, |n| decimals(&n["saving_s"], 1)),
    (Column::number("loss\nevents", 9), 6, |n| shown(&n["losses"])),
    (Column::number("conns", 11), 6, |n| shown(&n["connections"])),
    (Column::number("age\ns", 8), 5, |n| decimals(&n["age_s"], 0)),
    (Column::text("name", 4), 20, called),
    (Column::text("no estimate\nor mark", 0), 19, |n| {
        n["no_estimate"].as_str().or(n["mark"].as_str()).unwrap_or_default().replace('_', " ")
    }),
];

const AGENTS: [Field; 13] = [
    (Column::text("host", 0), 12, |a| shown(&a["host_name"])),
    (Column::text("mode", 2), 7, |a| shown(&a["mode"])),
    (Column::text("method", 3), 7, |a| shown(&a["method"])),
    (Column::text("paused", 1), 6, |a| shown(&a["paused"])),
    (Column::number("report\nage s", 4), 6, |a| decimals(&a["reported"]["last_report_age_s"], 0)),
    (Column::number("transfers", 5), 9, |a| shown(&a["reported"]["transfers"])),
    (Column::number("on\nadvice", 6), 7, |a| shown(&a["reported"]["applied"])),
    (Column::number("control", 8), 7, |a| shown(&a["reported"]["transfers_control"])),
    (Column::number("refused", 9), 7, |a| sum(&a["reported"]["refused_by_reason"])),
    (Column::number("lost first\nflight", 7), 10, |a| shown(&a["reported"]["first_flight_losses"])),
    (Column::text("subscribed at", 10), 24, |a| shown(&a["subscribed_at"])),
    (Column::text("version", 12), 7, |a| shown(&a["version"])),
    (Column::text("addresses", 11), 0, |a| shown(&a["addresses"])),
];

const CLASSES: [Field; 10] = [
    (Column::text("size", 0), 0, |c| shown(&c["size"])),
    (Column::number("completion\n%", 0), 0, |c| signed(&c["difference"]["completion_ms"]["percent"][0])),
    (Column::number("95 % from\n%", 1), 0, |c| signed(&c["difference"]["completion_ms"]["percent"][1])),
    (Column::number("to\n%", 1), 0, |c| signed(&c["difference"]["completion_ms"]["percent"][2])),
    (Column::number("advised\nms", 4), 0, |c| decimals(&c["advised"]["completion_mean_ms"], 1)),
    (Column::number("control\nms", 5), 0, |c| decimals(&c["control"]["completion_mean_ms"], 1)),
    (Column::number("advised\ntransfers", 2), 0, |c| shown(&c["advised"]["transfers"])),
    (Column::number("control\ntransfers", 3), 0, |c| shown(&c["control"]["transfers"])),
    (Column::number("retransmitted\nsegs", 6), 0, |c| signed(&c["difference"]["retransmitted_segments"]["mean"])),
    (Column::number("not\ncompared", 7), 0, |c| shown(&c["not_compared"])),
];

const EVENTS: [Field; 6] = [
    (Column::text("at", 0), 0, |e| shown(&e["at"])),
    (Column::text("kind", 1), 0, |e| shown(&e["kind"])),
    (Column::text("what", 0), 0, |e| shown(&e["what"])),
    (Column::text("subject", 0), 0, |e| shown(&e["subject"])),
    (Column::number("count", 2), 0, |e| shown(&e["count"])),
    (Column::number("sequence", 3), 0, |e| shown(&e["sequence"])),
];

const STATUS: [(&str, Cell); 19] = [
    ("ready", |s| shown(&s["ready"])),
    ("not ready", |s| listed(&s["not_ready"], |part| format!("{}: {}", shown(&part["part"]), shown(&part["why"])))),
    ("version", |s| shown(&s["version"])),
    ("at", |s| shown(&s["at"])),
    ("newest packet, age s", |s| decimals(&s["newest_packet_age_s"], 1)),
    ("packets/s", |s| decimals(&s["last"]["packets_per_s"], 1)),
    ("Mbit/s", |s| mbit(&s["last"]["bits_per_s"])),
    ("dropped/s", |s| decimals(&s["last"]["dropped_per_s"], 1)),
    ("window samples/s", |s| decimals(&s["last"]["samples_per_s"], 1)),
    ("interfaces", |s| listed(&s["interfaces"], interface)),
    ("connections", |s| shown(&s["connections"])),
    ("networks", |s| shown(&s["networks"])),
    ("  with an estimate", |s| shown(&s["estimates"])),
    ("  with advice held back", |s| shown(&s["retreats"])),
    ("  of bytes towards any, %", |s| percent(&s["coverage"]["out_part"])),
    ("  of new connections, %", |s| percent(&s["coverage"]["connections_part"])),
    ("    of advised hosts, %", |s| percent(&s["coverage"]["advised_part"])),
    ("services with a size", |s| shown(&s["services"])),
    ("agents", |s| shown(&s["agents"])),
];

const NETWORK: [(&str, Cell); 32] = [
    ("network", |n| shown(&n["prefix"])),
    ("name", |n| shown(&n["name"])),
    ("AS number", |n| shown(&n["as_number"])),
    ("AS organisation", |n| shown(&n["as_organisation"])),
    ("share, segments", share),
    ("share, bytes", |n| decimals(&n["wc_bytes"], 0)),
    ("saving, s", |n| decimals(&n["saving_s"], 1)),
    ("mark", |n| shown(&n["mark"])),
    ("addresses' shares, bytes", |n| listed(&n["address_shares"], address_share)),
    ("confidence", |n| decimals(&n["confidence"], 2)),
    ("no estimate", |n| shown(&n["no_estimate_message"])),
    ("rule", |n| shown(&n["rule"])),
    ("MSS, bytes", |n| shown(&n["mss_bytes"])),
    ("RTT min, ms", |n| decimals(&n["rtt_min_ms"], 3)),
    ("RTT mean, ms", |n| decimals(&n["rtt_mean_ms"], 3)),
    ("age, s", |n| decimals(&n["age_s"], 1)),
    ("samples", |n| shown(&n["samples"])),
    ("lower bounds", |n| shown(&n["lower_bounds"])),
    ("connections", |n| shown(&n["connections"])),
    ("  with a loss", |n| shown(&n["loss_connections"])),
    ("loss events", |n| shown(&n["losses"])),
    ("window at losses, bytes", |n| decimals(&n["loss_window_bytes"], 0)),
    ("buffer, bytes", |n| decimals(&n["buffer_bytes"], 0)),
    ("empty path, bytes", |n| decimals(&n["bdp_bytes"], 0)),
    ("limited, round trips", |n| counts(&n["limited_by"])),
    ("sending at once", |n| shown(&n["parallel"])),
    ("followed, part", |n| decimals(&n["followed"], 2)),
    ("towards it, Mbit/s", |n| mbit(&n["traffic"]["out"]["bits_per_s"])),
    ("  retransmitted, %", |n| percent(&n["traffic"]["out"]["loss"])),
    ("from it, Mbit/s", |n| mbit(&n["traffic"]["in"]["bits_per_s"])),
    ("  retransmitted, %", |n| percent(&n["traffic"]["in"]["loss"])),
    ("transfers", |n| counts(&n["transfer_outcomes"])),
];

impl Printed {
    /// Formats a document as a table. `heading` is false for a later page of a list. Where there is a `next` page, the last line gives the
    /// total and how to go on.
    pub(super) fn text(self, document: &Value, width: Width, heading: bool, next: Option<u64>) -> String {
        let (table, total) = match self {
            Self::Status => return names(document, &STATUS, width),
            Self::Network => return names(document, &NETWORK, width),
            Self::Benefit => return benefit(document, width),
            Self::Events => return events(document, width),
            Self::Networks => (rows(&document["networks"], &NETWORKS, width, heading), &document["total"]),
            Self::Agents => (rows(&document["agents"], &AGENTS, width, heading), &document["total"]),
        };
        match next {
            Some(next) => format!(
                "{table}\n{} in all; --offset {next} prints the next ones, --all prints every one",
                shown(total)
            ),
            None => table,
        }
    }
}

impl Printed {
    /// The lines of a document for a screen, without a line on what did not fit.
    pub(super) fn lines(self, document: &Value, width: Width) -> Vec<String> {
        let text = self.text(document, width, true, None);
        let lines = text.lines().filter(|line| !line.starts_with(NO_ROOM) && !line.chars().all(|letter| letter == '─'));
        lines.map(str::to_owned).collect()
    }
}

/// A gateway in one line: whether it works, what it sees, and what advice does.
pub(super) fn summary(status: &Value, benefit: &Value) -> String {
    let state = if status["ready"] == true {
        "ready".to_owned()
    } else {
        let parts = listed(&status["not_ready"], |part| format!("{}: {}", shown(&part["part"]), shown(&part["why"])));
        format!("not ready ({parts})")
    };
    let number = |name: &str, one: &str| match status[name].as_u64() {
        Some(count) => counted(count, one, name),
        None => format!("{NONE} {name}"),
    };
    let (networks, agents, estimates) =
        (number("networks", "network"), number("agents", "agent"), shown(&status["estimates"]));
    let traffic = format!(
        "{} Mbit/s, {} dropped/s",
        mbit(&status["last"]["bits_per_s"]),
        decimals(&status["last"]["dropped_per_s"], 0)
    );
    let classes = benefit["classes"].as_array().into_iter().flatten();
    let compared = classes.filter(|class| class["difference"]["completion_ms"]["percent"][0].is_number());
    let gain = compared.map(|class| {
        format!("{} {} %", shown(&class["size"]), signed(&class["difference"]["completion_ms"]["percent"][0]))
    });
    let gain = gain.collect::<Vec<_>>();
    let gain = if gain.is_empty() { String::new() } else { format!("; completion {}", gain.join(", ")) };
    format!("{state}; {networks}, {estimates} with an estimate; {traffic}; {agents}{gain}")
}

fn events(document: &Value, width: Width) -> String {
    let table = rows(&document["events"], &EVENTS, width, true);
    match document["missing"].as_u64() {
        None | Some(0) => table,
        Some(missing) => format!("{table}\n{missing} more are not kept, or not within --limit"),
    }
}

fn benefit(document: &Value, width: Width) -> String {
    let [since, hosts, paused] = ["since", "hosts", "transfers_paused"].map(|name| shown(&document[name]));
    let head =
        format!("advised minus control since {since}; hosts: {hosts}; transfers left out because of a pause: {paused}");
    format!("{head}\n{}", rows(&document["classes"], &CLASSES, width, true))
}

fn names(document: &Value, lines: &[(&'static str, Cell)], width: Width) -> String {
    text(&named(lines.iter().map(|(name, cell)| (*name, inert(&cell(document), TEXT))), width))
}

fn rows<const N: usize>(list: &Value, fields: &[Field; N], width: Width, heading: bool) -> String {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        return if heading { "none" } else { "" }.to_owned();
    }
    let cells = list.iter().map(|one| fields.map(|(column, least, cell)| column.padded(&cell(one), least)));
    let (table, left_out) = fitted(&fields.map(|(column, ..)| column), cells, width);
    let table = text(&table);
    let body = table.find('─').and_then(|line| table.get(line..)?.split_once('\n'));
    let table = match body {
        Some((_, body)) if !heading => body.to_owned(),
        _ => table,
    };
    match width.limit() {
        Some(limit) if left_out && heading => {
            format!("{NO_ROOM} {limit} characters: a wider terminal or --json shows all.\n{table}")
        }
        _ => table,
    }
}

/// The first 20 characters of a network's name, else of who announces it.
fn called(network: &Value) -> String {
    let name = network["name"].as_str().or(network["as_organisation"].as_str());
    name.map_or(NONE.to_owned(), in_short)
}

/// The share, with a mark where it is a lower bound.
fn share(network: &Value) -> String {
    let bound = if network["is_lower_bound"] == true { "≥" } else { "" };
    format!("{bound}{}", shown(&network["wc_segments"]))
}

/// An address's share; in brackets where the estimate does not rest on it.
fn address_share(one: &Value) -> String {
    let share =
        format!("{} {} (samples: {})", shown(&one["remote"]), decimals(&one["wc_bytes"], 0), shown(&one["samples"]));
    if one["is_lower"] == true { share } else { format!("[{share}]") }
}

fn interface(interface: &Value) -> String {
    let dropped: u64 = ["dropped_kernel", "dropped_interface", "dropped_queue"]
        .iter()
        .filter_map(|place| interface[place].as_u64())
        .sum();
    format!("{}: {} packets, {dropped} dropped", shown(&interface["interface"]), shown(&interface["packets"]))
}

fn decimals(value: &Value, places: usize) -> String {
    value.as_f64().map_or(NONE.to_owned(), |value| format!("{value:.places$}"))
}

fn mbit(bits: &Value) -> String {
    bits.as_f64().map_or(NONE.to_owned(), |bits| format!("{:.3}", bits / 1e6))
}

fn percent(part: &Value) -> String {
    part.as_f64().map_or(NONE.to_owned(), |part| format!("{:.2}", part * 100.0))
}

fn signed(value: &Value) -> String {
    value.as_f64().map_or(NONE.to_owned(), |value| format!("{value:+.1}"))
}

fn sum(counts: &Value) -> String {
    let counts = counts.as_object().map(|counts| counts.values().filter_map(Value::as_u64).sum::<u64>());
    counts.map_or(NONE.to_owned(), |sum| sum.to_string())
}

/// Counts by name, without those that are 0.
fn counts(counts: &Value) -> String {
    let counts = counts.as_object().into_iter().flatten().filter(|(_, count)| **count != 0);
    let named = counts.map(|(name, count)| format!("{} {count}", name.replace('_', " ")));
    or_none(&named.collect::<Vec<_>>())
}

fn listed(list: &Value, one: fn(&Value) -> String) -> String {
    or_none(&list.as_array().into_iter().flatten().map(one).collect::<Vec<_>>())
}

fn or_none(parts: &[String]) -> String {
    if parts.is_empty() { NONE.to_owned() } else { parts.join(", ") }
}

/// A value as a person reads it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => NONE.to_owned(),
        Value::Bool(is) => if *is { "yes" } else { "no" }.to_owned(),
        Value::String(text) => printable(text),
        Value::Array(list) => or_none(&list.iter().map(shown).collect::<Vec<_>>()),
        other => printable(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn networks(prefixes: &[&str]) -> Value {
        let one = |prefix: &&str| json!({ "prefix": prefix, "wc_segments": 20, "is_lower_bound": true, "samples": 3 });
        json!({ "networks": prefixes.iter().map(one).collect::<Vec<_>>(), "total": 3, "next_offset": 2 })
    }

    #[test]
    fn what_a_host_calls_itself_does_nothing_to_a_terminal() {
        let agents = json!({ "agents": [{ "host_name": "web\u{1b}[2J\r\nfake" }], "total": 1 });
        let table = Printed::Agents.text(&agents, Width::UNLIMITED, true, None);
        assert!(table.contains("web\u{fffd}[2J\u{fffd}\u{fffd}fake"), "{table}");
        assert_eq!(table.lines().count(), 4, "{table}");
    }

    #[test]
    fn pages_of_a_list_are_alike_and_have_one_heading() {
        let first = Printed::Networks.text(&networks(&["192.0.2.0/24", "10.0.0.0/24"]), Width::at_most(80), true, None);
        let later = Printed::Networks.text(&networks(&["1.0.0.0/24"]), Width::at_most(80), false, Some(3));
        let (row, rest) = later.split_once('\n').unwrap();
        assert_eq!(first.lines().last().unwrap().replace("10.0.0.0/24", "1.0.0.0/24 "), row);
        assert!(first.starts_with("Some columns do not fit 80 characters") && row.contains("≥20"), "{first}");
        assert_eq!(rest, "3 in all; --offset 3 prints the next ones, --all prints every one");
    }

    #[test]
    fn what_a_gateway_of_another_release_does_not_say_is_not_known() {
        for kind in [Printed::Status, Printed::Network, Printed::Benefit, Printed::Networks, Printed::Events] {
            let text = kind.text(&json!({}), Width::UNLIMITED, true, None);
            assert!((text.contains(NONE) || text == "none") && !text.contains("null"), "{text}");
        }
    }
}
