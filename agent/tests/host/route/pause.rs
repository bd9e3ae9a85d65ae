//! Advice off and on at run time, who may do that, and what `undo` prints: the apply method `route`.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use super::*;

const NETWORKS: [&str; 2] = ["192.0.2.0/24", "2001:db8:77::/48"];

#[test]
fn a_pause_removes_the_routes_and_its_end_brings_them_back() {
    on_routes(&NETWORKS, async |_gateway, agent, mut stream| {
        let paused = agent.json(&["pause", "--json"]);
        // At its return: a second later is too late to look.
        assert_eq!(ours(), "");
        assert_eq!((&paused["paused"], &paused["networks_in_force"]), (&true.into(), &0.into()), "{paused}");
        // What comes meanwhile is held and not set.
        stream.advise("198.51.100.0/24", 40, 60).await;
        eventually("held", || agent.status()["networks_held"] == 3).await;
        assert_eq!(ours(), "");
        assert_has(&agent.prints(&["status"]), &["advice is paused until `spand-agent resume`"]);

        let resumed = agent.json(&["resume", "--json"]);
        assert_eq!((&resumed["was_paused"], &resumed["networks_in_force"]), (&true.into(), &3.into()), "{resumed}");
        assert_eq!(ours().lines().count(), 3);
        assert_has(&agent.prints(&["resume"]), &["advice was not paused"]);
    });
}

#[test]
fn a_pause_outlasts_the_agent_and_a_damaged_file_keeps_it() {
    on_routes(&NETWORKS, async |mut gateway, mut agent, _stream| {
        agent.json(&["pause", "--for", "1h", "--json"]);
        let until = agent.status()["paused_until"].clone();
        agent.kill();
        agent.run();
        let _stream = gateway.snapshot(&[estimate("192.0.2.0/24", 40, 60)]).await;
        let decided = |agent: &Agent| agent.status()["decisions"]["paused"] == 1;
        eventually("decided", || decided(&agent)).await;
        assert_eq!((ours().as_str(), &agent.status()["paused_until"]), ("", &until));

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
    on_routes(&NETWORKS, async |mut gateway, mut agent, _stream| {
        let printed = agent.prints(&["undo"]);
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
        let (missed, code) = agent.answer(&["undo", "--run", "--socket", typo.to_str().unwrap()]);
        assert_eq!(code, Some(1), "{missed}");
        assert!(missed.contains("no agent answers at") && !missed.contains("is in force"), "{missed}");
    });
}

#[test]
fn undo_prints_commands_that_work_and_no_route_that_is_gone() {
    on_routes(&NETWORKS, async |_gateway, mut agent, _stream| {
        let ledger = text(&agent.ledger());
        assert_has(&ledger, &["careful: share 40, clipped by fraction"]);
        kill_both(&mut agent);
        for left in [2, 1] {
            let printed = agent.prints(&["undo"]);
            let commands: Vec<&str> = printed.lines().filter_map(|line| line.strip_prefix("ip ")).collect();
            assert_eq!((commands.len(), ours().lines().count()), (left, left), "{printed}");
            let listed = NETWORKS.iter().filter(|network| printed.contains(*network)).count();
            assert_eq!(listed, left, "{printed}");
            ip(commands[0]);
        }
        assert_eq!(text(&agent.ledger()), ledger, "it lists both still");
        let printed = agent.prints(&["undo"]);
        // Of this agent: the programs of another test's may be attached meanwhile.
        assert!(printed.contains(" is in force.") && !printed.lines().any(|line| line.starts_with("ip ")), "{printed}");

        // Without a readable ledger the kernel's routes are listed by their signature, with commands that work.
        std::fs::write(agent.ledger(), "rubbish\n\0\n").unwrap();
        ip("route add 203.0.113.0/24 via 10.1.0.1 proto 83 metric 21328 initcwnd 7");
        let printed = agent.prints(&["undo"]);
        let command = printed.lines().find_map(|line| line.strip_prefix("ip ")).expect(&printed);
        ip(command);
        assert_eq!(ours(), "");
    });
}

#[test]
fn who_may_not_use_the_socket_pauses_nothing_and_is_refused() {
    on_routes(&NETWORKS, async |_gateway, agent, _stream| {
        // The folder lets everybody in: the socket alone decides.
        let open = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(agent.folder.path(), 0o755);
        open(&agent.folder.path().join("state"), 0o755);
        open(&agent.ledger(), 0o644);
        let socket = agent.folder.path().join("state/control.sock");
        let as_nobody = |command: &[&str]| printed(&agent.command(command).uid(65_534).gid(65_534).output().unwrap());
        for (is_open, refusal) in
            [(false, "not allowed to ask the agent"), (true, "user 65534 may look and change nothing")]
        {
            if is_open {
                // Somebody let all users look: that lets them change nothing.
                open(&socket, 0o666);
            }
            for command in [&["pause"][..], &["resume"], &["undo", "--run"], &["status"]] {
                let (text, code) = as_nobody(command);
                let may = is_open && command == ["status"];
                let is_right = if may { code == Some(0) } else { code == Some(1) && text.contains(refusal) };
                assert!(is_right, "open: {is_open}, {command:?}: {code:?}, {text}");
            }
        }
        assert_eq!((ours().lines().count(), &agent.status()["paused"]), (2, &false.into()));
        // The group of the socket may.
        open(&socket, 0o660);
        std::os::unix::fs::chown(&socket, None, Some(65_534)).unwrap();
        let (text, code) = as_nobody(&["pause"]);
        assert_eq!((code, ours().as_str()), (Some(0), ""), "{text}");
    });
}
