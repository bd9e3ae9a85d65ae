//! Gateways that share over NATS, with real servers.

mod faults;
mod logins;
mod member;
mod one_server;
mod packaged;
mod refusals;
mod sites;
mod two_sites;
