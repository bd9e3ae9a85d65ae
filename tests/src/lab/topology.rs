//! The lab's standard layout: one server behind an edge with a mirror port, and client networks across emulated paths.
//!
//! Addresses are those reserved for documentation (RFC 5737, RFC 3849), so nothing here can be mistaken for a real network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use spand_proto::units::BytesPerSecond;

use super::link::{self, End, Offloads};
use super::namespace::Namespace;
use super::path::{
    Carrier, Counts, Emulator, Hop, KernelPath, LinkConfig, LinkCounters, PathConfig, PathCounters, PathEnds, Queue,
};

/// The server's IPv4 address.
pub const SERVER_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The server's IPv6 address.
pub const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 2);
/// The gateway's address on the management link, where its API may listen.
pub const GATEWAY_MANAGEMENT: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
/// The server's address on the management link.
pub const SERVER_MANAGEMENT: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 2);
/// The server's interface towards the edge.
pub const SERVER_DEVICE: &str = "eth0";
/// The gateway's interface on which mirrored packets arrive.
pub const MIRROR_DEVICE: &str = "mirror0";

/// The edge's interface towards the server, and its mirror port.
pub(super) const LAN_DEVICE: &str = "lan0";
pub(super) const SPAN_DEVICE: &str = "span0";

/// Client networks of one lab.
const NETWORKS_MAX: usize = 64;

/// A client network to build.
#[derive(Clone, Copy, Debug)]
pub struct NetworkPlan {
    /// Its prefix: an IPv4 /24 or /25, or an IPv6 /48.
    pub prefix: IpNet,
    /// Client addresses in it.
    pub clients: u8,
    /// The path to it.
    pub path: PathConfig,
}

/// A client network that stands.
#[derive(Debug)]
pub struct ClientNetwork {
    /// What was asked for.
    pub plan: NetworkPlan,
    /// Where its clients live.
    pub namespace: Namespace,
    /// Their addresses.
    pub addresses: Vec<IpAddr>,
}

/// What lies between the server and the mirror port.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Access {
    /// One-way delay from the server to the tap. Zero: a cable.
    pub tap_distance: Duration,
    /// Offloads on the server's cable and on the mirror's.
    pub offloads: Offloads,
}

/// A lab that stands. Dropping it takes everything down.
#[derive(Debug)]
pub struct Topology {
    /// The server host.
    pub server: Namespace,
    /// The edge router, whose port towards the server is mirrored.
    pub edge: Namespace,
    /// The gateway's host: gets mirrored packets, and has a management link to the server.
    pub gateway: Namespace,
    /// Client networks, in the order given.
    pub networks: Vec<ClientNetwork>,
    /// What carries the paths, in the same order, where the kernel does not; the way to a distant tap comes last.
    pub emulator: Emulator,
    /// The paths, in the same order, where they are made of the kernel's parts.
    kernel_paths: Vec<KernelPath>,
    /// A port for the server that two labs on one machine do not share, so that their traces can be distinguished.
    pub port: u16,
    /// The router between the server and a tap that is not beside it.
    _near: Option<Namespace>,
}

impl Topology {
    /// Builds everything, the tap beside the server and offloads off.
    pub fn build(plans: &[NetworkPlan]) -> Result<Self> {
        Self::build_with(plans, Access::default())
    }

    /// Builds everything, with `access` between server and tap.
    pub fn build_with(plans: &[NetworkPlan], access: Access) -> Result<Self> {
        Self::build_on(plans, access, Carrier::Emulator)
    }

    /// Builds everything, with what carries the paths as given.
    pub fn build_on(plans: &[NetworkPlan], access: Access, carrier: Carrier) -> Result<Self> {
        ensure!(plans.len() <= NETWORKS_MAX, "a lab has at most {NETWORKS_MAX} client networks");
        let server = Namespace::create("server")?;
        let edge = Namespace::create("edge")?;
        let gateway = Namespace::create("gateway")?;
        // Each connection shall show its path, not the memory of an earlier one.
        server.sysctl("ipv4/tcp_no_metrics_save", "1")?;
        for namespace in [&server, &edge, &gateway] {
            quiet_ipv6(namespace)?;
        }
        let near = wire_server(&server, &edge, access)?;
        wire_gateway(&server, &edge, &gateway, access.offloads)?;
        let (mut networks, mut ends, mut kernel_paths) = (Vec::new(), Vec::new(), Vec::new());
        for (index, plan) in plans.iter().enumerate() {
            let (network, path) = client_network(&edge, index, plan, carrier)?;
            networks.push(network);
            match path {
                Path::Emulated(path) => ends.push(*path),
                Path::OfKernel(path) => kernel_paths.push(path),
            }
        }
        let (near, near_ends) = near.unzip();
        ends.extend(near_ends);
        let emulator = Emulator::start(ends)?;
        // Above the usual services, below the ports that clients get by themselves.
        let port = 10_000 + u16::try_from(std::process::id() % 20_000)?;
        Ok(Self { server, edge, gateway, networks, emulator, kernel_paths, port, _near: near })
    }

