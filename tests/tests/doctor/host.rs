//! The agent's doctor on hosts of every kind.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use spand_tests::lab::namespace::Namespace;
use spand_tests::patience::PATIENCE;
use spand_tests::product::Daemon;

use super::{Case, Findings, Folder};

pub(super) const CASES: &[Case] = &[
    ("a sound host with its gateway", sound),
    ("no gateway, another congestion control, someone's routes, a file as directory", faults),
    ("a kernel without type information and cgroups", bare),
    ("no configuration in the usual place", without_configuration),
    ("what a network namespace does not show of the kernel", namespaced),
];

/// A host with one address and a default route, and an agent's configuration.
struct Host {
    namespace: Namespace,
    folder: Folder,
}

impl Host {
    fn build(top: &str) -> Result<Self> {
        let namespace = Namespace::create("host")?;
        namespace.ip(&[
            "link add eth0 type veth peer name far",
            "link set eth0 up",
            "link set far up",
            "addr add 198.51.100.7/24 dev eth0",
            "route add default via 198.51.100.1",
        ])?;
        namespace.default_congestion_control("cubic")?;
        let folder = Folder::new()?;
        folder.write(
            "spand-agent.toml",
            &format!("{top}\n[gateway]\nurl = \"http://127.0.0.1:7400\"\ntimeout_ms = 1000\n"),
        )?;
        Ok(Self { namespace, folder })
    }

    fn doctor(&self) -> Result<Findings> {
        self.folder.doctor(&self.namespace, "spand-agent", &[])
    }
}

