//! What a connection starts with, by what is known of it.

use super::*;

/// Window and threshold after one loss-free flight of `segments`: the window may have grown by then, the threshold not.
#[track_caller]
fn assert_started(words: &[String], control: &str, window: u64, threshold: Option<u64>) {
    assert!(words.iter().any(|word| word == control), "not on {control}: {words:?}");
    let cwnd = number(words, "cwnd").unwrap();
    assert!((window..window + window / 2 + 2).contains(&cwnd), "cwnd is not about {window}: {words:?}");
    assert_eq!(number(words, "ssthresh"), threshold, "{words:?}");
}

#[test]
fn a_connection_starts_at_the_share_in_congestion_avoidance() {
    in_namespace(|| async {
        let host = Host::new(1, "paper", "cubic", "").await;
        for (started, base) in [(1, "cubic"), (2, "reno")] {
            ip(&format!("route replace local {} dev lo table local congctl {base}", host.client));
            let (mut server, mut client) = host.accepted();
            transfer(&mut server, &mut client, 40 * SEGMENT);
            assert_started(&ss_words(&server), &format!("t1_{base}"), 40, Some(40));
            assert_eq!(host.counts("started"), started);
        }
    });
}

#[test]
fn a_connection_that_this_host_opens_stays_inside_the_peers_first_window() {
    in_namespace(|| async {
        let mut host = Host::new(3, "paper", "cubic", "").await;
        host.advise(&[(&host.network.clone(), 60)]).await;
        let listener = TcpListener::bind(SocketAddr::new(host.client, 8_000)).unwrap();
        let mut ours = connect(bound(host.server.ip()), listener.local_addr().unwrap());
        let mut peer = listener.accept().unwrap().0;
        transfer(&mut ours, &mut peer, 4 * SEGMENT);
        let words = ss_words(&ours);
        let cwnd = number(&words, "cwnd").unwrap();
        // A SYN-ACK's window is never scaled: at most 65,535 bytes.
        assert!((44..=50).contains(&cwnd), "{words:?}");
        assert_eq!(number(&words, "ssthresh"), Some(60), "a clipped start keeps its threshold: {words:?}");
        assert_eq!(host.counts("clipped_peer_window"), 1);
    });
}

#[test]
fn a_stated_size_decides_the_first_transfer_and_the_one_after_an_idle_time() {
    in_namespace(|| async {
        let host = Host::new(4, "paper", "cubic", "").await;
        let (mut server, mut client) = host.accepted();
        state_size(&server, 20 * SEGMENT as u64).unwrap();
        transfer(&mut server, &mut client, 20 * SEGMENT);
        assert_started(&ss_words(&server), "t4_cubic", 20, Some(20));
        // Longer than the retransmission timeout, which is 200 ms and a little.
        std::thread::sleep(Duration::from_millis(600));
        state_size(&server, 30 * SEGMENT as u64).unwrap();
        transfer(&mut server, &mut client, 30 * SEGMENT);
        assert_started(&ss_words(&server), "t4_cubic", 30, Some(30));
        std::thread::sleep(Duration::from_millis(600));
        // Nothing stated: as long as can be.
        transfer(&mut server, &mut client, 5 * SEGMENT);
        assert_eq!(number(&ss_words(&server), "ssthresh"), Some(40));
        assert_eq!((host.counts("started"), host.counts("restarted"), host.counts("stated_size")), (1, 2, 2));
    });
}

#[test]
fn a_size_stated_on_a_listening_socket_holds_for_what_it_accepts() {
    in_namespace(|| async {
        let host = Host::new(5, "paper", "cubic", "").await;
        let listener = listen(host.server);
        state_size(&listener, 16 * SEGMENT as u64).unwrap();
        for _ in 0..2 {
            let (mut server, mut client) = host.connection(&listener);
            transfer(&mut server, &mut client, 16 * SEGMENT);
            assert_started(&ss_words(&server), "t5_cubic", 16, Some(16));
        }
    });
}

