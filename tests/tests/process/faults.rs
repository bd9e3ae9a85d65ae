//! Faults of the machine around a whole gateway: what the operator sees, and that it recovers by itself.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use spand_tests::lab::link::{End, veth};
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::{Api, Daemon};

use super::Case;
use super::stage::{Folder, metric, wait, wait_ready};

pub(super) const CASES: &[Case] = &[
    ("an interface goes down and comes up under a gateway", down_and_up),
    ("the disk fills up under a gateway, and has room again", full_disk),
    ("a gateway starts without its store where the disk is full or read-only", no_disk_at_start),
];

const SERVER: &str = "198.51.100.1";
const CLIENT: &str = "203.0.113.1";
const PORT: u16 = 8_080;

/// A server whose own link the gateway reads, and a client.
struct Site {
    server: Namespace,
    client: Namespace,
    api: Api,
    folder: Folder,
}

impl Site {
    fn build() -> Result<Self> {
        let (server, client) = (Namespace::create("server")?, Namespace::create("client")?);
        let end = |namespace, device, station| End { namespace, device, station };
        veth(end(&server, "lan", 1), end(&client, "wan", 2))?;
        let site = Self {
            api: Api { namespace: server.clone(), address: "127.0.0.1:7480".parse()? },
            server,
            client,
            folder: Folder::new()?,
        };
        site.client.ip(&[&format!("addr add {CLIENT}/32 dev wan"), &format!("route add {SERVER}/32 dev wan")])?;
        site.server.ip(&[&format!("addr add {SERVER}/32 dev lan"), &way_back()])?;
        Ok(site)
    }

    fn gateway(&self) -> Result<Daemon> {
        let config = format!(
            "[capture]\ninterfaces = [\"lan\"]\nretry_s = 1\n\n[traffic]\ninternal = [\"{SERVER}/32\"]\n\n[api]\ngrpc_listen = \"127.0.0.1:7400\"\n\n[store]\ndirectory = \
             \"state/store\"\n"
        );
        self.folder.start("spand-gateway", &config, &self.server)
    }

    fn packets(&self) -> Result<f64> {
        metric(&self.api, "spand_capture_packets_total{interface=\"lan\"}")
    }
}

/// The route that the server loses with its interface.
fn way_back() -> String {
    format!("route add {CLIENT}/32 dev lan")
}

/// Short transfers one after the other until it is dropped.
struct Transfers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Transfers {
    fn start(site: &Site) -> Result<Self> {
        // Longer takes only what a link that is down swallowed.
        const MOST: Duration = Duration::from_millis(500);
        let stop = Arc::new(AtomicBool::new(false));
        let address: SocketAddr = format!("{SERVER}:{PORT}").parse()?;
        let listener = site.server.enter(|| Ok(TcpListener::bind(address)?))?;
        let (serving, asking) = (Arc::clone(&stop), Arc::clone(&stop));
        let serve = site.server.spawn("serve", move || {
            listener.set_nonblocking(true)?;
            while !serving.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((mut stream, _)) => {
                        stream.set_nonblocking(false)?;
                        stream.set_write_timeout(Some(MOST))?;
                        // A link that is down is what this is about.
                        drop(stream.write_all(&vec![7; 20_000]));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(5)),
                }
            }
            Ok(())
        })?;
        let ask = site.client.spawn("ask", move || {
            while !asking.load(Ordering::Relaxed) {
                if let Ok(mut stream) = TcpStream::connect_timeout(&address, MOST) {
                    stream.set_read_timeout(Some(MOST))?;
                    drop(stream.read_to_end(&mut Vec::new()));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        })?;
        Ok(Self { stop, threads: vec![serve, ask] })
    }

    fn end(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(outcome) => outcome?,
                Err(_) => bail!("a thread of the transfers panicked"),
            }
        }
        Ok(())
    }
}

impl Drop for Transfers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn down_and_up() -> Result<()> {
    let site = Site::build()?;
    let mut gateway = site.gateway()?;
    wait_ready(&mut gateway, &site.api, true)?;
    let transfers = Transfers::start(&site)?;
    wait(&mut gateway, "packets come", || Ok((site.packets()? > 50.0).then_some(())))?;

    site.server.ip(&["link set lan down"])?;
    let why = wait_ready(&mut gateway, &site.api, false)?;
    ensure!(why.contains("interface lan is down"), "{why}");
    ensure!(metric(&site.api, "spand_ready{part=\"capture\"}")? < 0.5);
    let before = site.packets()?;
    site.server.ip(&["link set lan up", &way_back()])?;
    wait_ready(&mut gateway, &site.api, true)?;
    wait(&mut gateway, "packets come again", || Ok((site.packets()? > before + 50.0).then_some(())))?;
    transfers.end()?;
    let log = gateway.log();
    let count = log.lines().filter(|line| line.contains("the interface went up or down")).count();
    ensure!(count == 2, "{count} lines report it:\n{log}");
    Ok(())
}

