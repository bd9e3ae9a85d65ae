//! Links: veth pairs that carry one packet per segment, a mirror port, and TUN devices for the emulated path.

use std::fs::{File, OpenOptions};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use super::namespace::Namespace;
use super::topology::{LAN_DEVICE, MIRROR_DEVICE, SPAN_DEVICE, Topology, quiet_ipv6};

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Where it lives.
    pub namespace: &'a Namespace,
    /// Interface name, at most 15 bytes.
    pub device: &'a str,
    /// Last byte of its hardware address: the lab sets addresses, so that neighbours can be set too.
    pub station: u8,
}

impl End<'_> {
    fn mac(&self) -> String {
        format!("02:00:00:00:00:{:02x}", self.station)
    }
}

/// What a link's ends do with several segments at a time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Offloads {
    /// One segment is one packet, checksums are real.
    #[default]
    Off,
    /// TSO and GSO, GRO and checksums left to the device: a packet on the link, and at a tap on it, is up to 64 KB.
    On,
}

/// Joins two ends by a veth pair, offloads off, both up.
pub fn veth(a: End<'_>, b: End<'_>) -> Result<()> {
    veth_with(a, b, Offloads::Off)
}

/// The same with offloads as given.
pub fn veth_with(a: End<'_>, b: End<'_>, offloads: Offloads) -> Result<()> {
    let peer_namespace = b.namespace.path();
    a.namespace.ip(&[&format!(
        "link add {} address {} type veth peer name {} address {} netns {}",
        a.device,
        a.mac(),
        b.device,
        b.mac(),
        peer_namespace.display()
    )])?;
    for end in [a, b] {
        end.namespace.enter(|| set_offloads(end.device, offloads))?;
        end.namespace.ip(&[&format!("link set {} up", end.device)])?;
    }
    Ok(())
}

/// Makes `peer` a permanent neighbour of `end` under `address`: an ARP exchange would inflate a first round trip.
pub fn static_neighbour(end: End<'_>, peer: End<'_>, address: std::net::IpAddr) -> Result<()> {
    end.namespace.ip(&[&format!("neigh replace {address} lladdr {} dev {} nud permanent", peer.mac(), end.device)])
}

/// Copies everything that `device` receives and sends to `port` of the same namespace, as a switch's SPAN port does.
pub fn mirror(namespace: &Namespace, device: &str, port: &str) -> Result<()> {
    // u32 rather than matchall: some kernels have only the former, and it matches every packet as well.
    let filter = |side: &str| {
        format!("filter add dev {device} {side} protocol all u32 match u32 0 0 action mirred egress mirror dev {port}")
    };
    namespace
        .tc(&[&format!("qdisc add dev {device} clsact"), &filter("ingress"), &filter("egress")])
        .with_context(|| format!("cannot mirror {device} to {port}: the kernel needs clsact, cls_u32 and act_mirred"))
}

/// Copies what `device`, the side towards servers, passes of clients with an even address to the first port and of those with an odd one to the
/// second, in place of what [`mirror`] set up: as if each half left over a link of its own.
pub fn divide_mirror(namespace: &Namespace, device: &str, ports: [&str; 2]) -> Result<()> {
    let mut lines = vec![format!("filter del dev {device} ingress"), format!("filter del dev {device} egress")];
    for (parity, port) in ports.into_iter().enumerate() {
        // Where the last word of the client's address is in a header: of the destination of what servers send, of the source of the answers.
        for (side, protocol, at) in
            [("ingress", "ip", 16), ("egress", "ip", 12), ("ingress", "ipv6", 36), ("egress", "ipv6", 20)]
        {
            let preference = if protocol == "ip" { 1 } else { 2 };
            lines.push(format!(
                "filter add dev {device} {side} protocol {protocol} pref {preference} u32 match u32 {parity} 1 at {at} action mirred egress \
                 mirror dev {port}"
            ));
        }
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    namespace.tc(&lines).with_context(|| format!("cannot divide what is mirrored of {device}"))
}

// include/uapi/linux/ethtool.h
const ETHTOOL_SET_TX_CHECKSUM: u32 = 0x17;
const ETHTOOL_SET_TSO: u32 = 0x1f;
const ETHTOOL_SET_GSO: u32 = 0x24;
const ETHTOOL_SET_GRO: u32 = 0x2c;
// include/uapi/linux/sockios.h
const SIOCETHTOOL: libc::c_ulong = 0x8946;

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// Switches segmentation, receive and checksum offload on `device` of the calling thread's namespace.
fn set_offloads(device: &str, offloads: Offloads) -> Result<()> {
    let data = u32::from(offloads == Offloads::On);
    // GSO needs checksums, and TSO needs GSO: that is the order to switch them on in.
    let mut commands = [ETHTOOL_SET_TSO, ETHTOOL_SET_GSO, ETHTOOL_SET_GRO, ETHTOOL_SET_TX_CHECKSUM];
    if offloads == Offloads::On {
        commands.reverse();
    }
    let control = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)
        .context("cannot open a socket to set offloads")?;
    for command in commands {
        let mut value = EthtoolValue { command, data };
        let mut request = request_for(device)?;
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: SIOCETHTOOL reads an ifreq whose data points to an ethtool_value; both live until the call returns.
        let answer = unsafe { libc::ioctl(control.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
        nix::errno::Errno::result(answer)
            .with_context(|| format!("cannot set offload {command:#x} of {device} to {data}"))?;
    }
    Ok(())
}

/// Makes a TUN device in the calling thread's namespace: IP packets without a header before them, never blocking.
pub fn tun(device: &str) -> Result<OwnedFd> {
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")
        .context("cannot open /dev/net/tun: the path emulator needs TUN devices")?;
    let mut request = request_for(device)?;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(libc::IFF_TUN | libc::IFF_NO_PI)?;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which lives until the call returns.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    nix::errno::Errno::result(answer).with_context(|| format!("cannot make the TUN device {device}"))?;
    Ok(file.into())
}

fn request_for(device: &str) -> Result<libc::ifreq> {
    // SAFETY: an ifreq is plain data (a byte array and a union of plain data); all zero is a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    ensure!(device.len() < request.ifr_name.len(), "the interface name {device} is longer than 15 bytes");
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(request)
}

// A second egress: clients with an odd address take it, and a gateway of its own watches it.

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
        veth(span, End { namespace: &gateway, device: MIRROR_DEVICE, station: 0x32 })?;
        for (namespace, device) in [(&self.edge, SPAN), (&gateway, MIRROR_DEVICE)] {
            namespace.sysctl(&format!("ipv6/conf/{device}/disable_ipv6"), "1")?;
        }
        divide_mirror(&self.edge, LAN_DEVICE, [SPAN_DEVICE, SPAN])?;

        let management = End { namespace: &gateway, device: "mgmt0", station: 0x33 };
        veth(management, End { namespace: &self.server, device: "mgmt1", station: 0x34 })?;
        gateway.ip(&[&format!("address add {SECOND_MANAGEMENT}/30 dev mgmt0")])?;
        self.server.ip(&[&format!("address add {SERVER_SECOND_MANAGEMENT}/30 dev mgmt1")])?;
        Ok(gateway)
    }
}
