//! Namespaces, links, an emulated path, real transfers, and what the kernel says about them. Needs root; nothing of it
//! outlives the process, however that ends.
//!
//! ```text
//! server ──veth── edge ══TUN══ path emulator ══TUN══ client network (one namespace each)
//!                  │ mirred, both directions
//!               gateway ──veth (management)── server
//! ```
//!
//! The lab knows nothing of the gateway and the agent: its users start programs in its namespaces.

pub mod host;
pub mod link;
pub mod namespace;
pub mod path;
pub mod tap;
pub mod topology;
pub mod traffic;
pub mod truth;
pub mod wire;
