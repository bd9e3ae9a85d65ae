//! Advice is turned off while the agent's configuration is at fault: that is when it may have to be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::Daemon;
use tokio::sync::watch;

use super::Case;
use super::partition::{NETWORK, serve};
use super::stage::{Folder, wait};

pub(super) const CASES: &[Case] = &[("advice goes off with a configuration that is at fault", off)];

/// The user `nobody`, which may not read what is root's alone.
const NOBODY: &str = "65534";

/// A host with an agent that keeps its state in the default folder. The host has its own mount namespace.
struct Site {
    host: Namespace,
    folder: Folder,
    agent: Daemon,
}

impl Site {
    fn build(stopped: watch::Receiver<bool>) -> Result<Self> {
        let host = Namespace::create("off")?;
        host.ip(&[
            "link add eth0 type veth peer name far",
            "link set eth0 up",
            "link set far up",
            "addr add 198.51.100.7/24 dev eth0",
            "route add default via 198.51.100.1",
        ])?;
        serve(&host, "127.0.0.1:7400", stopped)?;
        let folder = Folder::new()?;
        let config = "mode = \"paper\"\napply = \"route\"\n\n[holdout]\nfraction = 0.0\n\n[gateway]\nurl = \"http://127.0.0.1:7400\"\n";
        let config = folder.write("spand-agent.toml", config)?;
        let program = folder.path("spand-agent");
        let [config, program] = [&config, &program].map(|path| path.to_str().unwrap_or_default());
        let script = "mount -t tmpfs none /var/lib && exec \"$0\" \"$@\"";
        let within = ["--mount", "--propagation", "private", "sh", "-c", script, program, "run", "--config", config];
        let agent = Daemon::start("spand-agent", "unshare".as_ref(), &within, &host, &folder.path(""))?;
        Ok(Self { host, folder, agent })
    }

    /// A command of the agent's, where its files are, by a user.
    fn command(&self, user: &str, arguments: &[&str]) -> Result<Output> {
        let pid = self.agent.pid().to_string();
        let mut command = self.host.command("nsenter");
        command.args(["--target", &pid, "--mount", "--setgid", "0", "--setuid", user]);
        Ok(command.arg(self.folder.path("spand-agent")).args(arguments).output()?)
    }

    fn route(&self) -> Result<String> {
        route(&self.host)
    }

    fn wait_in_force(&mut self) -> Result<()> {
        let host = &self.host;
        wait(&mut self.agent, "advice is in force", || Ok(route(host)?.contains("initcwnd").then_some(())))
    }
}

/// A host's own route to the network, as the kernel has it.
fn route(host: &Namespace) -> Result<String> {
    let output = host.command("ip").args(["route", "show", NETWORK]).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn words(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

fn off() -> Result<()> {
    let (_stop, stopped) = watch::channel(false);
    let mut site = Site::build(stopped)?;
    site.wait_in_force()?;
    let typo = site.folder.write("typo.toml", "mode = \"paper\"\n\n[route]\nbatch_sm = 20\n")?;
    let secret = site.folder.write("secret.toml", "")?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let [typo, secret] = [&typo, &secret].map(|path| path.to_str().unwrap_or_default());
    let missing = "/nonexistent/agent.toml";
    for (file, user, fault) in [
        (typo, "0", "typo.toml, line 4: unknown field `batch_sm`"),
        (missing, "0", "/nonexistent/agent.toml: No such file"),
        (secret, NOBODY, "secret.toml: Permission denied"),
    ] {
        for arguments in [&["status"][..], &["pause"], &["undo", "--run"]] {
            let output = site.command(user, &[arguments, &["--config", file]].concat())?;
            ensure!(output.status.success(), "{arguments:?} with {file}: {}", words(&output));
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            let warned = stderr.starts_with("warning: ") && stderr.lines().count() == 1;
            ensure!(warned && stderr.contains(fault), "{arguments:?} with {file}: {stderr}");
            ensure!(stderr.contains("/var/lib/spand/agent/control.sock"), "it does not name the place: {stderr}");
            if arguments != ["status"] {
                // At its return: nothing is waited for.
                ensure!(site.route()?.is_empty(), "{arguments:?} leaves {}", site.route()?);
                let output = site.command(user, &["resume", "--config", file])?;
                ensure!(output.status.success(), "resume with {file}: {}", words(&output));
                site.wait_in_force()?;
            }
        }
        let explained = site.command(user, &["explain", "203.0.113.7", "--config", file])?;
        ensure!(words(&explained).contains("203.0.113.7: starts with 20 segments"), "{}", words(&explained));
    }
    elsewhere(&site, missing)
}

/// The socket decides where it is given; where no agent answers, the sentence names where that was tried and the way out.
fn elsewhere(site: &Site, missing: &str) -> Result<()> {
    let there = ["--config", missing, "--socket", "/var/lib/spand/agent/control.sock"];
    let output = site.command("0", &[&["pause"], &there[..]].concat())?;
    ensure!(output.status.success() && site.route()?.is_empty(), "{}", words(&output));
    let nowhere = ["--config", missing, "--socket", "/var/lib/none/control.sock"];
    let output = site.command("0", &[&["pause"], &nowhere[..]].concat())?;
    let text = words(&output);
    ensure!(output.status.code() == Some(1) && text.contains("nobody answers at /var/lib/none/control.sock"), "{text}");
    ensure!(text.contains("with --socket"), "{text}");

    // Outside of the mount namespace no agent answers in the default folder, and whether one runs is not known.
    let mut command = site.host.command(site.folder.path("spand-agent"));
    let output = command.args(["undo", "--run", "--config", missing]).output().context("undo")?;
    let text = words(&output);
    ensure!(output.status.code() == Some(1) && !text.contains("nothing is in force"), "{text}");
    ensure!(text.contains("/var/lib/spand/agent/control.sock") && text.contains("--socket"), "{text}");
    Ok(())
}
