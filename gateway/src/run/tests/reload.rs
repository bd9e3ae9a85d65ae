//! The list of prefixes at a start, and what SIGHUP brings into force.

use super::*;
use crate::names::InForce;

#[test]
fn every_engine_gets_the_list_of_prefixes_that_divides_the_networks() {
    let dir = tempfile::tempdir().unwrap();
    let [list, next] = ["routes.txt", "next.txt"].map(|name| dir.path().join(name));
    nix::unistd::mkfifo(&list, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(&next, "203.0.113.0/24\n").unwrap();
    let mut config = Config::default();
    config.traffic.prefix_list = Some(list.clone());
    config.engine.threads = NonZeroU32::new(3).unwrap();
    // A second read of the list returns another one.
    let writer = thread::spawn(move || {
        let mut pipe = fs::OpenOptions::new().write(true).open(&list).unwrap();
        fs::rename(next, list).unwrap();
        io::Write::write_all(&mut pipe, b"198.51.100.0/24\n").unwrap();
    });
    let (first, engines) = parts(&config).unwrap();
    writer.join().unwrap();
    let engines: Vec<_> = engines.collect();
    assert_eq!((&engines[0], first.prefixes.len()), (&first, 1));
    assert_eq!(engines.iter().map(|engine| engine.shard.index).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(engines.iter().all(|engine| engine.prefixes == first.prefixes && engine.hash_seed == first.hash_seed));
}

#[test]
fn sighup_withdraws_the_networks_that_are_gone_and_a_file_at_fault_leaves_everything() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let Bench { published, captures, kept, mut worker, .. } = bench();
    runtime.spawn(published.clone().run());
    // What the bench published is sent before the first subscription.
    runtime.block_on(tokio::time::sleep(Duration::from_millis(100)));
    let folder = tempfile::tempdir().unwrap();
    let (file, list) = (folder.path().join("gateway.toml"), folder.path().join("routes.txt"));
    let text = "[capture]\ninterfaces = [\"lo\"]\n[traffic]\ninternal = [\"10.0.0.0/8\"]\n";
    fs::write(&file, text).unwrap();
    let mut reload = Reload::new(&Config::load(&file).unwrap(), &file, 0, &captures, &published, InForce::default());
    let network = Network::of(REMOTE);
    let mut subscription = published.subscribe(&[HOST]).unwrap();
    let mut next = || runtime.block_on(subscription.next()).unwrap().event;
    while !matches!(next(), UpdateEvent::SnapshotEnd { networks: 1 }) {}
    let mut pass = || {
        worker.regroup();
        worker.publish_state();
        (worker.engine.network(network, START).is_some(), worker.engine.follows(HOST))
    };
    let measures = published.measures();

    // With the network that it drops, and one line that is none.
    fs::write(&list, "192.0.0.0/16\n192.0.2.0/40\n").unwrap();
    let listed = format!("{text}prefix_list = \"routes.txt\"\n[limits]\nconnections = 1000\n");
    fs::write(&file, &listed).unwrap();
    let fault = reload.take().unwrap_err().to_string();
    assert!(fault.contains("routes.txt, line 2"), "{fault}");
    reload.reload();
    assert_eq!((pass(), measures.config_last_reload_successful.get()), ((true, true), 0));
    fs::write(&file, "[traffic]\ninternal = [\"10.0.0.0/40\"]\n").unwrap();
    assert!(reload.take().unwrap_err().to_string().contains("gateway.toml, line 2: traffic.internal"));
    fs::write(&file, &listed).unwrap();

    fs::write(&list, "192.0.0.0/16\n").unwrap();
    let reloaded = reload.take().unwrap();
    assert_eq!(
        (reloaded.in_force, reloaded.needs_restart),
        (vec!["traffic.prefix_list".to_owned()], vec!["limits.connections".to_owned()])
    );
    assert_eq!(pass(), (false, true));
    let withdrawal = UpdateEvent::Withdrawal { network, reason: WithdrawalReason::Administrator };
    assert_eq!(next(), withdrawal, "before anything else");
    assert!(published.network(network).is_none());

    // The list alone, under the same name; then who is inside.
    fs::write(&list, "192.0.2.0/24\n").unwrap();
    assert_eq!(reload.take().unwrap().in_force, ["traffic.prefix_list"]);
    fs::write(&file, listed.replace("10.0.0.0/8", "172.16.0.0/12")).unwrap();
    reload.reload();
    assert_eq!((pass(), measures.config_last_reload_successful.get()), ((false, false), 1));
    let own = captures.grouping.in_force().own_listeners.clone();
    assert!(own.contains(&"127.0.0.1:7480".parse().unwrap()), "they are looked at again: {own:?}");
    let owner = captures.grouping.in_force().partition.owner(network);
    assert_eq!(owner, whole().owner(network), "a network is its owner's, whatever the prefixes");
    captures.queues[0].close();
    worker.run();
    assert!(kept.0.lock().iter().any(|(gone, record)| *gone == network && record.is_none()), "the store drops it");
}