#[test]
fn the_usual_size_of_the_service_counts_where_none_is_stated_until_it_ends() {
    in_namespace(|| async {
        let mut host = Host::new(10, "paper", "cubic", "").await;
        let size = |segments: u64, lifetime_s| {
            let (quantile, lifetime) = (Bytes(segments * SEGMENT as u64), Micros::from_secs(lifetime_s));
            UpdateEvent::ServiceSize(ServiceSize { service: host.server, quantile, transfers: 9, lifetime })
        };
        let starts_for = |host: &Host, segments: u64| {
            let (mut server, mut client) = host.accepted();
            transfer(&mut server, &mut client, 5 * SEGMENT);
            number(&ss_words(&server), "ssthresh") == Some(segments)
        };
        for (usual, lifetime_s) in [(24, 60), (12, 4)] {
            host.stream.send(size(usual, lifetime_s)).await;
            eventually("the size counts", || starts_for(&host, usual)).await;
        }
        eventually("the size has ended", || starts_for(&host, 40)).await;
    });
}

#[test]
fn a_size_without_an_agent_or_in_another_form_is_refused_and_nothing_breaks() {
    in_namespace(|| async {
        let mut host = Host::new(6, "paper", "cubic", "").await;
        let (mut server, mut client) = host.accepted();
        assert_eq!(option(&server, 1, &[1, 2, 3]), Err(libc::EPERM), "three bytes are no size");
        assert_eq!(option(&server, 9, &[0; 8]), Err(libc::EPERM), "no such option");
        assert_eq!(host.agent.stop(), Some(0));
        assert_eq!(state_size(&server, 1), Err(libc::ENOPROTOOPT));
        transfer(&mut server, &mut client, 3 * SEGMENT);
    });
}

#[test]
fn after_the_hand_over_the_connection_is_the_hosts_own() {
    in_namespace(|| async {
        let host = Host::new(7, "paper", "cubic", "variant = \"hand_over\"").await;
        let (mut server, mut client) = host.accepted();
        transfer(&mut server, &mut client, 40 * SEGMENT);
        assert_started(&ss_words(&server), "cubic", 40, None);
    });
}

#[test]
fn socket_options_set_the_window_and_no_threshold() {
    in_namespace(|| async {
        let host = Host::new(8, "paper", "bbr", "variant = \"sockops\"").await;
        let (mut server, mut client) = host.accepted();
        state_size(&server, 40 * SEGMENT as u64).unwrap();
        let words = ss_words(&server);
        assert!(words.iter().any(|word| word == "bbr"), "{words:?}");
        assert_eq!((number(&words, "cwnd"), number(&words, "ssthresh")), (Some(40), None), "{words:?}");
        transfer(&mut server, &mut client, 40 * SEGMENT);
        let status = host.agent.json(&["status", "--json"]);
        let lacks: Vec<&str> =
            status["limitations"].as_array().unwrap().iter().filter_map(|l| l["name"].as_str()).collect();
        assert_eq!(lacks, ["first_ten", "rate", "later_flights", "restart", "threshold"]);
    });
}

#[test]
fn an_applications_own_rate_limit_stays_as_it_is() {
    in_namespace(|| async {
        for (number, variant) in [(13, "hand_over"), (14, "sockops")] {
            let host = Host::new(number, "paper", "cubic", &format!("variant = \"{variant}\"")).await;
            let listener = listen(host.server);
            limit_rate(&listener, 50_000_000);
            let (mut server, mut client) = host.connection(&listener);
            transfer(&mut server, &mut client, 40 * SEGMENT);
            assert_eq!(host.counts("started"), 1);
            assert_eq!(rate_limit(&server), 50_000_000, "{variant}");
            drop(listener);
            // One of the accepted connection's own, that comes after its start.
            let (mut server, mut client) = host.accepted();
            limit_rate(&server, 40_000_000);
            transfer(&mut server, &mut client, 40 * SEGMENT);
            assert_eq!(host.counts("started"), 2);
            assert_eq!(rate_limit(&server), 40_000_000, "{variant}");
        }
    });
}

#[test]
fn a_share_that_no_loss_backs_leaves_the_threshold_open() {
    in_namespace(|| async {
        // A loopback's round trip passes against an estimate of 100 ms.
        let mut host = Host::new(15, "careful", "cubic", "\n[policy]\nrtt_ratio_min = 0.000002").await;
        let mut update = estimate(&host.network, 40, 60);
        update.estimate.loss_connections = 0;
        host.stream.send(UpdateEvent::Estimate(update)).await;
        eventually("it is known", || host.counts("networks_changed") == 1).await;
        let (mut server, mut client) = host.accepted();
        transfer(&mut server, &mut client, 5 * SEGMENT);
        let words = ss_words(&server);
        assert_eq!((number(&words, "cwnd"), number(&words, "ssthresh")), (Some(40), None), "{words:?}");
    });
}

