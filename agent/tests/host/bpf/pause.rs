//! Advice off and on at run time, and what `undo` prints meanwhile: the apply method `bpf`.

use spand_proto::push::PauseState;

use super::lifetime::{Cgroup, fresh_threshold};
use super::*;

#[test]
fn after_a_pause_no_connection_starts_on_advice_until_it_is_resumed() {
    on_paper(70, async |host| {
        let mut open = host.open();
        // Established before, and nothing was sent yet.
        let mut early = host.accepted();

        let paused = host.agent.json(&["pause", "--json"]);
        assert_eq!((&paused["paused"], &paused["networks_in_force"]), (&true.into(), &0.into()), "{paused}");
        // From its return on, and not a second later.
        let (started, restarted) = (host.counts("started"), host.counts("restarted"));
        let thresholds: Vec<_> = (0..10).map(|_| fresh_threshold(&host, &mut open)).collect();
        assert_eq!(thresholds, [None; 10]);
        transfer(&mut early.0, &mut early.1, 5 * SEGMENT);
        // The open one was idle for longer than its retransmission timeout.
        std::thread::sleep(Duration::from_millis(600));
        transfer(&mut open.0, &mut open.1, 20 * SEGMENT);
        assert_eq!((host.counts("started"), host.counts("restarted")), (started, restarted));
        assert!(host.counts("paused") >= 12, "each is counted");

        let status = host.agent.status();
        assert_eq!((&status["paused"], &status["in_force"].as_array().unwrap().len()), (&true.into(), &0), "{status}");
        assert_eq!(status["decisions"]["paused"], 1, "{status}");
        let remote = host.client.to_string();
        assert_eq!(host.agent.outcome(&remote), "paused");
        assert!(host.agent.answer(&["metrics"]).0.contains("\nspand_agent_paused 1\n"));

        // Nothing comes from the gateway in between.
        let resumed = host.agent.json(&["resume", "--json"]);
        assert_eq!((&resumed["paused"], &resumed["networks_in_force"]), (&false.into(), &1.into()), "{resumed}");
        assert_eq!(fresh_threshold(&host, &mut open), Some(40));
        std::thread::sleep(Duration::from_millis(600));
        transfer(&mut open.0, &mut open.1, 20 * SEGMENT);
        assert!(host.counts("restarted") > restarted, "idle restarts are back");
    });
}

#[test]
fn a_pause_outlasts_a_kill_of_the_agent_until_it_is_resumed() {
    on_paper(71, async |mut host| {
        let mut open = host.accepted();
        host.agent.succeeds(&["pause"]);
        host.agent.kill();
        host.run_again(50).await;
        assert!(host.stream.request.agent.as_ref().unwrap().pause.unwrap().paused, "the gateway knows at once");
        eventually("decided", || host.agent.status()["decisions"]["paused"] == 1).await;
        assert_eq!(fresh_threshold(&host, &mut open), None);
        host.agent.succeeds(&["resume"]);
        assert_eq!(fresh_threshold(&host, &mut open), Some(50));
    });
}

#[test]
fn a_pause_for_a_time_ends_by_itself() {
    on_paper(72, async |host| {
        let mut open = host.accepted();
        let begun = Instant::now();
        let paused = host.agent.json(&["pause", "--for", "2s", "--json"]);
        assert!(paused["paused_until"].as_str().unwrap().ends_with('Z'), "{paused}");
        let threshold = fresh_threshold(&host, &mut open);
        // On a busy machine it may be over by now.
        assert!(threshold.is_none() || begun.elapsed() > Duration::from_secs(2), "{threshold:?}");
        eventually("it ends", || host.agent.in_force() == 1).await;
        assert_eq!(fresh_threshold(&host, &mut open), Some(40));
        let status = host.agent.status();
        assert_eq!((&status["paused"], &status["paused_until"]), (&false.into(), &serde_json::Value::Null));
    });
}

#[test]
fn connections_that_meet_a_pause_are_in_no_arm() {
    on_paper(73, async |mut host| {
        let connection = |host: &Host| {
            let mut ends = host.accepted();
            transfer(&mut ends.0, &mut ends.1, 5 * SEGMENT);
            ends
        };
        // Of either arm, before the pause and during it.
        let before = connection(&host);
        host.reload("control_fraction = 0.0", "control_fraction = 1.0").await;
        let controls = connection(&host);
        host.agent.json(&["pause", "--json"]);
        let during = connection(&host);
        host.reload("control_fraction = 1.0", "control_fraction = 0.0").await;
        let of_the_other_arm = connection(&host);
        host.agent.json(&["resume", "--json"]);
        // Ended after the pause: it met it all the same.
        drop((before, controls, during, of_the_other_arm));
        let reports = host.reported(4).await;
        assert!(reports.iter().all(|one| one.paused && one.arm.is_none() && one.refusal.is_none()), "{reports:?}");
        assert_eq!(reports.iter().filter(|one| one.advised.is_some()).count(), 1);
        let status = host.agent.status();
        assert_eq!(status["transfers_paused"], 4, "{status}");
        let compared = |arm: &str| {
            let of = |class: &serde_json::Value| class[arm]["transfers"].as_u64().unwrap();
            status["comparison"].as_array().unwrap().iter().map(of).sum::<u64>()
        };
        assert_eq!((compared("advised"), compared("control")), (0, 0));
    });
}

