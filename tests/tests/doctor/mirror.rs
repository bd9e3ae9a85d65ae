//! The gateway's doctor at mirror ports of every kind.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use spand_tests::lab::link::{End, Offloads, veth, veth_with};
use spand_tests::lab::namespace::Namespace;
use spand_tests::patience::PATIENCE;
use spand_tests::product::Daemon;

use super::{Case, Findings, Folder};

pub(super) const CASES: &[Case] = &[
    ("a sound mirror port", sound),
    ("a mirror port of one direction", one_sided),
    ("a mirror port of one direction, asked of a gateway that runs", one_sided_and_running),
    ("a mirror port that shows packets twice", twice),
    ("prefixes that are not those seen", wrong_prefixes),
    ("offloads that merge packets", offloads),
    ("a mirror port without traffic", silent),
    ("a port in use, a directory that is a file", port_and_store),
];

/// The address of the server inside and of the client outside.
const INSIDE: &str = "198.51.100.1";
const OUTSIDE: &str = "203.0.113.1";
const PORT: u16 = 8_080;

/// Directions of the server's link that are mirrored.
#[derive(Clone, Copy)]
enum Mirrored {
    Both,
    OneDirection,
    BothTwice,
    Nothing,
}

/// A server and a client joined by a link, and a gateway's machine behind a mirror port.
struct Site {
    server: Namespace,
    client: Namespace,
    gateway: Namespace,
    folder: Folder,
}

impl Site {
    fn build(mirrored: Mirrored, offloads: Offloads) -> Result<Self> {
        let [server, client, gateway] = ["server", "client", "gateway"].map(Namespace::create);
        let site = Self { server: server?, client: client?, gateway: gateway?, folder: Folder::new()? };
        // What IPv6 sends of its own is no silence.
        for namespace in [&site.server, &site.client, &site.gateway] {
            namespace.sysctl("ipv6/conf/default/disable_ipv6", "1")?;
        }
        let end = |namespace, device, station| End { namespace, device, station };
        veth(end(&site.server, "lan", 1), end(&site.client, "wan", 2))?;
        veth_with(end(&site.server, "mirror", 3), end(&site.gateway, "tap", 4), offloads)?;
        site.server.ip(&[&format!("addr add {INSIDE}/32 dev lan"), &format!("route add {OUTSIDE}/32 dev lan")])?;
        site.client.ip(&[&format!("addr add {OUTSIDE}/32 dev wan"), &format!("route add {INSIDE}/32 dev wan")])?;
        let sides: &[&str] = match mirrored {
            Mirrored::Both => &["ingress", "egress"],
            Mirrored::OneDirection => &["ingress"],
            Mirrored::BothTwice => &["ingress", "egress", "ingress", "egress"],
            Mirrored::Nothing => &[],
        };
        let filter = |(priority, side): (usize, &&str)| {
            format!(
                "filter add dev lan {side} protocol all prio {} u32 match u32 0 0 action mirred egress mirror dev mirror \
                 continue",
                priority + 1
            )
        };
        let filters: Vec<String> = sides.iter().enumerate().map(filter).collect();
        let mut lines = vec!["qdisc add dev lan clsact"];
        lines.extend(filters.iter().map(String::as_str));
        site.server.tc(&lines)?;
        site.configure("internal = [\"198.51.100.0/24\"]", "")?;
        Ok(site)
    }

    fn configure(&self, traffic: &str, more: &str) -> Result<()> {
        // The default socket is the machine's, and cases run side by side.
        let api = if more.contains("[api]") { "" } else { "[api]\ngrpc_listen = \"127.0.0.1:7400\"\n\n" };
        let text = format!(
            "[capture]\ninterfaces = [\"tap\"]\n\n[traffic]\n{traffic}\n\n[store]\ndirectory = \"store\"\n\n[limits]\nidle_other_s = 1\nidle_established_s = 1\n\n{api}{more}"
        );
        self.folder.write("spand-gateway.toml", &text)
    }

    fn doctor(&self) -> Result<Findings> {
        self.folder.doctor(&self.gateway, "spand-gateway", &["--seconds", "2"])
    }
}

/// Short transfers one after the other until it is dropped.
struct Transfers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Transfers {
    fn start(site: &Site) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let address: SocketAddr = format!("{INSIDE}:{PORT}").parse()?;
        let listener = site.server.enter(|| Ok(TcpListener::bind(address)?))?;
        let (served, stopped) = (Arc::clone(&stop), Arc::clone(&stop));
        let serve = site.server.spawn("serve", move || {
            for stream in listener.incoming() {
                if served.load(Ordering::Relaxed) {
                    break;
                }
                stream?.write_all(&vec![7; 20_000])?;
            }
            Ok(())
        })?;
        let ask = site.client.spawn("ask", move || {
            while !stopped.load(Ordering::Relaxed) {
                TcpStream::connect(address)?.read_to_end(&mut Vec::new())?;
                std::thread::sleep(Duration::from_millis(10));
            }
            // The server waits for one more, and then sees that it is over.
            drop(TcpStream::connect(address));
            Ok(())
        })?;
        Ok(Self { stop, threads: vec![ask, serve] })
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            match thread.join() {
                Ok(outcome) => outcome?,
                Err(_) => bail!("a thread of the transfers panicked"),
            }
        }
        Ok(())
    }
}

