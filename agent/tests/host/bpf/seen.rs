//! Announced starts against connections that the programs see.

use super::*;
use crate::support::gateway::announced;

/// A cgroup; it is removed when this is dropped.
struct Cgroup(std::path::PathBuf);

impl Cgroup {
    fn new(name: &str) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).expect("version 2 cgroups");
        let path = std::path::Path::new(mount.split(' ').nth(1).unwrap()).join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Left where the agent still runs after a failure; the next test of this name takes it over.
        _ = std::fs::remove_dir(&self.0);
    }
}

/// Announces and makes a dozen connections, and waits for what the agent makes of them.
async fn judged(host: &mut Host, state: &str) -> serde_json::Value {
    let listener = TcpListener::bind(host.server).unwrap();
    for _ in 0..12 {
        let remote = host.client.to_string();
        host.stream.send(announced(&host.network.clone(), &remote)).await;
        drop(host.connection(&listener));
    }
    let seen = || host.agent.json(&["status", "--json"])["connections_seen"].clone();
    eventually(state, || seen()["state"] == *state).await;
    seen()
}

/// The check of `doctor`, and its exit code.
fn doctor(host: &Host) -> (serde_json::Value, Option<i32>) {
    let output = host.agent.output(&["doctor", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = document["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "connections_seen").expect("the check");
    (check.clone(), output.status.code())
}

#[test]
fn connections_of_sockets_made_outside_the_cgroup_are_reported_as_unseen() {
    in_namespace("bpf_unseen", || async {
        let cgroup = Cgroup::new("spand-test-unseen");
        let mut host = Host::new(94, "careful", "cubic", &format!("cgroup = \"{}\"", cgroup.0.display())).await;
        let seen = judged(&mut host, "unseen").await;
        assert_eq!((&seen["accepted"]["unseen"], &seen["opened"]["unseen"]), (&true.into(), &false.into()));
        assert_eq!((&seen["accepted"]["announced"], &seen["accepted"]["seen"]), (&12.into(), &0.into()));
        assert!(seen["unseen_since"].is_string(), "{seen}");
        let text = String::from_utf8(host.agent.output(&["status"]).stdout).unwrap();
        assert!(text.contains("UNSEEN since") && text.contains("may be: the service's listening sockets"), "{text}");
        let (check, code) = doctor(&host);
        assert_eq!((&check["verdict"], code), (&"fail".into(), Some(2)), "{check}");
        assert!(check["to_do"].as_str().unwrap().contains("restart the service"), "{check}");
        let metrics = String::from_utf8(host.agent.output(&["metrics"]).stdout).unwrap();
        assert!(metrics.contains("spand_agent_connections_unseen 1"), "{metrics}");
        let mut unmatched = 0;
        while unmatched < 12 {
            unmatched += host.gateway.reported().await.pushes.unmatched;
        }
        drop(host);
    });
}

#[test]
fn connections_that_the_programs_see_are_reported_as_seen() {
    in_namespace("bpf_seen", || async {
        let mut host = Host::new(95, "careful", "cubic", "").await;
        let seen = judged(&mut host, "ok").await;
        assert_eq!((&seen["accepted"]["announced"], &seen["accepted"]["seen"]), (&12.into(), &12.into()));
        assert_eq!(seen["unseen_since"], serde_json::Value::Null);
        let text = String::from_utf8(host.agent.output(&["status"]).stdout).unwrap();
        assert!(text.contains("12 announced, 12 seen") && !text.contains("may be:"), "{text}");
        assert_eq!(doctor(&host).0["verdict"], "ok");
    });
}
