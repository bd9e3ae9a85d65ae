//! The systemd units: how much they leave open, and that the programs do with the capabilities they are given.
//!
//! A program of its own, like the benefit test: started under the name of one of the product's programs it is that program.
//! Without root, or without systemd's or util-linux's tools, it says so, and counts what it could not check on standard error.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use spand_agent::control::{Reply, Request, ask};
use spand_gateway::config::{Config, EngineOptions, Memory};
use spand_needs::{Need, needs};
use spand_tests::lab::namespace::Namespace;
use spand_tests::patience::PATIENCE;
use spand_tests::product::Daemon;
use spand_tests::product::standing_in::{link_programs, stand_in};

/// Of each unit: the most exposure that it may have, in tenths by `systemd-analyze security`.
const UNITS: [(&str, u32); 2] = [("spand-gateway", 25), ("spand-agent", 40)];

fn main() -> ExitCode {
    stand_in().unwrap_or_else(|| {
        match exposure().and_then(|()| reloads()).and_then(|()| memory()).and_then(|()| privileges()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        }
    })
}

fn unit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../packaging/systemd/{name}.service"))
}

fn exposure() -> Result<()> {
    for (name, most) in UNITS {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=true", "--no-pager"]).arg(format!("--threshold={most}")).arg(unit(name));
        if !needs(Need::Program("systemd-analyze")) {
            continue;
        }
        let output = analyze.output()?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let level = stdout.lines().last().unwrap_or_default();
        println!("{level}");
        ensure!(output.status.success(), "more than {}.{} of exposure: {level}", most / 10, most % 10);
    }
    Ok(())
}

/// A file that cannot be used is refused by `systemctl reload` itself; one that can is read by the program.
fn reloads() -> Result<()> {
    for (name, _) in UNITS {
        let text = fs::read_to_string(unit(name))?;
        let given: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("ExecReload=")).collect();
        let file = name.trim_start_matches("spand-");
        let check = format!("/usr/bin/{name} check-config /etc/spand/{file}.toml");
        ensure!(given == [check.as_str(), "/bin/kill -HUP $MAINPID"], "{name}.service reloads by {given:?}");
    }
    Ok(())
}

/// The gateway's `MemoryMax=` is above the sum of its default limits by a tenth at least, which the allocator and the kernel's
/// accounts of sockets may take, and by two fifths at most.
fn memory() -> Result<()> {
    let text = fs::read_to_string(unit("spand-gateway"))?;
    let most = text.lines().find_map(|line| line.strip_prefix("MemoryMax=")?.strip_suffix('M'));
    let most_mib: usize = most.context("spand-gateway.service has no MemoryMax= in M")?.parse()?;
    let config = Config::default();
    let sum_mib = Memory::of(&config, &config.engine(EngineOptions::default())?).total_mib();
    println!("MemoryMax= of {most_mib} MiB, limits of {sum_mib} MiB");
    ensure!(
        (sum_mib * 11 / 10..=sum_mib * 14 / 10).contains(&most_mib),
        "MemoryMax= of {most_mib} MiB does not fit limits of {sum_mib} MiB together"
    );
    Ok(())
}

/// The capabilities of a unit's line, as `setpriv` names them.
fn capabilities(name: &str) -> Result<String> {
    let text = fs::read_to_string(unit(name))?;
    let given = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_lowercase);
    let ambient = given("AmbientCapabilities=").with_context(|| format!("{name}.service gives no capabilities"))?;
    ensure!(given("CapabilityBoundingSet=").as_deref() == Some(&ambient), "{name}.service bounds others than it gives");
    Ok(ambient.split(' ').map(|one| one.replace("cap_", ",+")).collect())
}

/// Both programs, with no capability but their unit's.
fn privileges() -> Result<()> {
    if !needs(Need::Root) || !needs(Need::Program("setpriv")) {
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let folder = scratch.path();
    link_programs(folder)?;
    let namespace = Namespace::create("units")?;
    // An agent subscribes for the addresses that others reach its host by.
    namespace.ip(&["addr add 198.51.100.1/32 dev lo"])?;
    let mut daemons = Vec::new();
    let configs = [
        "[capture]\ninterfaces = [\"lo\"]\n\n[store]\ndirectory = \"store\"\n\n[api]\ngrpc_socket = \"gateway.sock\"\n"
            .to_owned(),
        format!(
            "apply = \"bpf\"\nstate_dir = \"agent\"\n\n[bpf]\nname = \"u{}\"\n\n[destinations]\ninclude = \
             [\"192.0.2.0/24\"]\n\n[gateway]\nurl = \"unix:{}/gateway.sock\"\n",
            std::process::id(),
            text(folder)?
        ),
    ];
    for ((name, _), config) in UNITS.into_iter().zip(configs) {
        let (program, file) = (folder.join(name), folder.join(format!("{name}.toml")));
        fs::write(&file, config)?;
        let bounds = format!("--bounding-set=-all{}", capabilities(name)?);
        let (program, file) = (text(&program)?, text(&file)?);
        let arguments = [&bounds, "--inh-caps=-all", "--no-new-privs", program, "run", "--config", file];
        daemons.push(Daemon::start(name, Path::new("setpriv"), &arguments, &namespace, folder)?);
    }
    wait(&mut daemons, || namespace.enter(|| ready("127.0.0.1:7480")))?;
    wait(&mut daemons, || match ask(&folder.join("agent/control.sock"), &Request::Status) {
        Ok(Reply::Status(status)) => Ok(status.gateway.connected),
        _ => Ok(false),
    })?;
    for daemon in daemons.into_iter().rev() {
        println!("{}", daemon.stop());
    }
    let log = fs::read_to_string(folder.join("spand-gateway.log"))?;
    ensure!(log.contains("stopped") && !log.contains("cut off"), "the gateway did not stop in order:\n{log}");
    println!("units: passed");
    Ok(())
}

/// Whether a gateway says that it captures, computes and stores.
fn ready(address: &str) -> Result<bool> {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect(address) else { return Ok(false) };
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.starts_with("HTTP/1.1 200"))
}

fn wait(daemons: &mut [Daemon], mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        daemons.iter_mut().try_for_each(Daemon::check)?;
        if done()? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(50));
    }
    let logs: Vec<String> = daemons.iter().map(Daemon::log_end).collect();
    bail!("not ready within {PATIENCE:?}:\n{}", logs.join("\n"))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