/// What the doctor says while transfers go on.
fn examined(mirrored: Mirrored, traffic: &str) -> Result<Findings> {
    let site = Site::build(mirrored, Offloads::Off)?;
    if !traffic.is_empty() {
        site.configure(traffic, "")?;
    }
    let transfers = Transfers::start(&site)?;
    let findings = site.doctor();
    transfers.end()?;
    findings
}

fn sound() -> Result<()> {
    let found = examined(Mirrored::Both, "")?;
    for name in [
        "traffic",
        "drops",
        "both_directions",
        "copies",
        "internal_prefixes",
        "snap_length",
        "merged_packets",
        "offloads",
    ] {
        found.has(name, "ok", "")?;
    }
    found.has("gateway", "ok", "not running")?;
    found.faults(&[])
}

fn one_sided() -> Result<()> {
    let found = examined(Mirrored::OneDirection, "")?;
    found.has("both_directions", "fail", "mirror both directions")?;
    found.faults(&["both_directions"])
}

fn one_sided_and_running() -> Result<()> {
    let site = Site::build(Mirrored::OneDirection, Offloads::Off)?;
    let config = site.folder.path("spand-gateway.toml");
    let config = config.to_str().context("a name in UTF-8")?;
    let program = site.folder.path("spand-gateway");
    let folder = site.folder.0.path();
    let mut daemon = Daemon::start("gateway", &program, &["run", "--config", config], &site.gateway, folder)?;
    let transfers = Transfers::start(&site)?;
    let patience = Instant::now() + PATIENCE;
    let found = loop {
        daemon.check()?;
        let found = site.doctor()?;
        // It has to start, and connections count at their end, a moment after it.
        let running = found.has("gateway", "ok", "running, answers on").is_ok();
        if running && found.has("both_directions", "unknown", "").is_err() || Instant::now() > patience {
            break found;
        }
    };
    transfers.end()?;
    let log = daemon.stop();
    found.has("gateway", "ok", "running, answers on").with_context(|| log)?;
    found.has("ready", "ok", "")?;
    found.has("both_directions", "fail", "mirror both directions")?;
    found.faults(&["both_directions"])
}

fn twice() -> Result<()> {
    let found = examined(Mirrored::BothTwice, "")?;
    found.has("copies", "warn", "captured twice")?;
    found.faults(&[])
}

fn wrong_prefixes() -> Result<()> {
    let found = examined(Mirrored::Both, "internal = [\"192.168.0.0/16\"]")?;
    found.has("internal_prefixes", "fail", "198.51.100.0/24").or(found.has(
        "internal_prefixes",
        "fail",
        "203.0.113.0/24",
    ))?;
    found.faults(&["internal_prefixes"])?;
    let found = examined(Mirrored::Both, "internal = []")?;
    found.has("internal_set", "warn", "traffic.internal is empty")?;
    found.faults(&[])
}

fn offloads() -> Result<()> {
    let site = Site::build(Mirrored::Nothing, Offloads::On)?;
    let found = site.doctor()?;
    found.has("offloads", "warn", "ethtool -K tap gro off")
}

fn silent() -> Result<()> {
    let site = Site::build(Mirrored::Nothing, Offloads::Off)?;
    let found = site.doctor()?;
    found.has("traffic", "fail", "no packets on tap in 2 s, though the interface is up")?;
    found.faults(&["traffic"])?;
    site.server.ip(&["link set mirror down"])?;
    site.doctor()?.has("interface", "fail", "interface tap is up but has no carrier")?;
    site.gateway.ip(&["link set tap down"])?;
    let found = site.doctor()?;
    found.has("interface", "fail", "interface tap is down")?;
    found.faults(&["interface"])
}

fn port_and_store() -> Result<()> {
    let site = Site::build(Mirrored::Nothing, Offloads::Off)?;
    site.configure("internal = [\"198.51.100.0/24\"]", "[api]\ngrpc_listen = \"127.0.0.1:7401\"\n")?;
    site.folder.write("store", "a file")?;
    let taken = site.gateway.enter(|| Ok(TcpListener::bind("127.0.0.1:7401")?))?;
    let found = site.doctor()?;
    drop(taken);
    found.has("port", "fail", "127.0.0.1:7401 (api.grpc_listen) is in use")?;
    found.has("store", "fail", "store.directory")?;
    found.faults(&["store", "port", "traffic"])
}
