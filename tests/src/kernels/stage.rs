//! What a trial is played on, inside a guest: server, router and client, and between the last two the kernel's own netem.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::lab::link::{self, End};
use crate::lab::namespace::Namespace;
use crate::lab::topology::{MIRROR_DEVICE, SERVER_V4, SERVER_V6, quiet_ipv6};
use crate::lab::traffic::{Client, Conduct, Plan, Server};

/// The path, half of its round trip each way.
const PATH: [&str; 2] = [
    "qdisc add dev wan0 root netem delay 20ms rate 20mbit limit 100",
    "qdisc add dev lan0 root netem delay 20ms limit 1000",
];
const PORT: u16 = 8_000;

/// A kind of sender: congestion control and qdisc.
#[derive(Clone, Copy, Debug)]
pub(super) struct Host {
    /// Its name in results.
    pub(super) name: &'static str,
    congestion_control: &'static str,
    qdisc: Option<&'static str>,
}

/// Those that are tried, in the order of their clients' networks.
pub(super) const HOSTS: [Host; 4] = [
    Host { name: "CUBIC", congestion_control: "cubic", qdisc: None },
    Host { name: "Reno", congestion_control: "reno", qdisc: None },
    Host { name: "BBR", congestion_control: "bbr", qdisc: None },
    Host { name: "BBR, fq", congestion_control: "bbr", qdisc: Some("fq") },
];

/// It stands as long as this.
#[derive(Debug)]
pub(super) struct Stage {
    /// The product's host.
    pub(super) server: Namespace,
    client: Namespace,
    _router: Namespace,
    _serving: Server,
}

impl Stage {
    /// Builds it, a network of clients for each host and family.
    pub(super) fn build() -> Result<Self> {
        let [server, router, client] = ["server", "router", "client"].map(Namespace::create);
        let (server, router, client) = (server?, router?, client?);
        for namespace in [&server, &router, &client] {
            quiet_ipv6(namespace)?;
        }
        router.sysctl("ipv4/ip_forward", "1")?;
        router.sysctl("ipv6/conf/all/forwarding", "1")?;
        server.sysctl("ipv4/tcp_no_metrics_save", "1")?;
        // The gateway's setup of the lab captures from a device of this name.
        let at_server = End { namespace: &server, device: MIRROR_DEVICE, station: 1 };
        let to_server = End { namespace: &router, device: "lan0", station: 2 };
        let to_client = End { namespace: &router, device: "wan0", station: 3 };
        let at_client = End { namespace: &client, device: "wan0", station: 4 };
        link::veth(at_server, to_server)?;
        link::veth(at_client, to_client)?;
        let plain =
            |end: End<'_>, lines: &[String]| end.namespace.ip(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        for (own, everything) in [(format!("{SERVER_V4}/32"), "0.0.0.0/0"), (format!("{SERVER_V6}/128"), "::/0")] {
            let address = format!("address add {own} dev {MIRROR_DEVICE}");
            plain(at_server, &[address, format!("route add {everything} dev {MIRROR_DEVICE}")])?;
            plain(to_server, &[format!("route add {own} dev lan0")])?;
            plain(at_client, &[format!("route add {own} dev wan0")])?;
        }
        for server in [IpAddr::V4(SERVER_V4), IpAddr::V6(SERVER_V6)] {
            link::static_neighbour(to_server, at_server, server)?;
            link::static_neighbour(at_client, to_client, server)?;
        }
        for (index, family) in (0..HOSTS.len()).flat_map(|index| [(index, 4), (index, 6)]) {
            let address = client_address(index, family);
            plain(at_client, &[format!("address add {address} dev wan0")])?;
            plain(to_client, &[format!("route add {address} dev wan0")])?;
            link::static_neighbour(to_client, at_client, address)?;
            link::static_neighbour(at_server, to_server, address)?;
        }
        router.tc(&PATH).context("the path needs netem")?;
        let serving = Server::start_with(&server, PORT, &Conduct::default())?;
        Ok(Self { server, client, _router: router, _serving: serving })
    }

    /// Makes the server a host of this kind.
    pub(super) fn configure(&self, host: Host) -> Result<()> {
        self.server.default_congestion_control(host.congestion_control)?;
        // A veth pair has no queue by itself.
        let qdisc = host.qdisc.unwrap_or("noqueue");
        self.server.tc(&[&format!("qdisc replace dev {MIRROR_DEVICE} root {qdisc}")])
    }

    /// One answer on a connection of its own: its time from the SYN to the last byte, in microseconds.
    pub(super) fn transfer(&self, client: IpAddr, bytes: u64) -> Result<u64> {
        self.watched(client, bytes, || Ok(()))
    }

    /// What `ss` shows of the sender when the first bytes of an answer have come and none of them is acknowledged yet: congestion
    /// control, window and threshold.
    pub(super) fn first_flight(&self, client: IpAddr, bytes: u64) -> Result<String> {
        let mut shown = None;
        self.watched(client, bytes, || {
            if shown.is_none() {
                let (port, client) = (format!(":{PORT}"), format!("[{client}]"));
                let filter = ["-tinH", "state", "established", "sport", "=", &port, "dst", &client];
                let output = self.server.command("ss").args(filter).output()?;
                shown = Some(String::from_utf8(output.stdout)?);
            }
            Ok(())
        })?;
        let shown = shown.unwrap_or_default();
        let words: Vec<&str> = shown.split_whitespace().collect();
        let of = |key: &str| words.iter().find_map(|word| word.strip_prefix(key)).unwrap_or("none");
        let control = words.windows(2).find(|pair| matches!(pair, [_, next] if next.starts_with("wscale:")));
        let control = control.and_then(|pair| pair.first()).context("ss shows no connection in its first flight")?;
        Ok(format!("{control} {} {}", of("cwnd:"), of("ssthresh:")))
    }

    fn watched(&self, client: IpAddr, bytes: u64, mut at_bytes: impl FnMut() -> Result<()> + Send) -> Result<u64> {
        let server: IpAddr = if client.is_ipv4() { SERVER_V4.into() } else { SERVER_V6.into() };
        let transfer = self.client.enter(|| {
            let plan = Plan::transfer(Plan::AS_THE_HOST, bytes);
            Client::connect(client, SocketAddr::new(server, PORT))?.ask_watched(&plan, |_, _| at_bytes())
        })?;
        let time: Duration = transfer.handshake + transfer.completion;
        Ok(u64::try_from(time.as_micros())?)
    }
}

/// The client of the host with this index: each is in a network of its own, so that no kind of host learns from another.
pub(super) fn client_address(index: usize, family: u8) -> IpAddr {
    let number = u8::try_from(index).unwrap_or(u8::MAX);
    if family == 4 {
        Ipv4Addr::new(198, 18, number, 11).into()
    } else {
        Ipv6Addr::new(0x2001, 0xdb8, number.into(), 0, 0, 0, 0, 0x11).into()
    }
}
