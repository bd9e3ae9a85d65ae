//! Further hosts beside the lab's server: on a cable of their own to the edge, so that what is set on one touches no other.
//!
//! Their addresses are those reserved for benchmarks (RFC 2544, 198.19.255.0/24 of it).

use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result, ensure};

use super::link::{self, End};
use super::namespace::Namespace;
use super::topology::{SERVER_DEVICE, Topology};

/// Hosts beside the server.
const HOSTS_MAX: usize = 8;

/// A host that stands.
#[derive(Clone, Debug)]
pub struct Host {
    /// Where it lives.
    pub namespace: Namespace,
    /// Its address.
    pub address: IpAddr,
}

/// Whether the gateway's mirror port shows a host's packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mirrored {
    /// As those of the server.
    Yes,
    /// The gateway knows nothing of it.
    No,
}

impl Topology {
    /// Adds the `number`th host, counted from 0; its device is [`SERVER_DEVICE`], as the server's is.
    pub fn add_host(&self, number: usize, name: &str, mirrored: Mirrored) -> Result<Host> {
        ensure!(number < HOSTS_MAX, "a lab has at most {HOSTS_MAX} hosts beside the server");
        let number = u8::try_from(number).context("a small number")?;
        let namespace = Namespace::create(name)?;
        namespace.sysctl("ipv4/tcp_no_metrics_save", "1")?;
        let near = Ipv4Addr::new(198, 19, 255, 4 * number + 1);
        let address = Ipv4Addr::new(198, 19, 255, 4 * number + 2);
        let device = format!("host{number}");
        let on_edge = End { namespace: &self.edge, device: &device, station: 0x40 + 2 * number };
        let on_host = End { namespace: &namespace, device: SERVER_DEVICE, station: 0x41 + 2 * number };
        for (namespace, device) in [(&self.edge, "default"), (&namespace, "default")] {
            namespace.sysctl(&format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
        }
        link::veth(on_host, on_edge)?;
        self.edge.ip(&[&format!("address add {near}/30 dev {device}")])?;
        namespace.ip(&[
            &format!("address add {address}/30 dev {SERVER_DEVICE}"),
            &format!("route add default via {near}"),
        ])?;
        link::static_neighbour(on_host, on_edge, near.into())?;
        link::static_neighbour(on_edge, on_host, address.into())?;
        if mirrored == Mirrored::Yes {
            link::mirror(&self.edge, &device, "span0")?;
        }
        Ok(Host { namespace, address: address.into() })
    }

    /// The lab's server as a host.
    pub fn server_host(&self) -> Host {
        Host { namespace: self.server.clone(), address: super::topology::SERVER_V4.into() }
    }
}
