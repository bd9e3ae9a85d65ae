//! Several gateways that share, with the servers that carry it: for tests and for the campaign `make cluster`.

pub mod cases;
pub mod gateway;
pub mod hosts;
pub mod listener;
pub mod made;
pub mod offer;
mod servers;
pub mod site;
pub mod traffic;

pub use servers::{Ports, Server, Servers, of_version, program, required_program};