/// A disk for the store, in a mount namespace of this thread, which the gateway that it starts gets too.
fn small_disk(site: &Site) -> Result<PathBuf> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    let disk = site.folder.path("state");
    fs::create_dir(&disk)?;
    mount(Some("disk"), &disk, Some("tmpfs"), MsFlags::empty(), Some("size=16m"))?;
    Ok(disk)
}

fn full_disk() -> Result<()> {
    let site = Site::build()?;
    let disk = small_disk(&site)?;
    let mut gateway = site.gateway()?;
    wait_ready(&mut gateway, &site.api, true)?;
    let transfers = Transfers::start(&site)?;
    let saved = || metric(&site.api, "spand_store_networks_saved_total");
    wait(&mut gateway, "networks are saved", || Ok((saved()? > 0.5).then_some(())))?;

    let filler = disk.join("filler");
    fs::write(&filler, vec![0; 32 << 20]).err().context("the disk does not fill up")?;
    let why = wait_ready(&mut gateway, &site.api, false)?;
    ensure!(why.contains("store"), "{why}");
    ensure!(metric(&site.api, "spand_store_write_failures_total")? > 0.5, "no failure is counted");
    std::thread::sleep(Duration::from_secs(1));
    let log = gateway.log();
    let count = log.lines().filter(|line| line.contains("estimates not saved")).count();
    ensure!(count == 1, "{count} lines report it:\n{log}");
    let (status, _) = site.api.get("/v1/networks")?;
    ensure!(status == 200, "it does not answer meanwhile: {status}");

    fs::remove_file(&filler)?;
    let before = saved()?;
    wait_ready(&mut gateway, &site.api, true)?;
    wait(&mut gateway, "networks are saved again", || Ok((saved()? > before).then_some(())))?;
    transfers.end()?;
    let end = gateway.stop();
    ensure!(end.contains("exit status: 0"), "{end}");

    // The next start finds what was saved.
    let mut gateway = site.gateway()?;
    wait_ready(&mut gateway, &site.api, true)?;
    let log = gateway.log();
    ensure!(log.contains("restored 1 network (0 expired, 0 incompatible)"), "{log}");
    drop(gateway);
    umount2(&disk, MntFlags::MNT_DETACH)?;
    Ok(())
}

fn no_disk_at_start() -> Result<()> {
    let site = Site::build()?;
    let disk = small_disk(&site)?;
    let remount = |flags| mount(Some("disk"), &disk, Some("tmpfs"), MsFlags::MS_REMOUNT | flags, Some("size=16m"));
    let filler = disk.join("filler");
    let transfers = Transfers::start(&site)?;

    // Read-only, with nothing on it.
    remount(MsFlags::MS_RDONLY)?;
    starts_without_its_store(&site, "Read-only file system", || Ok(remount(MsFlags::empty())?))?;
    // Full before the store was made.
    fs::remove_dir_all(disk.join("store"))?;
    fill(&filler)?;
    starts_without_its_store(&site, "No space left on device", || Ok(fs::remove_file(&filler)?))?;
    // Full, and read-only, with what a killed gateway left.
    fill(&filler)?;
    starts_without_its_store(&site, "No space left on device", || Ok(fs::remove_file(&filler)?))?;
    remount(MsFlags::MS_RDONLY)?;
    starts_without_its_store(&site, "Read-only file system", || Ok(remount(MsFlags::empty())?))?;

    transfers.end()?;
    let mut gateway = site.gateway()?;
    wait_ready(&mut gateway, &site.api, true)?;
    let log = gateway.log();
    ensure!(log.contains("restored 1 network (0 expired, 0 incompatible)"), "{log}");
    drop(gateway);
    umount2(&disk, MntFlags::MNT_DETACH)?;
    Ok(())
}

/// To the last byte.
fn fill(file: &Path) -> Result<()> {
    fs::write(file, vec![0; 32 << 20]).err().context("the disk does not fill up")?;
    Ok(())
}

/// Starts a gateway whose store its disk keeps from being opened, lets the disk recover, and kills it.
fn starts_without_its_store(site: &Site, why: &str, recover: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut gateway = site.gateway()?;
    let reason = wait_ready(&mut gateway, &site.api, false)?;
    ensure!(reason.contains("store") && reason.contains(why), "{reason}");
    wait(&mut gateway, "the network is estimated", || {
        let (status, networks) = site.api.get("/v1/networks")?;
        Ok((status == 200 && networks.contains("203.0.113")).then_some(()))
    })?;
    ensure!(metric(&site.api, "spand_ready{part=\"store\"}")? < 0.5, "the metric does not show it");
    ensure!(metric(&site.api, "spand_store_networks_saved_total")? < 0.5, "it was saved");
    let log = gateway.log();
    let count = log.lines().filter(|line| line.contains(why)).count();
    ensure!(
        count == 1 && log.contains("the gateway starts cold, saves nothing, and tries again"),
        "{count} lines:\n{log}"
    );

    recover()?;
    wait_ready(&mut gateway, &site.api, true)?;
    wait(&mut gateway, "networks are saved", || {
        Ok((metric(&site.api, "spand_store_networks_saved_total")? > 0.5).then_some(()))
    })?;
    gateway.kill()
}