#[test]
fn ipv6_connections_start_too() {
    in_namespace(|| async {
        let mut host = Host::new(9, "paper", "cubic", "").await;
        let (server, client) = ("2001:db8:9:1::1", "2001:db8:99:1::1");
        for address in [server, client] {
            ip(&format!("addr add {address}/128 dev lo nodad"));
            // The kernel's own comes a moment after its address.
            let remove = format!("-6 route del local {address} dev lo table local");
            eventually("the kernel's own route", || try_ip(&remove).is_ok()).await;
            ip(&format!("-6 route add local {address} dev lo table local congctl cubic"));
        }
        host.advise(&[("2001:db8:99::/48", 30)]).await;
        host.server = SocketAddr::new(server.parse().unwrap(), 8_000);
        host.client = client.parse().unwrap();
        let (mut server, mut client) = host.accepted();
        transfer(&mut server, &mut client, 10 * SEGMENT);
        assert_eq!(number(&ss_words(&server), "ssthresh"), Some(30));
    });
}

#[test]
fn the_first_timeout_comes_from_the_estimate() {
    in_namespace(|| async {
        // Nobody is at the other end.
        ip("link add nowhere type veth peer name nobody");
        ip("link set nowhere up");
        ip("link set nobody up");
        ip("addr add 10.85.0.1/24 dev nowhere");
        let mut host = Host::new(11, "paper", "cubic", "").await;
        host.advise(&[("10.85.1.0/24", 40)]).await;
        ip("route add 10.85.0.0/16 dev nowhere");
        ip("neigh add 10.85.1.9 lladdr 02:00:00:00:00:01 dev nowhere");
        ip("neigh add 10.85.2.9 lladdr 02:00:00:00:00:01 dev nowhere");
        // Three round trips of 100 ms; and one second where nothing is known.
        for (to, expected) in [("10.85.1.9:80", 300), ("10.85.2.9:80", 1_000)] {
            let socket = bound("10.85.0.1".parse().unwrap());
            socket.set_nonblocking(true).unwrap();
            let to: SocketAddr = to.parse().unwrap();
            assert_eq!(socket.connect(&to.into()).unwrap_err().raw_os_error(), Some(libc::EINPROGRESS));
            let output =
                Command::new("ss").args(["-tinH", "state", "syn-sent", "dst", &to.to_string()]).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            assert_eq!(number(&words, "rto"), Some(expected), "{text}");
        }
    });
}

#[test]
fn an_answer_to_a_request_is_repeated_after_the_estimates_time_at_every_listener() {
    in_namespace(|| async {
        let host = Host::new(66, "paper", "cubic", "").await;
        let of_both = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        of_both.set_only_v6(false).unwrap();
        of_both.bind(&"[::]:8001".parse::<SocketAddr>().unwrap().into()).unwrap();
        of_both.listen(8).unwrap();
        let _of_one = listen(host.server);
        // Three round trips of 100 ms; and one second where nothing is known.
        for (from, port, expected) in [
            (host.client, 8_000, 2),
            (host.client, 8_001, 2),
            (host.server.ip(), 8_000, 1),
            (host.server.ip(), 8_001, 1),
        ] {
            let asked = || {
                let (begun, client) = (Instant::now(), bound(from));
                let own = client.local_addr().unwrap().as_socket().unwrap().port();
                let frames = sniff(|| {
                    // No answer reaches it.
                    lose_all(&client);
                    client.set_nonblocking(true).unwrap();
                    let started = client.connect(&SocketAddr::new(host.server.ip(), port).into());
                    assert_eq!(started.unwrap_err().raw_os_error(), Some(libc::EINPROGRESS));
                    std::thread::sleep(Duration::from_millis(600));
                });
                // A third one follows the second after 600 ms more; on a busy machine the pause may be longer than that.
                (begun.elapsed() < Duration::from_millis(850)).then_some((frames, own))
            };
            let (frames, own) = (0..10).find_map(|_| asked()).expect("no pause was short enough");
            // SYN and ACK; on this device each frame is seen as it leaves and as it arrives.
            let answers = frames.iter().filter(|frame| {
                frame.get(34..36) == Some(&port.to_be_bytes())
                    && frame.get(36..38) == Some(&own.to_be_bytes())
                    && frame.get(47).is_some_and(|flags| flags & 0x3f == 0x12)
            });
            assert_eq!(answers.count(), 2 * expected, "from {from} to port {port}");
        }
    });
}

