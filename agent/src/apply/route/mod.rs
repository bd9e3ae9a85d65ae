//! Sets the initial window of routes: one route for each advised network, a copy of its covering route with `initcwnd`.
//!
//! A copied next hop must never outlive its original. So every change of a route around or inside a network, of a rule
//! or of a link removes our route first; it comes back when things stood still for a while. Someone else's route is never
//! touched: ours bear a protocol number and a metric of their own (`signature`), the kernel matches the number on every
//! removal, and the ledger must know them. Where an administrator sets the same thing, ours
//! stays away; where somebody removes ours, it comes back after a time that doubles.
//!
//! Facts from the kernel (`fib_trie.c`, `route.c`): each change of an IPv4 route makes all cached routes of the namespace
//! stale, so changes are collected by the caller and made in one batch.

mod applier;
mod change;
mod cleanup;
pub mod guard;
mod monitor;
mod netlink;
mod plan;
mod signature;
mod view;

#[cfg(test)]
mod tests;

pub use applier::RouteApplier;
pub use cleanup::{CleanUp, clean_up, undo_command, undo_line};
pub(crate) use cleanup::{signed_routes, survey, undo_signed};
pub(crate) use netlink::an_agent_is_here;
pub use netlink::{Netlink, NetlinkError, only_agent_here};
pub use plan::Obstacle;
pub use signature::{PRIORITY, PROTOCOL};
pub(crate) use view::Survey;