    /// What each path has carried to its clients, and back.
    ///
    /// # Errors
    /// Where `tc` does not show them.
    pub fn counts(&self) -> Result<Vec<[Counts; 2]>> {
        if self.kernel_paths.is_empty() {
            let of = |path: &Arc<PathCounters>| [&path.down, &path.up].map(LinkCounters::counts);
            return Ok(self.emulator.counters().iter().map(of).collect());
        }
        self.kernel_paths.iter().map(KernelPath::counts).collect()
    }

    /// Changes the rate of a path's bottleneck.
    ///
    /// # Errors
    /// Where the kernel refuses.
    pub fn set_rate(&self, network: usize, rate: BytesPerSecond) -> Result<()> {
        self.emulator.set_rate(network, rate);
        self.kernel_paths.get(network).map_or(Ok(()), |path| path.set_rate(rate))
    }

    /// The server's address in the family of `prefix`.
    pub fn server_address(&self, prefix: IpNet) -> SocketAddr {
        let address = if prefix.addr().is_ipv4() { IpAddr::V4(SERVER_V4) } else { IpAddr::V6(SERVER_V6) };
        SocketAddr::new(address, self.port)
    }
}

/// No duplicate address detection and no router solicitations: addresses work at once, captures hold TCP only.
pub(crate) fn quiet_ipv6(namespace: &Namespace) -> Result<()> {
    for (key, value) in [("accept_dad", "0"), ("router_solicitations", "0"), ("accept_ra", "0")] {
        for scope in ["all", "default"] {
            namespace.sysctl(&format!("ipv6/conf/{scope}/{key}"), value)?;
        }
    }
    Ok(())
}

/// Joins the server to the edge: by a cable, or over an emulated way and a router beside the edge.
fn wire_server(server: &Namespace, edge: &Namespace, access: Access) -> Result<Option<(Namespace, PathEnds)>> {
    let on_edge = End { namespace: edge, device: "lan0", station: 0x01 };
    edge.sysctl("ipv4/ip_forward", "1")?;
    edge.sysctl("ipv6/conf/all/forwarding", "1")?;
    let near = if access.tap_distance.is_zero() { None } else { Some(Namespace::create("near")?) };
    let on_lan = End { namespace: near.as_ref().unwrap_or(server), device: SERVER_DEVICE, station: 0x02 };
    if let Some(near) = &near {
        quiet_ipv6(near)?;
        near.sysctl("ipv4/ip_forward", "1")?;
        near.sysctl("ipv6/conf/all/forwarding", "1")?;
    }
    link::veth_with(on_lan, on_edge, access.offloads)?;
    edge.ip(&["address add 192.0.2.1/24 dev lan0", "address add 2001:db8:ffff::1/64 dev lan0 nodad"])?;
    let defaults = ["route add default via 192.0.2.1", "route add default via 2001:db8:ffff::1"];
    let addresses = |device| {
        let v4 = format!("address add {SERVER_V4}/24 dev {device}");
        [v4, format!("address add {SERVER_V6}/64 dev {device} nodad")]
    };
    let way = match &near {
        None => {
            let [v4, v6] = addresses(SERVER_DEVICE);
            server.ip(&[&v4, &v6, defaults[0], defaults[1]])?;
            None
        }
        Some(near) => {
            let server_side = server.enter(|| link::tun(SERVER_DEVICE))?;
            let near_side = near.enter(|| link::tun("host0"))?;
            let [v4, v6] = addresses(SERVER_DEVICE);
            server.ip(&[
                &format!("link set {SERVER_DEVICE} up"),
                &v4,
                &v6,
                &format!("route add default dev {SERVER_DEVICE}"),
                &format!("route add ::/0 dev {SERVER_DEVICE}"),
            ])?;
            near.ip(&[
                &format!("address add 192.0.2.3/24 dev {SERVER_DEVICE}"),
                &format!("address add 2001:db8:ffff::3/64 dev {SERVER_DEVICE} nodad"),
                "link set host0 up",
                &format!("route add {SERVER_V4}/32 dev host0"),
                &format!("route add {SERVER_V6}/128 dev host0"),
                defaults[0],
                defaults[1],
            ])?;
            let hop = Hop::new(None, Queue::Packets(1), access.tap_distance);
            let config = PathConfig { down: LinkConfig::new(hop), up: LinkConfig::new(hop), seed: 1 };
            Some(PathEnds { server: server_side, clients: near_side, config })
        }
    };
    for address in [IpAddr::from([192, 0, 2, 1]), IpAddr::from([0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1])] {
        link::static_neighbour(on_lan, on_edge, address)?;
    }
    for address in [IpAddr::V4(SERVER_V4), IpAddr::V6(SERVER_V6)] {
        // Where a router stands between them, it takes what is for the server.
        link::static_neighbour(on_edge, on_lan, address)?;
    }
    Ok(near.zip(way))
}

