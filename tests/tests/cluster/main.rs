//! Gateways that share over NATS, with real servers.

mod faults;
mod member;
mod packaged;
mod refusals;
mod sites;
mod two_sites;
