//! What a running gateway may do, and that it goes on to do what it must.

use std::fs;
use std::os::unix::fs::symlink;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::User;
use spand_tests::access::Authority;
use spand_tests::lab::link::{End, veth};
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::{Api, Daemon};

use super::Case;
use super::stage::{Folder, metric, threads, wait, wait_ready};

pub(super) const CASES: &[Case] = &[
    ("a gateway started as root drops root and everything else", becomes_another),
    ("a gateway that stays root drops everything else", stays_root),
    ("a gateway configured to keep its privileges", keeps_all),
    ("a user who is not there is a fault of the configuration", nobody),
];

/// Where people ask.
const HTTP: &str = "127.0.0.1:7480";
/// `CAP_NET_RAW`.
const NET_RAW: u64 = 1 << 13;

/// A namespace with a mirror port, whose other end is in `switch`.
fn site() -> Result<(Namespace, Namespace)> {
    let (gateway, switch) = (Namespace::create("gateway")?, Namespace::create("switch")?);
    plug(&gateway, &switch)?;
    Ok((gateway, switch))
}

fn plug(gateway: &Namespace, switch: &Namespace) -> Result<()> {
    let end = |namespace, device, station| End { namespace, device, station };
    veth(end(switch, "mirror", 1), end(gateway, "tap", 2))
}

fn api(namespace: &Namespace) -> Result<Api> {
    Ok(Api { namespace: namespace.clone(), address: HTTP.parse()? })
}

const CONFIG: &str = "[capture]\ninterfaces = [\"tap\"]\nretry_s = 1\n\n[traffic]\ninternal = [\"198.51.100.0/24\"]\n\n\
                      [api]\ngrpc_listen = \"127.0.0.1:7400\"\n\n\
                      [store]\ndirectory = \"state/store\"\n\n";

/// What `/proc` says of each thread.
fn is_confined(daemon: &Daemon, uid: u32) -> Result<()> {
    let mut captures = 0;
    for thread in threads(daemon.pid())? {
        let is_capture = thread.name.starts_with("capture-");
        captures += usize::from(is_capture);
        thread.is_confined(if is_capture { NET_RAW } else { 0 }, 0)?;
        ensure!(thread.field("Uid")? == uid.to_string(), "{} runs as {}", thread.name, thread.field("Uid")?);
    }
    ensure!(captures == 1, "{captures} threads capture");
    Ok(())
}

/// The limit of open files that is in force is the highest that it may have.
fn may_open_many(daemon: &Daemon) -> Result<()> {
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.pid()))?;
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).context("no limit of files")?;
    let [soft, hard, ..] = files.split_whitespace().collect::<Vec<_>>()[..] else { bail!("{files}") };
    ensure!(soft == hard, "{soft} files may be open, of {hard}");
    Ok(())
}

