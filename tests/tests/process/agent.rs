//! What a running agent may do, by its apply method.

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User};
use spand_agent::control::{Reply, Request, Status, ask};
use spand_tests::lab::namespace::Namespace;
use spand_tests::product::{Api, Daemon};

use super::Case;
use super::stage::{Folder, children, threads, wait};

pub(super) const CASES: &[Case] = &[
    ("an agent that applies nothing keeps no capability", dry_run),
    ("an agent with kernel programs keeps what those need, as another user", bpf),
    ("an agent with routes keeps CAP_NET_ADMIN, and so does its guard, also a new one", route),
];

/// capabilities(7).
const NET_ADMIN: u64 = 1 << 12;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

struct Running {
    daemon: Daemon,
    status: Status,
    folder: Folder,
    namespace: Namespace,
}

fn started(config: &str) -> Result<Running> {
    let namespace = Namespace::create("agent")?;
    namespace.ip(&["addr add 198.51.100.1/32 dev lo"])?;
    let folder = Folder::new()?;
    let more = "\n[gateway]\nurl = \"http://127.0.0.1:7400\"\n\n[destinations]\ninclude = [\"192.0.2.0/24\"]\n";
    let config = format!("state_dir = \"state/agent\"\n{config}{more}");
    let mut daemon = folder.start("spand-agent", &config, &namespace)?;
    let socket = folder.path("state/agent/control.sock");
    let status = wait(&mut daemon, "the agent answers", || match ask(&socket, &Request::Status) {
        Ok(Reply::Status(status)) => Ok(Some(*status)),
        _ => Ok(None),
    })?;
    Ok(Running { daemon, status, folder, namespace })
}

fn is_confined(process: u32, capabilities: u64, handed_on: u64) -> Result<()> {
    threads(process)?.iter().try_for_each(|thread| thread.is_confined(capabilities, handed_on))
}

fn dry_run() -> Result<()> {
    let agent = started("apply = \"dry_run\"\n\n[metrics]\nlisten = \"127.0.0.1:7481\"\n")?;
    is_confined(agent.daemon.pid(), 0, 0)?;
    let scraped = Api { namespace: agent.namespace.clone(), address: "127.0.0.1:7481".parse()? };
    let (code, numbers) = scraped.get("/metrics")?;
    ensure!(code == 200 && numbers.contains("\nspand_agent_gateway_connected 0\n"), "{code}: {numbers}");
    let (code, way_out) = scraped.get("/")?;
    ensure!(code == 404 && way_out.contains("/metrics"), "{code}: {way_out}");
    let kept: Vec<_> = agent.status.sandbox.iter().filter(|(_, dropped)| !**dropped).collect();
    ensure!(kept == [(&"user".to_owned(), &false)], "{:?}", agent.status.sandbox);
    ensure!(agent.daemon.log().matches("running as root; set process.user").count() == 1, "{}", agent.daemon.log());
    Ok(())
}

fn bpf() -> Result<()> {
    let name = format!("p{}", std::process::id());
    let config = format!("apply = \"bpf\"\n\n[process]\nuser = \"nobody\"\n\n[bpf]\nname = \"{name}\"\n");
    let mut agent = started(&config)?;
    let process = agent.daemon.pid();
    // A thread gives itself its name, once it runs.
    let all = wait(&mut agent.daemon, "a thread reads events", || {
        let all = threads(process)?;
        Ok(all.iter().any(|thread| thread.name == "bpf-events").then_some(all))
    })?;
    is_confined(process, NET_ADMIN | PERFMON | BPF, 0)?;
    let nobody = User::from_name("nobody")?.context("there is no user `nobody`")?.uid.to_string();
    for thread in all {
        ensure!(thread.field("Uid")? == nobody, "{} runs as {}", thread.name, thread.field("Uid")?);
    }
    ensure!(agent.status.sandbox.values().all(|dropped| *dropped), "{:?}", agent.status.sandbox);
    let end = agent.daemon.stop();
    ensure!(end.contains("exit status: 0"), "{end}");
    ensure!(!agent.folder.path("state/agent/control.sock").exists(), "the control socket is left behind");
    Ok(())
}

fn route() -> Result<()> {
    let mut agent = started("apply = \"route\"\n")?;
    let process = agent.daemon.pid();
    is_confined(process, NET_ADMIN, NET_ADMIN)?;
    let guards = children(process)?;
    let &[guard] = guards.as_slice() else { anyhow::bail!("not one guard: {guards:?}") };
    // The guard starts as root's program: no more than its parent has it must have all the same.
    is_confined(guard, NET_ADMIN, NET_ADMIN)?;
    kill(Pid::from_raw(i32::try_from(guard)?), Signal::SIGKILL)?;
    let next = wait(&mut agent.daemon, "the guard is started again", || {
        Ok(children(process)?.into_iter().find(|child| *child != guard && threads(*child).is_ok()))
    })?;
    is_confined(next, NET_ADMIN, NET_ADMIN)?;
    let end = agent.daemon.stop();
    ensure!(end.contains("exit status: 0"), "{end}");
    Ok(())
}
