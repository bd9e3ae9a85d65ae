//! Gateways that share over NATS, with real servers.

mod member;
mod one_server;
