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

use std::io::Write as _;

use anyhow::{Result, ensure};

pub mod host;
pub mod link;
pub mod namespace;
pub mod path;
pub mod tap;
pub mod topology;
pub mod traffic;
pub mod truth;
pub mod wire;

/// Whether this process may build a lab; where it may not, says so past the test runner's capture, which would swallow it, unless
/// `SPAND_REQUIRE_ROOT` makes that a fault.
pub fn is_root() -> Result<bool> {
    let is_root = nix::unistd::geteuid().is_root();
    if !is_root {
        ensure!(std::env::var_os("SPAND_REQUIRE_ROOT").is_none(), "the lab needs root, and SPAND_REQUIRE_ROOT is set");
        writeln!(std::io::stderr(), "SKIPPED 1 test: the lab makes network namespaces and needs root")?;
    }
    Ok(is_root)
}
