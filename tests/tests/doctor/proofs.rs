//! The gateway's doctor at a gateway that asks for TLS and a password.

use std::io::Write;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use spand_gateway::api::password_line;
use spand_tests::access::Authority;
use spand_tests::lab::namespace::Namespace;
use spand_tests::patience::PATIENCE;
use spand_tests::product::Daemon;

use super::{Case, Findings, Folder};

pub(super) const CASES: &[Case] = &[("a gateway behind TLS and a password", proven)];

const CONFIG: &str = "[capture]\ninterfaces = [\"lo\"]\n\n[traffic]\ninternal = [\"127.0.0.0/8\"]\n\n[store]\ndirectory = \
                      \"store\"\n\n[api]\ngrpc_listen = \"127.0.0.1:7400\"\n\n[tls]\ncertificate = \"gateway.pem\"\nkey = \"gateway.key\"\n\n[admin]\ntls = \
                      true\npasswords = \"passwords\"\n";

/// What the doctor says to a person who gives this password.
fn asked(folder: &Folder, namespace: &Namespace, password: Option<&str>) -> Result<Findings> {
    let mut arguments = vec!["doctor", "--json", "--seconds", "1"];
    arguments.extend(password.iter().flat_map(|_| ["--user", "duty"]));
    let mut command = folder.command(namespace, "spand-gateway", &arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if let Some(password) = password {
        writeln!(child.stdin.take().context("no standard input")?, "{password}")?;
    }
    Findings::of(&child.wait_with_output()?)
}

fn proven() -> Result<()> {
    let (namespace, folder) = (Namespace::create("gateway")?, Folder::new()?);
    let authority = Authority::new("gateways")?;
    // Neither its name nor its end matters to who has the certificate before them.
    authority.make(&["gateway.example.org"])?.write(folder.0.path(), "gateway")?;
    authority.make(&["gateway.example.org"])?.write(folder.0.path(), "other")?;
    let line = password_line("duty", "correct horse battery").map_err(|error| anyhow::anyhow!("{error}"))?;
    folder.write("passwords", &format!("{line}\n"))?;
    folder.write("spand-gateway.toml", CONFIG)?;
    let config = folder.path("spand-gateway.toml");
    let arguments = ["run", "--config", config.to_str().context("a name in UTF-8")?];
    let mut daemon = Daemon::start("gateway", &folder.path("spand-gateway"), &arguments, &namespace, folder.0.path())?;

    let patience = Instant::now() + PATIENCE;
    let found = loop {
        daemon.check()?;
        let found = asked(&folder, &namespace, None)?;
        if found.has("ready", "ok", "").is_ok() {
            break found;
        }
        if Instant::now() > patience {
            bail!("it does not get ready: {found:?}");
        }
    };
    found.has("gateway", "ok", "running, answers on")?;
    found.has("traffic", "unknown", "--user")?;
    found.faults(&[])?;

    let found = asked(&folder, &namespace, Some("correct horse battery"))?;
    found.has("gateway", "ok", "running, answers on")?;
    found.has("ready", "ok", "")?;
    found.has("drops", "ok", "")?;
    let found = asked(&folder, &namespace, Some("another"))?;
    found.has("gateway", "unknown", "wrong name or password")?;

    // Another program that listens there instead of the gateway gets no password.
    folder.write("spand-gateway.toml", &CONFIG.replace("\"gateway.", "\"other."))?;
    let found = asked(&folder, &namespace, Some("correct horse battery"))?;
    found.has("gateway", "unknown", "its certificate is not the one in tls.certificate")?;
    Ok(())
}