#[test]
fn segments_tell_window_and_round_trip_where_that_is_asked_for() {
    in_namespace(|| async {
        let mut host = Host::new(12, "paper", "cubic", "window_option = true").await;
        let (mut server, mut client) = host.accepted();
        let seen = sniff(|| transfer(&mut server, &mut client, 5 * SEGMENT));
        let sent: Vec<(u32, u32)> = seen.iter().filter_map(|frame| option_of(frame, host.server.port())).collect();
        assert!(!sent.is_empty(), "{} frames and no option", seen.len());
        let largest = sent.iter().map(|(window, _)| *window).max().unwrap();
        // The first segment was built before its window was set. Options make each segment twelve bytes smaller.
        let segment = u32::try_from(SEGMENT).unwrap() - 12;
        assert!((40 * segment..60 * segment).contains(&largest), "{sent:?}");
        assert!(sent.iter().all(|(_, rtt_us)| *rtt_us < 100_000), "{sent:?}");

        // The next agent does not, and the connection has not forgotten the last one.
        assert_eq!(host.agent.stop(), Some(0));
        host.agent.configure(&host.gateway, "mode = \"paper\"\napply = \"bpf\"", "[bpf]\nname = \"t12\"");
        host.agent.run();
        host.stream = host.gateway.snapshot(&[estimate(&host.network, 40, 60)]).await;
        eventually("the next agent is in force", || in_force(&host.agent) == 1).await;
        let seen = sniff(|| transfer(&mut server, &mut client, 5 * SEGMENT));
        assert!(!seen.is_empty());
        assert_eq!(seen.iter().filter_map(|frame| option_of(frame, host.server.port())).count(), 0);
    });
}

/// The frames that pass the loopback device meanwhile.
fn sniff(meanwhile: impl FnOnce()) -> Vec<Vec<u8>> {
    let all = i32::from(0x0003_u16.to_be());
    let socket = socket2::Socket::new(socket2::Domain::PACKET, socket2::Type::RAW, Some(socket2::Protocol::from(all)));
    let socket = socket.unwrap();
    socket.set_nonblocking(true).unwrap();
    meanwhile();
    let mut frames = Vec::new();
    let mut buffer = vec![0; 70_000];
    while let Ok(length) = (&socket).read(&mut buffer) {
        frames.push(buffer[..length].to_vec());
    }
    frames
}

/// Window and round trip of an IPv4 segment with data from this port, where it has the option.
fn option_of(frame: &[u8], from: u16) -> Option<(u32, u32)> {
    let tcp = frame.get(14 + 20..)?;
    let header = tcp.get(..usize::from(tcp.get(12)? >> 4) * 4)?;
    if header.get(..2)? != from.to_be_bytes() || tcp.len() == header.len() {
        return None;
    }
    let mut options = header.get(20..)?;
    while let [kind, rest @ ..] = options {
        if *kind == 1 {
            options = rest;
            continue;
        }
        let length = usize::from(*rest.first()?);
        if *kind == 254 && length == 12 && options.get(2..4)? == [0x53, 0x50] {
            let number = |at: usize| Some(u32::from_be_bytes(*options.get(at..)?.first_chunk()?));
            return Some((number(4)?, number(8)?));
        }
        options = options.get(length..)?;
    }
    None
}

#[test]
fn careful_resume_is_explained_by_the_window_before_its_jump_and_the_jump() {
    in_namespace(|| async {
        let sections = "control_fraction = 0.0\n[start]\nrule = \"rfc9959\"\n";
        let mut host = Host::with(98, "careful", "cubic", sections).await;
        let model = |host: &Host| {
            let explained = host.agent.json(&["explain", &host.client.to_string(), "--json"]);
            let step = explained["steps"].as_array().unwrap().iter().find(|step| step["name"] == "model");
            step.unwrap_or_else(|| panic!("{explained}"))["text"].as_str().unwrap().to_owned()
        };
        let own = "shape rfc9959: the host's own window, 10 segments; ";
        let jump = "once they have arrived and the RTT is confirmed, a jump to 20 segments, paced";
        assert_eq!(model(&host), format!("{own}{jump}"), "half of 40");
        let small = estimate(&host.network, 20, 60);
        host.stream.send(UpdateEvent::Estimate(small)).await;
        let none = format!("{own}no jump, since half of the share is no larger");
        eventually("half of 20 is no jump", || model(&host) == none).await;
    });
}
