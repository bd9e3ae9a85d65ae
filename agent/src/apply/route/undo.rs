//! Commands that take a route of ours back, to be pasted.

use std::net::IpAddr;

use spand_proto::network::Network;

use super::signature::{PRIORITY, PROTOCOL};
use crate::ledger::Entry;

/// The command that removes a route with our signature of which nothing else is known.
pub(crate) fn undo_signed(network: Network) -> String {
    format!("ip {}route del {network} proto {PROTOCOL} metric {PRIORITY}", family(network))
}

fn family(network: Network) -> &'static str {
    if network.prefix().addr().is_ipv4() { "" } else { "-6 " }
}

/// The command that removes our route for `network`.
pub fn undo_line(network: Network, gateway: IpAddr, link: &str) -> String {
    let family = family(network);
    format!("ip {family}route del {network} via {gateway} dev {link} proto {PROTOCOL} metric {PRIORITY}")
}

/// The command of a ledger's entry, built from its fields: text of a file is not pasted into a shell.
pub fn undo_command(entry: &Entry) -> String {
    let link: String = entry.link.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.:@".contains(*c)).collect();
    undo_line(entry.network, entry.gateway, &link)
}
