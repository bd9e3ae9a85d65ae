//! Two gateways that share over NATS, confined as they run.

use std::fs;

use anyhow::{Context, Result, ensure};
use spand_tests::cluster;
use spand_tests::lab::link::{End, veth};
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::{Api, Daemon};

use super::Case;
use super::stage::{Folder, metric, wait, wait_ready};

pub(super) const CASES: &[Case] = &[("two gateways find each other over NATS, and go on without it", find_each_other)];

/// The configuration of a gateway: its number is in its ports, too.
fn config(number: u16) -> String {
    format!(
        "[capture]\ninterfaces = [\"tap{number}\"]\n\n[traffic]\ninternal = [\"198.51.100.0/24\"]\n\n[store]\nenabled = false\n\n\
         [api]\ngrpc_listen = \"127.0.0.1:740{number}\"\nhttp_listen = \"127.0.0.1:748{number}\"\n\n\
         [share]\nservers = [\"nats://127.0.0.1:4222\"]\ngateway = {number}\nsecret = \"share.secret\"\n"
    )
}

fn find_each_other() -> Result<()> {
    let Some(program) = cluster::program()? else { return Ok(()) };
    let (namespace, switch) = (Namespace::create("gateways")?, Namespace::create("switch")?);
    let mut running = Vec::new();
    for number in [1, 2] {
        let end = |namespace, device, station| End { namespace, device, station };
        let (mirror, tap) = (format!("mirror{number}"), format!("tap{number}"));
        veth(end(&switch, &mirror, 2 * number), end(&namespace, &tap, 2 * number + 1))?;
        let folder = Folder::new()?;
        folder.write("share.secret", "000102030405060708090a0b0c0d0e0f\n")?;
        let mut gateway = folder.start("spand-gateway", &config(number.into()), &namespace)?;
        let api = Api { namespace: namespace.clone(), address: format!("127.0.0.1:748{number}").parse()? };
        // It starts without the servers.
        wait_ready(&mut gateway, &api, true)?;
        ensure!(metric(&api, "spand_share_up")? < 0.5, "there is no server yet");
        running.push((gateway, api, folder));
    }
    let servers = Folder::new()?;
    fs::create_dir(servers.path("store"))?;
    let store = servers.path("store");
    let arguments = ["-js", "-a", "127.0.0.1", "-p", "4222", "-sd", store.to_str().context("a path")?];
    let server = Daemon::start("nats-server", &program, &arguments, &namespace, servers.path("").as_path())?;
    for (gateway, api, _) in &mut running {
        wait(gateway, "it shares with the other one", || {
            let found = [metric(api, "spand_share_up")?, metric(api, "spand_share_members")?];
            Ok(found.iter().all(|value| (value - 1.0).abs() < 0.5).then_some(()))
        })?;
        ensure!(gateway.log().contains("shares what it sees"), "{}", gateway.log());
    }
    drop(server);
    for (gateway, api, _) in &mut running {
        wait(gateway, "it notices that the server is gone", || {
            Ok((metric(api, "spand_share_up")? < 0.5).then_some(()))
        })?;
        wait_ready(gateway, api, true)?;
    }
    Ok(())
}
