//! How long starts stay in force, at every end of what they rest on. No open connection breaks.

use libbpf_rs::{MapCore, MapHandle};

use super::*;

/// A fresh connection's threshold, and whether an older one still carries data.
pub(super) fn fresh_threshold(host: &Host, open: &mut (TcpStream, TcpStream)) -> Option<u64> {
    let (mut server, mut client) = host.accepted();
    transfer(&mut server, &mut client, 5 * SEGMENT);
    transfer(&mut open.0, &mut open.1, 20 * SEGMENT);
    number(&ss_words(&server), "ssthresh")
}

impl Host {
    /// A connection that stays open, beside which another starts at the share.
    pub(super) fn open(&self) -> (TcpStream, TcpStream) {
        let mut open = self.accepted();
        assert_eq!(fresh_threshold(self, &mut open), Some(40));
        open
    }
}

#[test]
fn a_killed_agent_leaves_plain_tcp_at_once_and_no_open_connection_breaks() {
    on_paper(40, async |mut host| {
        let mut open = host.open();
        host.agent.kill();
        assert_eq!(fresh_threshold(&host, &mut open), None);
        assert!(ss_words(&open.0).iter().any(|word| word == "t40_cubic"), "the open one stays as it is");
        // A process that lists the machine's links, as `undo` of a test that runs in parallel, holds a reference for that moment.
        eventually("sizes are not taken", || state_size(&open.0, 1) == Err(libc::ENOPROTOOPT)).await;
    });
}

#[test]
fn a_killed_agent_leaves_no_limit_on_a_connection_that_has_sent_nothing() {
    for (number, variant) in [(55, "stay"), (56, "hand_over"), (57, "sockops")] {
        on_host(number, "paper", "cubic", &format!("variant = \"{variant}\""), async |mut host| {
            let (server, _client) = host.accepted();
            if variant != "stay" {
                assert_eq!(host.counts("started"), 1);
            }
            host.agent.kill();
            assert_eq!(rate_limit(&server), u32::MAX, "{variant}");
        });
    }
}

#[test]
fn an_upgrade_while_connections_run_takes_over_the_new_ones() {
    on_paper(41, async |mut host| {
        let mut open = host.open();
        assert_eq!(option(&open.0, 1, &[1, 2, 3]), Err(libc::EPERM), "three bytes are no size");
        assert_eq!(option(&open.0, 9, &[0; 8]), Err(libc::EPERM), "no such option");
        assert_eq!(host.agent.stop(), Some(0));
        assert_eq!(state_size(&open.0, 1), Err(libc::ENOPROTOOPT));
        assert_eq!(fresh_threshold(&host, &mut open), None);
        host.run_again(50).await;
        eventually("the next agent is in force", || host.agent.in_force() == 1).await;
        assert_eq!(fresh_threshold(&host, &mut open), Some(50));
    });
}

/// The agent can renew and remove nothing meanwhile: the programs themselves know when it ends.
async fn advice_ends_under_an_agent_that_stands_still(mut host: Host) {
    const LIFETIME: Duration = Duration::from_secs(2);
    let mut open = host.accepted();
    // On a busy machine it may be over before the first look: then once more.
    for share in 44..54 {
        let sent = Instant::now();
        host.changed(share, |update| update.lifetime = Micros::from_secs(LIFETIME.as_secs())).await;
        kill(host.agent.pid(), Signal::SIGSTOP).unwrap();
        let threshold = fresh_threshold(&host, &mut open);
        let is_seen = threshold.is_some() || sent.elapsed() < LIFETIME;
        if is_seen {
            assert_eq!(threshold, Some(share.into()));
            std::thread::sleep(LIFETIME + Duration::from_millis(100));
            assert_eq!(fresh_threshold(&host, &mut open), None);
        }
        kill(host.agent.pid(), Signal::SIGCONT).unwrap();
        if is_seen {
            return;
        }
    }
    panic!("every look took longer than the lifetime");
}

#[test]
fn stale_advice_ends_with_its_lifetime_even_where_the_agent_stands_still() {
    on_paper(42, advice_ends_under_an_agent_that_stands_still);
}

#[test]
fn advice_ends_with_its_lifetime_whatever_the_agents_own_clocks_show() {
    in_namespace(|| async {
        // Programs that are started from here on have other clocks than the kernel's programs.
        nix::sched::unshare(nix::sched::CloneFlags::from_bits_retain(libc::CLONE_NEWTIME)).unwrap();
        let offsets = format!("/proc/{}/timens_offsets", nix::unistd::gettid());
        std::fs::write(offsets, "monotonic 3600 0\nboottime 7200 0\n").unwrap();
        advice_ends_under_an_agent_that_stands_still(Host::new(62, "paper", "cubic", "").await).await;
    });
}

#[test]
fn a_withdrawal_and_a_lost_gateway_end_it() {
    on_paper(43, async |mut host| {
        let mut open = host.accepted();
        host.stream.withdraw(&host.network).await;
        eventually("nothing is in force", || host.agent.in_force() == 0).await;
        assert_eq!(fresh_threshold(&host, &mut open), None);

        host.stream.advise(&host.network, 44, 3).await;
        eventually("it is back", || host.agent.in_force() == 1).await;
        assert_eq!(fresh_threshold(&host, &mut open), Some(44));
        host.gateway.stop();
        tokio::time::sleep(Duration::from_millis(3_200)).await;
        assert_eq!(fresh_threshold(&host, &mut open), None);
    });
}

