//! A second egress: clients with an odd address take it, and a gateway of its own watches it.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::link::{self, End};
use super::namespace::Namespace;
use super::topology::{LAN_DEVICE, MIRROR_DEVICE, SPAN_DEVICE, Topology, quiet_ipv6};

/// The second gateway's address on its management link.
pub const SECOND_MANAGEMENT: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 5);
/// The server's address there.
pub const SERVER_SECOND_MANAGEMENT: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 6);

impl Topology {
    /// Adds it: the lab's gateway sees clients with an even address alone from then on, and the one whose namespace is returned the others. That
    /// one gets its packets on [`MIRROR_DEVICE`], too, and has a management link to the server.
    pub fn add_egress(&self) -> Result<Namespace> {
        const SPAN: &str = "span1";
        let gateway = Namespace::create("gateway2")?;
        quiet_ipv6(&gateway)?;
        let span = End { namespace: &self.edge, device: SPAN, station: 0x31 };
        link::veth(span, End { namespace: &gateway, device: MIRROR_DEVICE, station: 0x32 })?;
        for (namespace, device) in [(&self.edge, SPAN), (&gateway, MIRROR_DEVICE)] {
            namespace.sysctl(&format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
        }
        link::divide_mirror(&self.edge, LAN_DEVICE, [SPAN_DEVICE, SPAN])?;

        let management = End { namespace: &gateway, device: "mgmt0", station: 0x33 };
        link::veth(management, End { namespace: &self.server, device: "mgmt1", station: 0x34 })?;
        gateway.ip(&[&format!("address add {SECOND_MANAGEMENT}/30 dev mgmt0")])?;
        self.server.ip(&[&format!("address add {SERVER_SECOND_MANAGEMENT}/30 dev mgmt1")])?;
        Ok(gateway)
    }
}
