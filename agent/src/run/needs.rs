//! What the agent needs while it runs; the sandbox drops the rest before it does anything.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use spand_confine::{Capability, Plan};
use tonic::transport::Uri;

use crate::capabilities::Capabilities;
use crate::config::{ApplyMethod, Bbr, Config, Fallback, socket_of};
use crate::probe::bbr_is_module;

/// Settings and tables of the kernel. Landlock keeps the memory and the environment of other processes closed all the same.
const KERNEL: [&str; 2] = ["/proc", "/sys"];
/// What the libraries and programs lie in that the system loads.
const LIBRARIES: [&str; 4] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64"];
/// Where names of gateways are looked up: `/etc/resolv.conf` is replaced as networks change, and may lead to `/run`.
const NAMES: [&str; 2] = ["/etc", "/run"];
/// Where the system is asked for names by TCP, when an answer is long.
const NAMES_PORT: u16 = 53;

/// What an agent with this configuration, read from this file, needs.
pub(super) fn needs(config: &Config, file: &Path) -> Plan {
    let mut plan = Plan {
        read: paths(&KERNEL),
        write: vec![config.state_dir.clone()],
        write_to: vec!["/dev/null".into()],
        // The control socket, whose folder belongs to the user that it becomes.
        listens: true,
        ..Plan::default()
    };
    let sockets = config.applications.socket.as_deref().and_then(Path::parent);
    plan.write.extend(sockets.map(Path::to_owned));
    // Read again on SIGHUP, also where an editor put another in its place.
    plan.read_as_replaced(file);
    let tls = &config.tls;
    [&tls.certificate, &tls.key, &tls.ca].into_iter().flatten().for_each(|file| plan.read_as_replaced(file));
    match config.apply {
        ApplyMethod::DryRun => {}
        ApplyMethod::Route => {
            plan.keep.push(Capability::CAP_NET_ADMIN);
            plan.start = guard();
        }
        ApplyMethod::Bpf => {
            plan.keep.push(Capability::CAP_NET_ADMIN);
            plan.keep.extend(of_kernel_programs());
            // Until the programs are loaded.
            if config.bpf.bbr == Bbr::Full && bbr_is_module() {
                plan.keep.push(Capability::CAP_SYS_ADMIN);
            }
            plan.kernel_programs = true;
            // Removed and made again with its service.
            if !config.bpf.cgroup.as_os_str().is_empty() {
                plan.read_as_replaced(&config.bpf.cgroup);
            }
            if config.bpf.fallback == Fallback::Route {
                plan.start = guard();
            }
        }
    }
    let urls = config.gateway.list();
    // The kernel lets a process connect to a Unix socket whatever Landlock restricts.
    let uris = urls.into_iter().filter(|url| socket_of(url).is_none()).filter_map(|url| url.parse::<Uri>().ok());
    let mut needs_names = false;
    for uri in uris {
        let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
        if !plan.connect.contains(&port) {
            plan.connect.push(port);
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        needs_names |= host.parse::<IpAddr>().is_err();
    }
    if needs_names {
        plan.connect.push(NAMES_PORT);
        plan.read.extend(paths(&NAMES));
        plan.read.extend(paths(&LIBRARIES));
    }
    plan.read.retain(|path| !path.as_os_str().is_empty());
    plan
}

/// The files that a start of the guard takes: this program, and the libraries that it loads.
fn guard() -> Vec<PathBuf> {
    std::env::current_exe().into_iter().chain(paths(&LIBRARIES)).collect()
}

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

/// Containers of engines that do not know the first two give the last one in their place.
fn of_kernel_programs() -> Vec<Capability> {
    if Capabilities::own().is_some_and(|own| !own.may_load_without_sys_admin()) {
        return vec![Capability::CAP_SYS_ADMIN];
    }
    vec![Capability::CAP_BPF, Capability::CAP_PERFMON]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(paths: &[PathBuf], path: &str) -> bool {
        paths.iter().any(|one| one == Path::new(path))
    }

    #[test]
    fn each_way_keeps_what_it_uses_and_an_address_needs_no_names() {
        let mut config = Config { apply: ApplyMethod::DryRun, ..Config::default() };
        config.gateway.only("https://[2001:db8::1]:7400");
        config.tls.ca = Some("/srv/tls/ca.pem".into());
        let plan = needs(&config, Path::new("/srv/agent/agent.toml"));
        assert!(plan.keep.is_empty() && plan.start.is_empty() && !plan.kernel_programs);
        assert_eq!(plan.connect, [7400]);
        assert!(
            has(&plan.read, "/srv/tls") && has(&plan.read, "/srv/agent") && !has(&plan.read, "/etc"),
            "{:?}",
            plan.read
        );
        assert_eq!(plan.write, [Path::new("/var/lib/spand/agent")]);

        config.gateway.only("unix:/run/spand/gateway.sock");
        let plan = needs(&config, Path::new("/srv/agent/agent.toml"));
        assert!(plan.connect.is_empty() && !has(&plan.read, "/etc"), "{plan:?}");

        config.apply = ApplyMethod::Route;
        config.gateway.only("https://gateway.example");
        let plan = needs(&config, Path::new("/srv/agent/agent.toml"));
        assert_eq!(plan.keep, [Capability::CAP_NET_ADMIN]);
        assert_eq!(plan.connect, [443, 53]);
        assert!(has(&plan.read, "/etc") && has(&plan.start, "/lib") && !has(&plan.write, "/etc"));

        let several =
            ["https://192.0.2.1:7400", "https://192.0.2.2:7400", "https://gateway.example"].map(str::to_owned);
        config.gateway = crate::config::Gateway { url: None, urls: Some(several.to_vec()), ..config.gateway };
        assert_eq!(needs(&config, Path::new("/srv/agent/agent.toml")).connect, [7400, 443, 53]);

        config.apply = ApplyMethod::Bpf;
        config.bpf.cgroup = "/srv/groups/web".into();
        let plan = needs(&config, Path::new("/srv/agent/agent.toml"));
        assert!(plan.kernel_programs && plan.start.is_empty() && has(&plan.read, "/srv/groups"));
    }
}
