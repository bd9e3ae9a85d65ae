//! What is left alone, and counted.

use std::os::fd::{FromRawFd, OwnedFd};

use super::lifetime::Cgroup;
use super::*;

#[track_caller]
fn assert_plain(words: &[String], control: &str) {
    assert!(words.iter().any(|word| word == control), "not on {control}: {words:?}");
    assert_eq!(number(words, "ssthresh"), None, "{words:?}");
}

#[test]
fn a_socket_with_a_congestion_control_of_its_own_is_left_alone() {
    on_host(20, "paper", "", "", async |host| {
        let listener = listen(host.server);
        socket2::SockRef::from(&listener).set_tcp_congestion(b"reno").unwrap();
        let (mut server, mut client) = host.connection(&listener);
        transfer(&mut server, &mut client, 5 * SEGMENT);
        assert_plain(&ss_words(&server), "reno");
        assert_eq!((host.counts("own_congestion_control"), host.counts("started")), (1, 0));
    });
}

#[test]
fn sockets_that_are_connected_again_are_left_alone_and_their_first_connections_forgotten() {
    on_paper(67, async |mut host| {
        let listener = TcpListener::bind(SocketAddr::new(host.client, 8_000)).unwrap();
        let to = listener.local_addr().unwrap();
        let first_connection = || {
            let mut ours = connect(bound(host.server.ip()), to);
            let mut peer = listener.accept().unwrap().0;
            transfer(&mut ours, &mut peer, 5 * SEGMENT);
            disconnect(&ours);
            ours
        };
        let started = first_connection();
        host.reload("control_fraction = 0.0", "control_fraction = 1.0").await;
        let mut sockets = [started, first_connection()];
        host.reported(2).await;
        // Or the route would choose the congestion control again.
        ip(&format!("route replace local {} dev lo table local", host.client));

        let mut peers = sockets.each_ref().map(|ours| {
            socket2::SockRef::from(ours).connect(&to.into()).unwrap();
            listener.accept().unwrap().0
        });
        for _ in 0..2 {
            for (ours, peer) in sockets.iter_mut().zip(&mut peers) {
                // Below the window from which HyStart may set a threshold.
                transfer(ours, peer, 5 * SEGMENT);
            }
            // Longer than the retransmission timeout: would be a start, if it were one of ours.
            std::thread::sleep(Duration::from_millis(600));
        }
        assert_eq!(sockets.map(|ours| number(&ss_words(&ours), "ssthresh")), [None; 2]);
        assert_eq!((host.counts("restarted"), host.counts("reconnected")), (0, 2));
        assert_eq!(host.counts("own_congestion_control"), 0);
    });
}

/// Ends a socket's connection; it may be connected again.
fn disconnect(socket: &TcpStream) {
    let nowhere = libc::sockaddr { sa_family: libc::sa_family_t::try_from(libc::AF_UNSPEC).unwrap(), sa_data: [0; 14] };
    let length = libc::socklen_t::try_from(size_of_val(&nowhere)).unwrap();
    // SAFETY: the address lives as long as the call and its length is correct.
    let done = unsafe { libc::connect(socket.as_raw_fd(), &raw const nowhere, length) };
    assert_eq!(done, 0);
}

#[test]
fn another_network_is_left_alone() {
    on_paper(21, async |mut host| {
        host.client = host.server.ip();
        assert_plain(&host.sent(5), "cubic");
        assert_eq!(host.counts("started"), 0);
    });
}

#[test]
fn controls_and_what_observe_leaves_alone_are_plain_and_reported() {
    in_namespace(|| async {
        let mut host = Host::with(23, "paper", "cubic", "control_fraction = 1.0").await;
        let plain = |host: &Host| {
            let (mut server, mut client) = host.accepted();
            transfer(&mut server, &mut client, 5 * SEGMENT);
            assert_plain(&ss_words(&server), "cubic");
            client.local_addr().unwrap()
        };
        let control = plain(&host);
        host.reload("control_fraction = 1.0", "control_fraction = 0.0").await;
        host.reload("mode = \"paper\"", "mode = \"observe\"").await;
        let observed = plain(&host);
        assert_eq!(host.counts("refused"), 1);
        let reports = host.reported(2).await;
        let of = |remote| *reports.iter().find(|report| report.remote == remote).unwrap();
        let (control, observed) = (of(control), of(observed));
        assert_eq!((control.arm, control.advised), (Some(Arm::Control), None));
        assert_eq!(control.acknowledged.0, 5 * SEGMENT as u64);
        assert!(control.duration.is_some());
        // What is left alone is compared with itself.
        assert_eq!((observed.arm, observed.advised), (Some(Arm::Advised), None));
    });
}

#[test]
fn a_first_flight_of_which_half_arrives_ends_a_row_of_losses() {
    on_paper(27, async |mut host| {
        for round in 0..3 {
            assert_eq!(host.granted_to_losers(5).await, [40; 5], "round {round}");
            let (mut server, mut client) = host.accepted();
            if round == 0 {
                transfer(&mut server, &mut client, 60 * SEGMENT);
            } else {
                host.loses_some(&server, &mut client).await;
            }
        }
    });
}

