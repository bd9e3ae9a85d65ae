//! A gateway that has a name: where that leads elsewhere, a confined agent finds it at its next attempt.

use std::fs;

use anyhow::{Context, Result, ensure};
use spand_agent::control::{Reply, Request, Status, ask};
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::Daemon;
use tokio::sync::watch;

use super::Case;
use super::partition::serve;
use super::stage::{Folder, wait};

pub(super) const CASES: &[Case] = &[
    ("the gateway's name leads to another address", renamed),
    ("explain prints what docs/operate/agent.md shows", explained),
];

const NAME: &str = "gateway.spand.test";

/// A machine whose `/etc` is a folder of this test's, in a mount namespace of the agent's own.
struct Site {
    namespace: Namespace,
    folder: Folder,
}

impl Site {
    fn build() -> Result<Self> {
        let namespace = Namespace::create("named")?;
        namespace.ip(&["addr add 198.51.100.1/32 dev lo"])?;
        let site = Self { namespace, folder: Folder::new()? };
        fs::create_dir(site.folder.path("etc"))?;
        for (name, text) in [("nsswitch.conf", "hosts: files\n"), ("resolv.conf", "nameserver 127.0.0.1\n")] {
            site.folder.write(&format!("etc/{name}"), text)?;
        }
        // What the loader looks libraries up in, where there is one.
        _ = fs::copy("/etc/ld.so.cache", site.folder.path("etc/ld.so.cache"));
        Ok(site)
    }

    /// Has the name lead to this address, by another file in the place of the one before, as editors and resolvers do it.
    fn lead_to(&self, address: &str) -> Result<()> {
        let new = self.folder.write("etc/hosts.new", &format!("{address} {NAME}\n"))?;
        fs::rename(new, self.folder.path("etc/hosts")).context("cannot replace the table of hosts")
    }

    fn agent(&self) -> Result<Daemon> {
        let config = format!(
            "mode = \"observe\"\napply = \"dry_run\"\nstate_dir = \"state\"\n\n[gateway]\nurl = \"http://{NAME}:7400\"\nplain_text = true\n\
             retry_max_ms = 500\n\n[holdout]\nfraction = 0.0\n"
        );
        let config = self.folder.write("spand-agent.toml", &config)?;
        let (etc, program) = (self.folder.path("etc"), self.folder.path("spand-agent"));
        let [etc, program, config] = [&etc, &program, &config].map(|path| path.to_str().unwrap_or_default());
        let script = format!("mount --bind {etc} /etc && exec \"$0\" \"$@\"");
        let within = ["--mount", "--propagation", "private", "sh", "-c", &script, program, "run", "--config", config];
        Daemon::start("spand-agent", "unshare".as_ref(), &within, &self.namespace, &self.folder.path(""))
    }

    fn status(&self) -> Option<Status> {
        match ask(&self.folder.path("state/control.sock"), &Request::Status) {
            Ok(Reply::Status(status)) => Some(*status),
            _ => None,
        }
    }
}

/// The example of the page is what the program prints, but for the two ages in it.
fn explained() -> Result<()> {
    let without_age = |line: String, words: &str| match line.split_once(words) {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            format!("{before}{words}N{rest}")
        }
        None => line,
    };
    let settled = |text: &str| {
        let line = |line: &str| without_age(without_age(line.to_owned(), "newest sample "), "expires in ");
        text.trim().lines().map(line).collect::<Vec<_>>().join("\n")
    };
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/agent.md"))?;
    let example: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("    $ spand-agent explain 203.0.113.7"))
        .skip(1)
        .map_while(|line| line.strip_prefix("    "))
        .collect();

    let site = Site::build()?;
    let (_stop, stopped) = watch::channel(false);
    let _published = serve(&site.namespace, "127.0.0.2:7400", stopped)?;
    site.lead_to("127.0.0.2")?;
    let mut agent = site.agent()?;
    wait(&mut agent, "it holds advice", || Ok(site.status().filter(|status| status.networks_held == 1)))?;
    let config = site.folder.path("spand-agent.toml");
    let mut command = site.namespace.command(site.folder.path("spand-agent"));
    let output = command.args(["explain", "203.0.113.7", "--config"]).arg(config).output()?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(settled(&printed) == settled(&example.join("\n")), "docs/operate/agent.md does not show this:\n{printed}");
    Ok(())
}

fn renamed() -> Result<()> {
    let site = Site::build()?;
    let (stop, stopped) = watch::channel(false);
    let first = serve(&site.namespace, "127.0.0.2:7400", stopped)?.published;
    site.lead_to("127.0.0.2")?;
    let mut agent = site.agent()?;
    wait(&mut agent, "it is subscribed", || Ok(site.status().filter(|status| status.gateway.connected)))?;
    ensure!(first.subscriber_count() == 1);
    let confined = site.status().map(|status| status.sandbox).unwrap_or_default();
    ensure!(confined.get("files") == Some(&true) && confined.get("system_calls") == Some(&true), "{confined:?}");

    // The name leads nowhere for a while: an attempt fails for that reason, which is logged.
    fs::remove_file(site.folder.path("etc/hosts"))?;
    stop.send_replace(true);
    wait(&mut agent, "the name cannot be resolved", || {
        let status = site.status().filter(|status| !status.gateway.connected);
        Ok(status.filter(|status| status.gateway.last_error.as_deref().is_some_and(|why| why.contains(NAME))))
    })?;
    let (_stop, stopped) = watch::channel(false);
    let second = serve(&site.namespace, "127.0.0.3:7400", stopped)?.published;
    site.lead_to("127.0.0.3")?;
    let status = wait(&mut agent, "it is subscribed again", || Ok(site.status().filter(|s| s.gateway.connected)))?;
    ensure!((second.subscriber_count(), status.gateway.connections) == (1, 2), "{:?}", status.gateway);
    let log = agent.log();
    ensure!(log.matches("lost the gateway; ").count() == 1, "{log}");
    ensure!(log.matches("subscribed again after ").count() == 1, "{log}");
    let end = agent.stop();
    ensure!(end.contains("exit status: 0"), "{end}");
    Ok(())
}
