//! SIGHUP: the configuration is read again under kernel programs that run on.

use super::lifetime::fresh_threshold;
use super::*;

#[test]
fn an_excluded_network_leaves_the_kernel_with_sighup_and_a_control_fraction_holds_from_then_on() {
    in_namespace("bpf_reload", || async {
        let host = Host::new(80, "paper", "cubic", "").await;
        let mut open = host.accepted();
        assert_eq!(fresh_threshold(&host, &mut open), Some(40));
        let before = text(&host.agent.config());

        let excluded = format!("{before}\n[destinations]\nexclude = [\"{}\"]\n", host.network);
        let reloads = host.agent.reload(&excluded).await;
        assert_eq!(reloads["last"]["took_effect"], serde_json::json!(["destinations.exclude"]), "{reloads}");
        // From the reply of `status` on, and not a second later.
        assert_eq!(in_force(&host.agent), 0);
        assert_eq!(fresh_threshold(&host, &mut open), None);
        assert_eq!(host.agent.json(&["explain", &host.client.to_string(), "--json"])["outcome"], "excluded");

        let broken = host.agent.reload("[destinations]\nexclude = [\"nowhere\"]\n").await;
        assert_eq!((&broken["failed"], &broken["succeeded"]), (&1.into(), &1.into()), "{broken}");
        assert_eq!(fresh_threshold(&host, &mut open), None, "what was in force stays in force");

        host.agent.reload(&before).await;
        assert_eq!(fresh_threshold(&host, &mut open), Some(40));

        let started = host.counts("started");
        let controls = before.replace("control_fraction = 0.0", "control_fraction = 1.0");
        host.agent.reload(&controls).await;
        let thresholds: Vec<_> = (0..5).map(|_| fresh_threshold(&host, &mut open)).collect();
        assert_eq!(thresholds, [None; 5], "each is a control");
        assert_eq!(host.counts("started"), started);
    });
}
