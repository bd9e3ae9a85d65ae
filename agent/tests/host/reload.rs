//! SIGHUP: the configuration is read again while the agent runs on.

use spand_proto::v1::Mode;

use crate::support::agent::{Agent, assert_has, text};
use crate::support::gateway::{Gateway, Stream, advised, estimate};
use crate::support::namespace::eventually;

const NETWORKS: [&str; 2] = ["192.0.2.0/24", "198.51.100.0/24"];

async fn both() -> (Gateway, Agent, Stream) {
    let estimates = NETWORKS.map(|network| estimate(network, 40, 60));
    let (gateway, agent, stream) = advised(
        "addresses = [\"10.1.0.2\"]
mode = \"careful\"",
        "",
        &estimates,
    )
    .await;
    eventually("both are decided", || decided(&agent) == ["would_be", "would_be"]).await;
    (gateway, agent, stream)
}

/// What becomes of a connection to each of the networks.
fn decided(agent: &Agent) -> [String; 2] {
    ["192.0.2.7", "198.51.100.7"].map(|remote| {
        let explained = agent.output(&["explain", remote, "--json"]);
        let explained: serde_json::Value = serde_json::from_slice(&explained.stdout).unwrap_or_default();
        explained["outcome"].as_str().unwrap_or_default().to_owned()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn sighup_brings_what_decides_into_force_and_names_what_needs_a_restart() {
    let (mut gateway, agent, _stream) = both().await;
    let before = text(&agent.config());
    let changed = before.replace("mode = \"careful\"", "mode = \"observe\"");
    let changed = changed
        .replace("state_dir = \"state\"", "state_dir = \"other\"")
        .replace("retry_max_ms = 200", "retry_max_ms = 300");
    let reloads = agent.reload(&format!("{changed}\n[destinations]\nexclude = [\"192.0.2.0/25\"]\n")).await;
    assert_eq!(reloads["last"]["took_effect"], serde_json::json!(["destinations.exclude", "mode"]), "{reloads}");
    assert_eq!(reloads["last"]["needs_restart"], serde_json::json!(["gateway.retry_max_ms", "state_dir"]));
    assert!(reloads["last"]["at"].as_str().unwrap().ends_with('Z') && reloads["last"]["error"].is_null());
    assert_eq!(decided(&agent), ["excluded", "observe"]);
    assert_has(&agent.prints(&["status"]), &["changed but needs a restart: gateway.retry_max_ms, state_dir"]);
    let stream = gateway.subscribed().await;
    assert_eq!(stream.request.agent.unwrap().mode, i32::from(Mode::Observe), "the gateway knows the mode in force");

    agent.reload(&before).await;
    assert_eq!(decided(&agent), ["would_be", "would_be"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_used_leaves_everything_as_it_was_and_is_counted() {
    let (_gateway, mut agent, _stream) = both().await;
    let before = text(&agent.config());
    for (broken, sentence) in [
        (
            "mode = \"observe\"\n[destinations]\nexclude = [\"10.0.0.0/40\"]\n",
            "running.toml, line 3: destinations.exclude: `10.0.0.0/40`",
        ),
        ("mode = \"observe\"\nmood = 1\n", "running.toml, line 2: unknown field `mood`"),
        ("mode = \"observe\"\n[holdout]\nfraction = 2.0\n", "running.toml: holdout.fraction is 2"),
    ] {
        let reloads = agent.reload(broken).await;
        let error = reloads["last"]["error"].as_str().unwrap_or_default();
        assert!(error.contains(sentence) && error.lines().count() == 1, "{reloads}");
        assert_eq!(decided(&agent), ["would_be", "would_be"]);
    }
    let metrics = agent.prints(&["metrics"]);
    for line in [
        "config_reloads_total{result=\"failure\"} 3",
        "config_reloads_total{result=\"success\"} 0",
        "config_last_reload_successful 0",
    ] {
        assert!(metrics.contains(&format!("spand_agent_{line}\n")), "{line} in {metrics}");
    }
    agent.reload(&before).await;
    assert_has(&agent.prints(&["metrics"]), &["spand_agent_config_last_reload_successful 1\n"]);
    assert_eq!(agent.stop(), Some(0), "it runs on until it is stopped");
}
