//! Another user's process on the gateway's port of loopback, before the gateway is there: with the programs' defaults nobody asks it.

use std::process::Output;

use anyhow::{Result, ensure};
use spand_agent::control::{Reply, Request, Status, ask};
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::Daemon;
use tokio::sync::watch;

use super::Case;
use super::partition::serve;
use super::stage::{Folder, wait};

pub(super) const CASES: &[Case] = &[("a stranger on the gateway's port of loopback", stranger)];

/// The user `nobody`, in no group of those who may ask.
const NOBODY: &str = "65534";

fn stranger() -> Result<()> {
    let host = Namespace::create("stranger")?;
    host.ip(&["addr add 198.51.100.7/32 dev lo"])?;
    let (_stop, stopped) = watch::channel(false);
    let stranger = serve(&host, "127.0.0.1:7400", stopped)?.published;

    let folder = Folder::new()?;
    let path = |name: &str| folder.path(name).to_string_lossy().into_owned();
    folder
        .write("spand-agent.toml", "apply = \"dry_run\"\nstate_dir = \"state\"\n\n[gateway]\nretry_max_ms = 200\n")?;
    folder.write("spand-gateway.toml", "[capture]\ninterfaces = [\"lo\"]\n\n[store]\nenabled = false\n")?;
    let [agent_toml, gateway_toml] = ["spand-agent.toml", "spand-gateway.toml"].map(path);
    let [agent, gateway] = ["spand-agent", "spand-gateway"].map(path);
    // The default socket, of these two alone.
    let script = "mount -t tmpfs -o mode=0755 none /run && exec \"$0\" \"$@\"";
    let within = ["--mount", "--propagation", "private", "sh", "-c", script, &agent, "run", "--config", &agent_toml];
    let mut agent = Daemon::start("spand-agent", "unshare".as_ref(), &within, &host, &folder.path(""))?;
    let status = |wanted: fn(&Status) -> bool| match ask(&folder.path("state/control.sock"), &Request::Status) {
        Ok(Reply::Status(status)) => Ok(Some(*status).filter(wanted)),
        _ => Ok(None),
    };
    let alone = wait(&mut agent, "it finds no gateway", || status(|status| status.gateway.last_error.is_some()))?;
    ensure!(!alone.gateway.connected && alone.networks_held == 0, "{:?}", alone.gateway);

    let pid = agent.pid().to_string();
    let within = ["--target", &pid, "--mount", &gateway, "run", "--config", &gateway_toml];
    let gateway = Daemon::start("spand-gateway", "nsenter".as_ref(), &within, &host, &folder.path(""))?;
    let there = wait(&mut agent, "it asks the gateway", || status(|status| status.gateway.connected))?;
    ensure!(there.gateway.url == "unix:/run/spand/gateway.sock" && there.networks_held == 0, "{:?}", there.gateway);
    ensure!(stranger.subscriber_count() == 0, "the agent subscribed at the stranger");

    let query = |user: &str| -> Result<Output> {
        let mut command = host.command("nsenter");
        command.args(["--target", &pid, "--mount", "--setgid", user, "--setuid", user]);
        Ok(command.arg(path("spand-agent")).args(["query", "203.0.113.7", "--config", &agent_toml]).output()?)
    };
    let refused = query(NOBODY)?;
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(!refused.status.success() && words.contains("or as a member of the socket's group"), "{words}");
    let asked = query("0")?;
    ensure!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let end = gateway.stop();
    ensure!(end.contains("exit status: 0"), "{end}");
    let gone = query("0")?;
    let words = String::from_utf8_lossy(&gone.stderr).into_owned();
    ensure!(words.contains("No such file"), "the socket is left: {words}");
    Ok(())
}