fn sound() -> Result<()> {
    let host = Host::build("state_dir = \"state\"\napply = \"bpf\"\n")?;
    host.folder.write(
        "spand-gateway.toml",
        "[capture]\ninterfaces = [\"eth0\"]\n\n[store]\nenabled = false\n\n[api]\ngrpc_listen = \"127.0.0.1:7400\"\n",
    )?;
    let config = host.folder.path("spand-gateway.toml");
    let config = config.to_str().context("a name in UTF-8")?;
    let program = host.folder.path("spand-gateway");
    let mut daemon =
        Daemon::start("gateway", &program, &["run", "--config", config], &host.namespace, host.folder.0.path())?;
    let patience = Instant::now() + PATIENCE;
    let found = loop {
        daemon.check()?;
        let found = host.doctor()?;
        if found.code == Some(0) || Instant::now() > patience {
            break found;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let log = daemon.stop();
    found.faults(&[]).with_context(|| log)?;
    found.has("gateway", "ok", "http://127.0.0.1:7400 answers")?;
    found.has("clock", "ok", "0 s apart").or(found.has("clock", "ok", "1 s apart"))?;
    for name in ["btf", "cgroup_v2", "congestion_control", "capabilities", "state_dir", "addresses", "routes_of_others"]
    {
        found.has(name, "ok", "")?;
    }
    found.has("agent", "warn", "no agent answers")
}

fn faults() -> Result<()> {
    let host = Host::build("state_dir = \"spand-agent.toml/state\"\napply = \"bpf\"\nbpf.bbr = \"window\"\n")?;
    host.namespace.default_congestion_control("bbr")?;
    host.namespace.sysctl("ipv4/tcp_slow_start_after_idle", "0")?;
    host.namespace.ip(&[
        "route add 192.0.2.0/24 via 198.51.100.1 initcwnd 40",
        "route add 203.0.113.0/24 via 198.51.100.1 proto 83 metric 21328 initcwnd 20",
    ])?;
    let found = host.doctor()?;
    found.has("gateway", "fail", "Connection refused")?;
    found.has("congestion_control", "warn", "the default is bbr")?;
    found.has("slow_start_after_idle", "warn", "idle")?;
    found.has("routes_of_others", "warn", "192.0.2.0/24 has initcwnd 40")?;
    found.has("routes_of_ours", "fail", "undo --run")?;
    found.faults(&["state_dir", "routes_of_ours", "gateway"])?;
    let routes = host.namespace.command("ip").args(["route", "show"]).output()?;
    let routes = String::from_utf8_lossy(&routes.stdout).into_owned();
    ensure!(routes.contains("initcwnd 40") && routes.contains("initcwnd 20"), "it changed the routes: {routes}");
    Ok(())
}

/// What is missing is hidden in a mount namespace.
fn bare() -> Result<()> {
    let host = Host::build("state_dir = \"state\"\napply = \"bpf\"\n")?;
    let (program, config) = (host.folder.path("spand-agent"), host.folder.path("spand-agent.toml"));
    let hide = "mount -t tmpfs none /sys/kernel/btf && umount --all --types cgroup2 && exec \"$0\" \"$@\"";
    let mut command: Command = host.namespace.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", hide]);
    let output = command.arg(program).args(["doctor", "--json", "--config"]).arg(config).output()?;
    let found = Findings::of(&output)?;
    found.has("btf", "fail", "CONFIG_DEBUG_INFO_BTF")?;
    found.has("cgroup_v2", "fail", "mount -t cgroup2")?;
    found.has("kernel_programs", "fail", "CONFIG_DEBUG_INFO_BTF")?;
    found.faults(&["btf", "cgroup_v2", "kernel_programs", "gateway"])
}

/// Both doctors examine the defaults, say so in the same words and end with the same code.
fn without_configuration() -> Result<()> {
    let host = Host::build("")?;
    let hide = "if [ -d /etc/spand ]; then mount -t tmpfs none /etc/spand; fi && exec \"$0\" \"$@\"";
    for (program, arguments, others) in [
        ("spand-agent", &["doctor", "--json"][..], &["gateway"][..]),
        ("spand-gateway", &["doctor", "--json", "--seconds", "1"][..], &["interfaces"][..]),
    ] {
        let mut command: Command = host.namespace.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", hide]);
        let found = Findings::of(&command.arg(host.folder.path(program)).args(arguments).output()?)?;
        let message = "does not exist, so that the service does not start; the defaults are examined";
        found.has("configuration", "fail", message).context(program)?;
        found.faults(&[&["configuration"], others].concat()).context(program)?;

        // One that cannot be used is a finding, and the rest is examined all the same.
        host.folder.write("typo.toml", "[log]\nlevel = 3\n")?;
        let typo = host.folder.path("typo.toml");
        for (file, fault) in [
            ("/nowhere/spand.toml", "/nowhere/spand.toml: No such file"),
            (typo.to_str().context("a name in UTF-8")?, "typo.toml, line 2: unknown field `level`"),
        ] {
            let mut command: Command = host.namespace.command(host.folder.path(program));
            let found = Findings::of(&command.args(arguments).args(["--config", file]).output()?)?;
            found.has("configuration", "fail", fault).context(program)?;
            found.faults(&[&["configuration"], others].concat()).context(program)?;
        }
    }
    Ok(())
}

/// The setting of the compiler of programs shows in the first network namespace only.
fn namespaced() -> Result<()> {
    let host = Host::build("")?;
    // Where this test runs in another namespace itself, it does not show here either.
    let outside = std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").unwrap_or_default();
    let output = host.folder.command(&host.namespace, "spand-agent", &["probe", "--json"]).output()?;
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let jit = findings.as_array().into_iter().flatten().find(|finding| finding["name"] == "bpf_jit");
    let jit = jit.and_then(|finding| finding["value"].as_str()).context("no bpf_jit")?;
    let allowed = if outside.trim() == "0" { ["unknown", "no"] } else { ["unknown", "yes"] };
    ensure!(allowed.iter().any(|word| jit.starts_with(word)), "{jit:?}, but the setting is {outside}");
    let found = host.doctor()?;
    found.has("bpf_jit", "ok", "").or(found.has("bpf_jit", "unknown", "not visible in this network namespace"))
}
