//! Advice off and on at run time, who may do that, and what `undo` prints: the apply method `route`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Output;

use super::*;

const NETWORKS: [&str; 2] = ["192.0.2.0/24", "2001:db8:77::/48"];

fn words(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

#[test]
fn a_pause_removes_the_routes_and_its_end_brings_them_back() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, mut stream) = agent_with(&mut gateway, &NETWORKS).await;
        let paused = agent.json(&["pause", "--json"]);
        // At its return: a second later is too late to look.
        assert_eq!(ours(), "");
        assert_eq!((&paused["paused"], &paused["networks_in_force"]), (&true.into(), &0.into()), "{paused}");
        // What comes meanwhile is held and not set.
        stream.send(UpdateEvent::Estimate(estimate("198.51.100.0/24", 40, 60))).await;
        eventually("held", || agent.json(&["status", "--json"])["networks_held"] == 3).await;
        assert_eq!(ours(), "");
        let people = words(&agent.output(&["status"]));
        assert!(people.contains("advice is paused until `spand-agent resume`"), "{people}");

        let resumed = agent.json(&["resume", "--json"]);
        assert_eq!((&resumed["was_paused"], &resumed["networks_in_force"]), (&true.into(), &3.into()), "{resumed}");
        assert_eq!(ours().lines().count(), 3);
        let again = words(&agent.output(&["resume"]));
        assert!(again.contains("advice was not paused"), "{again}");
    });
}

#[test]
fn a_pause_outlasts_the_agent_and_a_damaged_file_keeps_it() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &NETWORKS).await;
        agent.json(&["pause", "--for", "1h", "--json"]);
        let until = agent.json(&["status", "--json"])["paused_until"].clone();
        agent.kill();
        agent.run();
        let _stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
        let decided = |agent: &Agent| agent.json(&["status", "--json"])["decisions"]["paused"] == 1;
        eventually("decided", || decided(&agent)).await;
        assert_eq!((ours().as_str(), &agent.json(&["status", "--json"])["paused_until"]), ("", &until));

        assert_eq!(agent.stop(), Some(0));
        let file = agent.folder.path().join("state/pause.json");
        std::fs::write(&file, "{\"format\":1,\"paused_un").unwrap();
        agent.run();
        let _stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
        eventually("decided", || decided(&agent)).await;
        assert_eq!(ours(), "");
        assert!(file.with_extension("damaged").exists());
        agent.json(&["resume", "--json"]);
        assert!(ours().contains("192.0.2.0/24"));
        assert!(!file.exists());
    });
}

#[test]
fn undo_beside_a_running_agent_pauses_it_and_without_one_pauses_nothing() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &NETWORKS).await;
        let printed = words(&agent.output(&["undo"]));
        assert_eq!(printed.lines().filter(|line| line.starts_with("ip ")).count(), 2, "{printed}");
        assert!(printed.contains("apply route") && printed.contains("undo --run"), "{printed}");

        let done = agent.json(&["undo", "--run", "--json"]);
        assert_eq!((&done["agent"]["paused"], ours().as_str()), (&true.into(), ""), "{done}");
        agent.json(&["resume", "--json"]);
        assert_eq!(ours().lines().count(), 2);

        // As a service manager does after every stop, also of a killed agent.
        kill_both(&mut agent);
        let done = agent.json(&["undo", "--run", "--json"]);
        assert_eq!(done["agent"], serde_json::Value::Null, "{done}");
        assert_eq!((done["routes_removed"].as_array().unwrap().len(), ours().as_str()), (2, ""), "{done}");
        agent.run();
        let _stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
        eventually("the next start advises", || ours().contains("192.0.2.0/24")).await;

        // A typing error: the agent that sets its routes again is not at this socket.
        let typo = agent.folder.path().join("typo.sock");
        let missed = agent.output(&["undo", "--run", "--socket", typo.to_str().unwrap()]);
        assert_eq!(missed.status.code(), Some(1), "{}", words(&missed));
        assert!(words(&missed).contains("no agent answers at") && !words(&missed).contains("is in force"));
    });
}

#[test]
fn undo_lists_no_route_that_is_gone() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (mut agent, _stream) = agent_with(&mut gateway, &NETWORKS).await;
        let ledger = text(&agent.ledger());
        kill_both(&mut agent);
        ip("route del 192.0.2.0/24 proto 83 metric 21328");
        let printed = words(&agent.output(&["undo"]));
        assert!(!printed.contains("192.0.2.0/24") && printed.contains("2001:db8:77::/48"), "{printed}");
        ip("-6 route del 2001:db8:77::/48 proto 83 metric 21328");
        assert_eq!(text(&agent.ledger()), ledger, "it lists both still");
        let printed = words(&agent.output(&["undo"]));
        // Of this agent: the programs of another test's may be attached meanwhile.
        assert!(printed.contains(" is in force.") && !printed.lines().any(|line| line.starts_with("ip ")), "{printed}");

        // Without a readable ledger the kernel's routes are listed by their signature, with commands that work.
        std::fs::write(agent.ledger(), "rubbish\n\0\n").unwrap();
        ip("route add 203.0.113.0/24 via 10.1.0.1 proto 83 metric 21328 initcwnd 7");
        let printed = words(&agent.output(&["undo"]));
        let command = printed.lines().find_map(|line| line.strip_prefix("ip ")).expect(&printed);
        ip(command);
        assert_eq!(ours(), "");
    });
}

#[test]
fn who_may_not_use_the_socket_pauses_nothing_and_is_refused() {
    in_namespace(|| async {
        two_uplinks();
        let mut gateway = Gateway::start().await;
        let (agent, _stream) = agent_with(&mut gateway, &NETWORKS).await;
        // The folder lets everybody in: the socket alone decides.
        let open = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(agent.folder.path(), 0o755);
        open(&agent.folder.path().join("state"), 0o755);
        open(&agent.ledger(), 0o644);
        let as_nobody = |command: &[&str]| agent.command(command).uid(65_534).gid(65_534).output().unwrap();
        for command in [&["pause"][..], &["resume"], &["undo", "--run"], &["status"]] {
            let output = as_nobody(command);
            assert_eq!(output.status.code(), Some(1), "{command:?}: {}", words(&output));
            assert!(words(&output).contains("not allowed to ask the agent"), "{command:?}: {}", words(&output));
        }
        // Somebody let all users look: that lets them change nothing.
        let socket = agent.folder.path().join("state/control.sock");
        open(&socket, 0o666);
        assert_eq!(as_nobody(&["status"]).status.code(), Some(0));
        for command in [&["pause"][..], &["resume"], &["undo", "--run"]] {
            let output = as_nobody(command);
            assert_eq!(output.status.code(), Some(1), "{command:?}");
            assert!(words(&output).contains("user 65534 may look and change nothing"), "{}", words(&output));
        }
        assert_eq!((ours().lines().count(), &agent.json(&["status", "--json"])["paused"]), (2, &false.into()));
        // The group of the socket may.
        open(&socket, 0o660);
        std::os::unix::fs::chown(&socket, None, Some(65_534)).unwrap();
        let output = as_nobody(&["pause"]);
        assert_eq!((output.status.code(), ours().as_str()), (Some(0), ""), "{}", words(&output));
    });
}