#[test]
fn the_gateway_gets_a_pause_at_once() {
    on_paper(75, async |mut host| {
        let begun = Instant::now();
        assert!(!host.stream.request.agent.as_ref().unwrap().pause.unwrap().paused);
        host.agent.json(&["pause", "--for", "1h", "--json"]);
        let Some(PauseState::Paused { remaining: Some(remaining) }) = host.gateway.reported().await.pause else {
            panic!("paused")
        };
        assert!((3_500_000_000..=3_601_000_000).contains(&remaining.0), "{remaining}");
        host.agent.json(&["resume", "--json"]);
        assert_eq!(host.gateway.reported().await.pause, Some(PauseState::Active));
        // Every ten seconds it reports without news.
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    });
}

#[test]
fn undo_says_what_programs_have_in_force_and_takes_it_back() {
    in_namespace(|| async {
        let mut host = Host::alone(76, "paper", "cubic", "control_fraction = 0.0\ncheck = false").await;
        let mut open = host.open();
        let text = host.agent.succeeds(&["undo"]);
        assert_has(
            &text,
            &[
                &format!("{} with 40 segments", host.network),
                "on_socket",
                "on_setsockopt",
                "on_cubic",
                "apply bpf",
                "undo --run",
            ],
        );
        assert!(!text.contains("Nothing is in force"), "{text}");
        let found = host.agent.json(&["undo", "--json"]);
        assert_eq!(found["agent"]["in_force"][0]["prefix"], host.network, "{found}");

        let text = host.agent.succeeds(&["undo", "--run"]);
        assert_has(&text, &["is paused until", "nothing is in force"]);
        // Of the kernel's links, its own are not somebody else's.
        assert_eq!(host.agent.json(&["undo", "--run", "--json"])["programs_left"], serde_json::json!([]));
        assert_eq!(fresh_threshold(&host, &mut open), None);
        // Advice that comes later does not come into force.
        host.stream.advise(&host.network, 60, 60).await;
        eventually("it came", || host.agent.status()["advice"]["estimates"] == 2).await;
        assert_eq!(fresh_threshold(&host, &mut open), None);
        let text = host.agent.prints(&["undo"]);
        assert_has(&text, &["is paused;", "resume"]);

        host.agent.json(&["resume", "--json"]);
        assert_eq!(fresh_threshold(&host, &mut open), Some(60));
        host.agent.kill();
        let text = host.agent.succeeds(&["undo"]);
        assert!(text.contains("No agent runs here") && !text.contains("t76"), "{text}");
    });
}

#[test]
fn undo_that_asks_at_another_socket_names_the_process_and_the_cgroup_that_start_connections() {
    in_namespace(|| async {
        let cgroup = Cgroup::new("elsewhere");
        let host = Host::alone(77, "paper", "cubic", &format!("cgroup = \"{}\"", cgroup.0.display())).await;
        let elsewhere = host.agent.folder.path().join("typo.sock");
        let undo = ["undo", "--run", "--socket", elsewhere.to_str().unwrap()];
        let (text, code) = host.agent.answer(&undo);
        assert_eq!(code, Some(1), "{text}");
        assert_has(&text, &[&format!("process {}", host.agent.pid()), cgroup.0.to_str().unwrap()]);
        assert!(!text.contains("is in force") && text.contains("--socket"), "{text}");
        let left = host.agent.json(&[&undo[..], &["--json"]].concat());
        assert_eq!(left["programs_left"][0]["pids"], serde_json::json!([host.agent.pid().as_raw()]), "{left}");

        // Attached to nothing any more, its programs start nothing.
        std::fs::remove_dir(&cgroup.0).unwrap();
        // The kernel takes them off a cgroup a moment after its end.
        eventually("nothing is attached", || host.agent.answer(&undo).1 == Some(0)).await;
        std::fs::create_dir(&cgroup.0).unwrap();
    });
}

// SIGHUP: the configuration is read again under kernel programs that run on.

#[test]
fn an_excluded_network_leaves_the_kernel_with_sighup_and_a_control_fraction_holds_from_then_on() {
    on_paper(80, async |host| {
        let mut open = host.open();
        let before = text(&host.agent.config());

        let excluded = format!("{before}\n[destinations]\nexclude = [\"{}\"]\n", host.network);
        let reloads = host.agent.reload(&excluded).await;
        assert_eq!(reloads["last"]["took_effect"], serde_json::json!(["destinations.exclude"]), "{reloads}");
        // From the reply of `status` on, and not a second later.
        assert_eq!(host.agent.in_force(), 0);
        assert_eq!(fresh_threshold(&host, &mut open), None);
        assert_eq!(host.agent.outcome(&host.client.to_string()), "excluded");

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
