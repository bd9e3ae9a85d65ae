//! What the gateway still needs once its interfaces and ports are open; the rest is dropped.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use spand_confine::{Capability, Plan};

use crate::config::{CaptureBackend, Config};

/// Where the kernel counts what interfaces and CPUs lost. `/sys/class/net` is links into `/sys/devices`.
const COUNTERS: [&str; 3] = ["/proc/self/net", "/sys/class/net", "/sys/devices"];
/// Where PF_RING's library is looked for again when an interface comes back.
const LIBRARIES: [&str; 5] = ["/etc/ld.so.cache", "/lib", "/lib64", "/usr/lib", "/usr/local/lib"];
/// Where names of servers are looked up, and the port at which the system asks for them.
const NAMES: [&str; 2] = ["/etc", "/run"];
const NAMES_PORT: u16 = 53;

/// What a gateway with this configuration, read from this file, needs.
pub(super) fn needs(config: &Config, file: &Path) -> Plan {
    let mut plan = Plan {
        // To open an interface that went away and came back; see docs/explain/decisions/running.md.
        keep: vec![Capability::CAP_NET_RAW],
        read: COUNTERS.map(PathBuf::from).into(),
        ..Plan::default()
    };
    if config.capture.backend == CaptureBackend::PfRing {
        plan.keep.push(Capability::CAP_NET_ADMIN);
        plan.read.extend(LIBRARIES.map(PathBuf::from));
        plan.read.extend(config.capture.pf_ring_library.clone());
    }
    // Read again on SIGHUP, also where an editor put another in its place.
    plan.read_as_replaced(file);
    let tls = &config.tls;
    let replaced = [
        &config.traffic.prefix_list,
        &config.names.list,
        &config.names.asn_database,
        &tls.certificate,
        &tls.key,
        &tls.ca,
        &tls.revoked,
        &config.admin.passwords,
    ];
    replaced.into_iter().flatten().for_each(|file| plan.read_as_replaced(file));
    if config.share.is_on() {
        config.share.files().for_each(|file| plan.read_as_replaced(file));
        for (host, port) in config.share.endpoints() {
            if !plan.connect.contains(&port) {
                plan.connect.push(port);
            }
            // The system asks for names by TCP, when an answer is long.
            if host.parse::<IpAddr>().is_err() && !plan.connect.contains(&NAMES_PORT) {
                plan.connect.push(NAMES_PORT);
                plan.read.extend(NAMES.into_iter().chain(LIBRARIES).map(PathBuf::from));
            }
        }
    }
    // To remove it at the end.
    let folder = config.api.grpc_socket.as_deref().and_then(Path::parent);
    plan.write.extend(folder.filter(|folder| *folder != Path::new("/")).map(Path::to_owned));
    if config.store.enabled {
        plan.write.push(around(&config.store.directory));
    }
    plan
}

/// The folder that the store's lies in: a store that its disk kept from being made is made there later. Where that is the root
/// folder, the store's alone.
fn around(store: &Path) -> PathBuf {
    let folder = store.parent().filter(|folder| *folder != Path::new("/"));
    folder.unwrap_or(store).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_beside_the_store_and_nothing_read_beside_what_may_change() {
        let mut config = Config::default();
        config.traffic.prefix_list = Some("/srv/routes/list".into());
        config.tls.key = Some("/srv/keys/gateway.key".into());
        config.admin.passwords = Some("/srv/keys/passwords".into());
        config.capture.pf_ring_library = Some("/opt/libpfring.so".into());
        let plan = needs(&config, Path::new("/srv/spand/gateway.toml"));
        assert_eq!(plan.write, ["/run/spand", "/var/lib/spand/gateway"].map(Path::new));
        let read: Vec<_> =
            COUNTERS.iter().map(Path::new).chain(["/srv/spand", "/srv/routes", "/srv/keys"].map(Path::new)).collect();
        assert_eq!(plan.read, read);
        assert_eq!(plan.keep, [Capability::CAP_NET_RAW]);
        assert!(plan.connect.is_empty() && plan.start.is_empty() && !plan.kernel_programs);

        config.share.servers = ["tls://nats-1:4223", "tls://192.0.2.1"].map(str::to_owned).into();
        config.share.secret = Some("/srv/share/secret".into());
        let plan = needs(&config, Path::new("/srv/spand/gateway.toml"));
        assert_eq!(plan.connect, [4_223, 53, 4_222]);
        assert!(plan.read.iter().any(|path| path == Path::new("/srv/share")));

        config.capture.backend = CaptureBackend::PfRing;
        config.store.directory = "/store".into();
        config.api.grpc_socket = Some("/gateway.sock".into());
        let plan = needs(&config, Path::new("/srv/spand/gateway.toml"));
        assert_eq!(plan.write, [Path::new("/store")], "never the whole machine");
        assert!(plan.read.iter().any(|path| path == Path::new("/opt/libpfring.so")));
        config.store.enabled = false;
        assert!(needs(&config, Path::new("/gateway.toml")).write.is_empty());
    }
}