#[test]
fn a_connection_that_is_refused_leaves_the_budget_as_it_is() {
    on_host(28, "careful", "cubic", ANY_RTT, async |mut host| {
        host.lease(25, Micros::from_secs(10)).await;
        let listener = listen(host.server);
        let (mut server, client) = host.connection(&listener);
        send_into_the_void(&mut server, &client, 35);
        // Far more than twice this is any round trip.
        host.lease(25, Micros(1)).await;
        let (mut refused, mut its_client) = host.connection(&listener);
        transfer(&mut refused, &mut its_client, 5 * SEGMENT);
        assert_eq!((host.counts("started"), host.counts("rtt_mismatch")), (1, 1));
        host.assert_leased(25, 25);
    });
}

#[test]
fn a_start_stays_inside_the_lease() {
    on_host(25, "careful", "cubic", ANY_RTT, async |mut host| {
        host.lease(25, Micros::from_millis(100)).await;
        let words = host.sent(5);
        // Ten by default and the lease; the threshold is the share's.
        assert!((35..=40).contains(&number(&words, "cwnd").unwrap()), "{words:?}");
        assert_eq!(number(&words, "ssthresh"), Some(100), "{words:?}");
        assert_eq!(host.counts("clipped_budget"), 1);
    });
}

#[test]
fn without_programs_the_agent_goes_on_without_advice_or_by_routes_or_ends() {
    in_namespace(|| async {
        let gateway = Gateway::start().await;
        for (fallback, method) in [("none", Some("dry_run")), ("route", Some("route")), ("exit", None)] {
            let mut agent = Agent::stopped();
            agent.configure(&gateway, "apply = \"bpf\"", &format!("[bpf]\nfallback = \"{fallback}\""));
            agent.run_by(Agent::limited("-all,+net_admin", "-all"));
            let Some(method) = method else {
                assert_eq!(agent.ended(), Some(1));
                continue;
            };
            eventually("it answers", || agent.output(&["status"]).status.success()).await;
            let status = agent.status();
            assert_eq!((&status["method"], &status["lacking"][0]["part"]), (&method.into(), &"programs".into()));
            let reason = status["lacking"][0]["reason"].as_str().unwrap();
            assert!(reason.starts_with("this process lacks CAP_BPF and CAP_PERFMON"), "{reason}");
            let doctor = agent.prints(&["doctor"]);
            assert!(doctor.lines().any(|line| line.starts_with("fail     kernel_programs")), "{doctor}");
            assert_eq!(agent.stop(), Some(0));
        }
    });
}

// A cgroup that somebody else's program holds for itself.

/// Commands of bpf(2).
const PROG_LOAD: i32 = 5;
const PROG_ATTACH: i32 = 8;

/// Attaches a `sock_ops` program that does nothing (`r0 = 1; exit`) to a cgroup, without `BPF_F_ALLOW_MULTI`; it goes with the cgroup.
fn attach_alone(name: &str, cgroup: &std::path::Path) {
    let instructions: [u64; 2] = [0x0000_0001_0000_00b7, 0x95];
    let licence = c"GPL";
    let mut load = [0_u8; 72];
    let mut put = |at: usize, bytes: &[u8]| load[at..at + bytes.len()].copy_from_slice(bytes);
    // Type and number of instructions, where they are, the licence, the name, and the kind of attachment.
    put(0, &13_u32.to_ne_bytes());
    put(4, &2_u32.to_ne_bytes());
    put(8, &(instructions.as_ptr() as u64).to_ne_bytes());
    put(16, &(licence.as_ptr() as u64).to_ne_bytes());
    put(48, name.as_bytes());
    put(68, &3_u32.to_ne_bytes());
    let program = bpf(PROG_LOAD, &load);
    let directory = std::fs::File::open(cgroup).unwrap();
    // SAFETY: the kernel gave this descriptor just now, and nobody else has it.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let attach: Vec<u8> =
        [directory.as_raw_fd(), program.as_raw_fd(), 3, 0].into_iter().flat_map(i32::to_ne_bytes).collect();
    bpf(PROG_ATTACH, &attach);
}

fn bpf(command: i32, attributes: &[u8]) -> i32 {
    // SAFETY: the attributes are as long as the call states, and what they point at lives on.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), attributes.len()) };
    assert!(done >= 0, "bpf {command}: {}", std::io::Error::last_os_error());
    i32::try_from(done).unwrap()
}

#[test]
fn a_program_that_holds_the_cgroup_for_itself_is_named_with_the_way_out() {
    in_namespace(|| async {
        let cgroup = Cgroup::new("exclusive");
        let inner = cgroup.0.join("service");
        std::fs::create_dir(&inner).unwrap();
        attach_alone("other_agent", &cgroup.0);
        let gateway = Gateway::start().await;
        let agent = Agent::stopped();
        let bpf = format!("[bpf]\nname = \"t103\"\nvariant = \"sockops\"\ncgroup = \"{}\"", inner.display());
        agent.configure(&gateway, "apply = \"bpf\"", &bpf);
        let (text, code) = agent.answer(&["run"]);
        assert_eq!(code, Some(1));
        assert_has(&text, &["`other_agent` (id ", "BPF_F_ALLOW_MULTI", inner.to_str().unwrap()]);
        let doctor = agent.prints(&["doctor"]);
        let fails = |line: &str| line.starts_with("fail     kernel_programs") && line.contains("`other_agent` (id ");
        assert!(doctor.lines().any(fails), "{doctor}");
        std::fs::remove_dir(&inner).unwrap();
    });
}
