//! Network namespaces for one test each.

use spand_needs::{Need, needs};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use tokio::runtime::Builder;

/// Runs `test` on a thread of its own in a fresh network namespace; what it starts is in there too. All of it vanishes with
/// the thread and its children. It needs root.
pub(crate) fn in_namespace<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send) {
    run_in_namespace(Builder::new_current_thread(), test);
}

/// The same with a thread of its own for what the test spawns: its gateway answers while the test waits for a command.
pub(crate) fn in_served_namespace<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send) {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(1);
    run_in_namespace(runtime, test);
}

fn run_in_namespace<F: Future<Output = ()>>(mut runtime: Builder, test: impl FnOnce() -> F + Send) {
    if !needs(Need::Root) {
        return;
    }
    let worker = move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace");
        ip("link set lo up");
        runtime.enable_all().build().unwrap().block_on(test());
    };
    let outcome = std::thread::scope(|scope| scope.spawn(worker).join());
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Two uplinks, `up0` and `up1`, with addresses ending in 2 of 10.1.0 and 10.2.0, and of the IPv6 documentation prefix;
/// default routes by the first.
pub(crate) fn two_uplinks() {
    for (n, v4, v6) in [(0, "10.1.0", "2001:db8:1"), (1, "10.2.0", "2001:db8:2")] {
        ip(&format!("link add up{n} type veth peer name far{n}"));
        for end in ["up", "far"] {
            // Link-local routes would come a moment later and look like someone's change.
            ip(&format!("link set {end}{n} addrgenmode none up"));
        }
        ip(&format!("addr add {v4}.2/24 dev up{n}"));
        ip(&format!("addr add {v6}::2/64 dev up{n} nodad"));
    }
    ip("route add default via 10.1.0.1");
    ip("-6 route add default via 2001:db8:1::1");
}

/// Runs `ip`, which must succeed.
pub(crate) fn ip(arguments: &str) -> String {
    try_ip(arguments).unwrap_or_else(|text| panic!("ip {arguments}: {text}"))
}

/// Runs `ip`: what it prints, or what it complains of.
pub(crate) fn try_ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("install iproute2");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

// Waiting for what must come.

/// How long a test waits for it at most. No limit of the agent's: a machine that also compiles may be slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What `future` gives.
pub(crate) async fn awaited<T>(what: &str, future: impl Future<Output = T>) -> T {
    let given = tokio::time::timeout(PATIENCE, future).await;
    given.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}