fn becomes_another() -> Result<()> {
    let (namespace, switch) = site()?;
    let folder = Folder::new()?;
    // Not below the folder of the configuration, which stays readable for SIGHUP.
    let elsewhere = Folder::new()?;
    fs::create_dir(folder.path("tls"))?;
    let authority = Authority::new("agents")?;
    authority.make(&["localhost"])?.write(&folder.path("tls"), "gateway")?;
    authority.make(&["localhost"])?.write(&elsewhere.path(""), "gateway")?;
    folder.write("tls/ca.pem", &authority.certificate())?;
    let tls = "[tls]\ncertificate = \"tls/gateway.pem\"\nkey = \"tls/gateway.key\"\nca = \"tls/ca.pem\"\n\n";
    let config = format!("{CONFIG}{tls}[process]\nuser = \"nobody\"\n");
    let mut gateway = folder.start("spand-gateway", &config, &namespace)?;
    let api = api(&namespace)?;
    wait_ready(&mut gateway, &api, true)?;
    let nobody = User::from_name("nobody")?.context("there is no user `nobody`")?.uid.as_raw();
    is_confined(&gateway, nobody)?;
    for part in ["user", "capabilities", "no_new_privileges", "files", "tcp", "signals", "system_calls"] {
        let name = format!("spand_confined{{part=\"{part}\"}}");
        ensure!(metric(&api, &name)? > 0.5, "{name} is 0:\n{}", gateway.log());
    }

    // New files in the place of the old ones come into force ...
    let made = authority.make(&["localhost"])?;
    made.write(&folder.path("tls"), "new")?;
    for end in ["pem", "key"] {
        fs::rename(folder.path(&format!("tls/new.{end}")), folder.path(&format!("tls/gateway.{end}")))?;
    }
    wait(&mut gateway, "TLS files reloaded", || Ok((metric(&api, "spand_tls_reloads_total")? > 0.5).then_some(())))?;
    // ... and those of another folder, which everyone may read, are out of reach.
    fs::remove_file(folder.path("tls/gateway.pem"))?;
    symlink(elsewhere.path("gateway.pem"), folder.path("tls/gateway.pem"))?;
    wait(&mut gateway, "a file of another folder is refused", || {
        Ok((metric(&api, "spand_tls_reload_failures_total")? > 0.5).then_some(()))
    })?;
    let log = gateway.log();
    ensure!(log.contains("tls/gateway.pem (tls.certificate): Permission denied"), "{log}");

    // The mirror port is unplugged and plugged in again: it is opened again, by a process that is not root any more.
    switch.ip(&["link del mirror"])?;
    let why = wait_ready(&mut gateway, &api, false)?;
    ensure!(why.contains("capture"), "{why}");
    plug(&namespace, &switch)?;
    wait_ready(&mut gateway, &api, true)?;
    ensure!(metric(&api, "spand_capture_losses_total{interface=\"tap\"}")? > 0.5, "nothing was lost");
    is_confined(&gateway, nobody)?;
    let store = fs::metadata(folder.path("state/store"))?;
    ensure!(std::os::unix::fs::MetadataExt::uid(&store) == nobody, "the store is another's");
    let end = gateway.stop();
    ensure!(end.contains("exit status: 0"), "{end}");
    Ok(())
}

fn stays_root() -> Result<()> {
    let (namespace, _switch) = site()?;
    let folder = Folder::new()?;
    let mut gateway = folder.start("spand-gateway", CONFIG, &namespace)?;
    let api = api(&namespace)?;
    wait_ready(&mut gateway, &api, true)?;
    is_confined(&gateway, 0)?;
    may_open_many(&gateway)?;
    ensure!(
        metric(&api, "spand_confined{part=\"user\"}")? < 0.5 && metric(&api, "spand_confined{part=\"files\"}")? > 0.5
    );
    let log = gateway.log();
    ensure!(log.matches("running as root; set process.user").count() == 1, "{log}");
    Ok(())
}

fn keeps_all() -> Result<()> {
    let (namespace, _switch) = site()?;
    let folder = Folder::new()?;
    let mut gateway = folder.start("spand-gateway", &format!("{CONFIG}[process]\nconfine = false\n"), &namespace)?;
    let api = api(&namespace)?;
    wait_ready(&mut gateway, &api, true)?;
    for thread in threads(gateway.pid())? {
        let filter = thread.field("Seccomp")?;
        ensure!(thread.set("CapEff")? != 0 && filter == "0", "{} has dropped something", thread.name);
    }
    ensure!(metric(&api, "spand_confined{part=\"capabilities\"}")? < 0.5);
    ensure!(gateway.log().contains("process.confine is off"), "{}", gateway.log());
    Ok(())
}

fn nobody() -> Result<()> {
    let (namespace, _switch) = site()?;
    let folder = Folder::new()?;
    let config = folder.write("spand-gateway.toml", &format!("{CONFIG}[process]\nuser = \"no-such-user\"\n"))?;
    let output = namespace.command(folder.path("spand-gateway")).arg("run").arg("--config").arg(config).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(64) && stderr.contains("error: process.user `no-such-user`"), "{stderr}");
    Ok(())
}