/// Joins the gateway to the edge's mirror port, and to the server for management.
fn wire_gateway(server: &Namespace, edge: &Namespace, gateway: &Namespace, offloads: Offloads) -> Result<()> {
    let span = End { namespace: edge, device: "span0", station: 0x11 };
    link::veth_with(span, End { namespace: gateway, device: MIRROR_DEVICE, station: 0x12 }, offloads)?;
    for (namespace, device) in [(edge, "span0"), (gateway, MIRROR_DEVICE)] {
        namespace.sysctl(&format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
    }
    link::mirror(edge, LAN_DEVICE, SPAN_DEVICE)?;

    let management = End { namespace: gateway, device: "mgmt0", station: 0x21 };
    link::veth(management, End { namespace: server, device: "mgmt0", station: 0x22 })?;
    gateway.ip(&[&format!("address add {GATEWAY_MANAGEMENT}/30 dev mgmt0")])?;
    server.ip(&[&format!("address add {SERVER_MANAGEMENT}/30 dev mgmt0")])
}

/// What a client network's path is made of.
enum Path {
    Emulated(Box<PathEnds>),
    OfKernel(KernelPath),
}

fn client_network(
    edge: &Namespace,
    index: usize,
    plan: &NetworkPlan,
    carrier: Carrier,
) -> Result<(ClientNetwork, Path)> {
    let namespace = Namespace::create(&format!("clients{index}"))?;
    quiet_ipv6(&namespace)?;
    let device = format!("wan{index}");
    let ends = match carrier {
        Carrier::Emulator => Some((edge.enter(|| link::tun(&device))?, namespace.enter(|| link::tun("wan0"))?)),
        Carrier::Kernel => {
            // A device without ARP sends to its own address, which is the other end's as well.
            let end = |namespace, device| End { namespace, device, station: 0x50 };
            link::veth(end(edge, &device), end(&namespace, "wan0"))?;
            edge.ip(&[&format!("link set {device} arp off")])?;
            namespace.ip(&["link set wan0 arp off"])?;
            None
        }
    };
    if plan.prefix.addr().is_ipv4() {
        // No multicast reports of a family that the path is not for: it shall carry the transfers only.
        edge.sysctl(&format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
        namespace.sysctl("ipv6/conf/wan0/disable_ipv6", "1")?;
    }
    edge.ip(&[&format!("link set {device} up"), &format!("route add {} dev {device}", plan.prefix.trunc())])?;
    let addresses: Vec<IpAddr> = (0..plan.clients).map(|n| client_address(plan.prefix, n)).collect::<Result<_>>()?;
    let mut lines = vec!["link set wan0 up".to_owned()];
    for address in &addresses {
        lines.push(match address {
            IpAddr::V4(address) => format!("address add {address}/{} dev wan0", plan.prefix.prefix_len()),
            IpAddr::V6(address) => format!("address add {address}/48 dev wan0 nodad"),
        });
    }
    let everywhere = if plan.prefix.addr().is_ipv4() { "0.0.0.0/0" } else { "::/0" };
    lines.push(format!("route add {everywhere} dev wan0"));
    namespace.ip(&lines.iter().map(String::as_str).collect::<Vec<_>>())?;
    let path = match ends {
        Some((server, clients)) => Path::Emulated(Box::new(PathEnds { server, clients, config: plan.path })),
        None => Path::OfKernel(KernelPath::make(edge, &device, &namespace, &plan.path)?),
    };
    Ok((ClientNetwork { plan: *plan, namespace, addresses }, path))
}

/// The `n`th client of a network: its number in it counts up from 11.
fn client_address(prefix: IpNet, n: u8) -> Result<IpAddr> {
    let host = 11_u8.checked_add(n).context("a client network has at most 240 clients")?;
    match prefix.trunc() {
        IpNet::V4(net) if net.prefix_len() == 24 || (net.prefix_len() == 25 && host < 127) => {
            Ok(Ipv4Addr::from_bits(net.addr().to_bits() | u32::from(host)).into())
        }
        IpNet::V6(net) if net.prefix_len() == 48 => {
            Ok(Ipv6Addr::from(u128::from(net.addr()) | u128::from(host)).into())
        }
        other => {
            anyhow::bail!("{other} is neither an IPv4 /24, an IPv4 /25 with fewer than 116 clients, nor an IPv6 /48")
        }
    }
}