#[test]
fn a_short_lifetime_that_is_renewed_in_time_does_not_lapse() {
    on_paper(47, async |mut host| {
        let mut open = host.accepted();
        host.changed(44, |update| update.lifetime = Micros::from_secs(3)).await;
        // Together longer than the lifetime, and each far shorter.
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(800)).await;
            host.stream.send(UpdateEvent::Renewal { lifetime: Micros::from_secs(3) }).await;
        }
        tokio::time::sleep(Duration::from_millis(800)).await;
        assert_eq!(fresh_threshold(&host, &mut open), Some(44));
    });
}

#[test]
fn a_second_agent_of_the_same_name_and_a_folder_that_is_no_cgroup_are_refused() {
    on_paper(44, async |host| {
        for (section, code, sentence) in [
            ("name = \"t44\"", 1, "t44_cubic is registered already: another agent"),
            ("name = \"t45\"\ncgroup = \"/tmp\"", 64, "bpf.cgroup /tmp is no version 2 cgroup"),
        ] {
            let second = Agent::stopped();
            second.configure(&host.gateway, "apply = \"bpf\"", &format!("[bpf]\n{section}"));
            let (text, found) = second.answer(&["run"]);
            assert!(found == Some(code) && text.contains(sentence), "{section}: {found:?}, {text}");
        }
    });
}

#[test]
fn a_services_size_that_the_kernel_does_not_give_up_is_tried_again() {
    on_paper(64, async |mut host| {
        let (quantile, lifetime) = (Bytes(24 * SEGMENT as u64), Micros::from_secs(2));
        let size = ServiceSize { service: host.server, quantile, transfers: 9, lifetime };
        host.stream.send(UpdateEvent::ServiceSize(size)).await;
        let services = table_of_services(&host.agent);
        eventually("the size is known", || services.keys().count() == 1).await;
        // From here on it takes nothing from outside.
        services.freeze().unwrap();
        eventually("tried again", || host.counts("services_failed") >= 3).await;
    });
}

/// The agent's own, by its shape: others of this machine may have one of this name.
fn table_of_services(agent: &Agent) -> MapHandle {
    let tables = std::fs::read_dir(format!("/proc/{}/fdinfo", agent.pid())).unwrap();
    let mut text = tables.filter_map(|table| std::fs::read_to_string(table.unwrap().path()).ok());
    let number = |text: &str, name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u32>().ok())
    };
    let shape = |text: &String| ["map_type", "key_size", "value_size"].map(|name| number(text, name));
    let services = text.find(|text| shape(text) == [Some(1), Some(20), Some(8)]).expect("a table of services");
    MapHandle::from_map_id(number(&services, "map_id").unwrap()).unwrap()
}

#[test]
fn programs_follow_a_cgroup_that_is_removed_and_made_again() {
    in_namespace(|| async {
        let cgroup = Cgroup::new("again");
        let bpf = format!("control_fraction = 0.0\ncheck = false\ncgroup = \"{}\"", cgroup.0.display());
        // This process, of all tests, will enter the cgroup for a moment.
        let host = Host::alone(46, "paper", "cubic", &bpf).await;
        assert_eq!(host.agent.in_force(), 1);
        // This process is in another one: its sockets are not seen.
        let mut open = host.accepted();
        assert_eq!(fresh_threshold(&host, &mut open), None);
        std::fs::remove_dir(&cgroup.0).unwrap();
        eventually("the agent notices", || host.counts("cgroup_gone") == 1).await;
        assert_eq!(host.agent.in_force(), 0);
        std::fs::create_dir(&cgroup.0).unwrap();
        eventually("it attaches to the next one", || host.agent.in_force() == 1).await;
        let threshold = cgroup.inside(|| fresh_threshold(&host, &mut open));
        assert_eq!(threshold, Some(40), "in the one that was made again");

        // A service manager is as fast: the agent never looks while the cgroup is missing.
        eventually("children of other tests have left", || std::fs::remove_dir(&cgroup.0).is_ok()).await;
        std::fs::create_dir(&cgroup.0).unwrap();
        eventually("it attaches again", || host.counts("cgroup_attached_again") == 2).await;
        assert_eq!(cgroup.inside(|| fresh_threshold(&host, &mut open)), Some(40));
    });
}

/// An empty version 2 cgroup; removed when dropped.
pub(super) struct Cgroup(pub(super) std::path::PathBuf);

impl Cgroup {
    pub(super) fn new(name: &str) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).expect("version 2 cgroups");
        let path = format!("{}/spand-test-{name}-{}", root.split(' ').nth(1).unwrap(), std::process::id());
        std::fs::create_dir(&path).unwrap();
        Self(path.into())
    }

    /// Does this with this process in the cgroup.
    fn inside<T>(&self, act: impl FnOnce() -> T) -> T {
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap();
        let root = self.0.parent().unwrap();
        let enter = |cgroup: &std::path::Path| std::fs::write(cgroup.join("cgroup.procs"), "0").unwrap();
        enter(&self.0);
        let done = act();
        enter(&root.join(own));
        done
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Left where a test failed while something was in it.
        _ = std::fs::remove_dir(&self.0);
    }
}
