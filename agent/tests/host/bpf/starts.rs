//! What a connection starts with, by what is known of it.

use super::*;

/// Window and threshold after one loss-free flight of `segments`: the window may have grown by then, the threshold not.
#[track_caller]
fn assert_started(case: &str, words: &[String], control: &str, window: u64, threshold: Option<u64>) {
    assert!(words.iter().any(|word| word == control), "{case}: not on {control}: {words:?}");
    let cwnd = number(words, "cwnd").unwrap();
    assert!((window..window + window / 2 + 2).contains(&cwnd), "{case}: cwnd is not about {window}: {words:?}");
    assert_eq!(number(words, "ssthresh"), threshold, "{case}: {words:?}");
}

#[test]
fn a_connection_starts_by_its_method_and_its_congestion_control() {
    for (case, number, mode, base, bpf, counted, control, window, threshold) in [
        ("share on CUBIC", 1, "paper", "cubic", "", "started", "t1_cubic", 40, Some(40)),
        ("share on Reno", 2, "paper", "reno", "", "started", "t2_reno", 40, Some(40)),
        ("handed over", 7, "paper", "cubic", "variant = \"hand_over\"", "started", "cubic", 40, None),
        ("round trip far from the estimate's", 22, "careful", "cubic", "", "rtt_mismatch", "t22_cubic", 10, None),
    ] {
        on_host(number, mode, base, bpf, async |host| {
            assert_started(case, &host.sent(if window == 40 { 40 } else { 5 }), control, window, threshold);
            let events = ["started", "rtt_mismatch"];
            assert_eq!(events.map(|name| host.counts(name)), events.map(|name| u64::from(name == counted)), "{case}");
        });
    }
}

#[test]
fn a_connection_that_this_host_opens_stays_inside_the_peers_first_window() {
    on_paper(3, async |mut host| {
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
    on_paper(4, async |host| {
        let (mut server, mut client) = host.accepted();
        for size in [20, 30] {
            state_size(&server, size * SEGMENT as u64).unwrap();
            transfer(&mut server, &mut client, usize::try_from(size).unwrap() * SEGMENT);
            assert_started("stated", &ss_words(&server), "t4_cubic", size, Some(size));
            // Longer than the retransmission timeout, which is 200 ms and a little.
            std::thread::sleep(Duration::from_millis(600));
        }
        // Nothing stated: as long as can be.
        transfer(&mut server, &mut client, 5 * SEGMENT);
        assert_eq!(number(&ss_words(&server), "ssthresh"), Some(40));
        assert_eq!((host.counts("started"), host.counts("restarted"), host.counts("stated_size")), (1, 2, 2));
    });
}

#[test]
fn a_size_stated_on_a_listening_socket_holds_for_what_it_accepts() {
    on_paper(5, async |host| {
        let listener = listen(host.server);
        state_size(&listener, 16 * SEGMENT as u64).unwrap();
        for _ in 0..2 {
            let (mut server, mut client) = host.connection(&listener);
            transfer(&mut server, &mut client, 16 * SEGMENT);
            assert_started("listening", &ss_words(&server), "t5_cubic", 16, Some(16));
        }
    });
}

#[test]
fn the_usual_size_of_the_service_counts_where_none_is_stated_until_it_ends() {
    on_paper(10, async |mut host| {
        let size = |segments: u64, lifetime_s| {
            let (quantile, lifetime) = (Bytes(segments * SEGMENT as u64), Micros::from_secs(lifetime_s));
            UpdateEvent::ServiceSize(ServiceSize { service: host.server, quantile, transfers: 9, lifetime })
        };
        for (usual, lifetime_s) in [(24, 60), (12, 4)] {
            host.stream.send(size(usual, lifetime_s)).await;
            eventually("the size counts", || host.threshold() == Some(usual)).await;
        }
        eventually("the size has ended", || host.threshold() == Some(40)).await;
    });
}

#[test]
fn socket_options_set_the_window_and_no_threshold() {
    on_host(8, "paper", "bbr", "variant = \"sockops\"", async |host| {
        let (mut server, mut client) = host.accepted();
        state_size(&server, 40 * SEGMENT as u64).unwrap();
        let words = ss_words(&server);
        assert!(words.iter().any(|word| word == "bbr"), "{words:?}");
        assert_eq!((number(&words, "cwnd"), number(&words, "ssthresh")), (Some(40), None), "{words:?}");
        transfer(&mut server, &mut client, 40 * SEGMENT);
        let status = host.agent.status();
        let limitations = status["limitations"].as_array().unwrap();
        assert_eq!(
            limitations.iter().map(|one| &one["name"]).collect::<Vec<_>>(),
            ["first_ten", "rate", "later_flights", "restart", "threshold"]
        );
    });
}

#[test]
fn an_applications_own_rate_limit_stays_as_it_is() {
    for (number, variant) in [(13, "hand_over"), (14, "sockops")] {
        on_host(number, "paper", "cubic", &format!("variant = \"{variant}\""), async |host| {
            // The accepted connection's own comes after its start.
            for (started, inherited, own) in [(1, Some(50_000_000), None), (2, None, Some(40_000_000))] {
                let listener = listen(host.server);
                if let Some(rate) = inherited {
                    limit_rate(&listener, rate);
                }
                let (mut server, mut client) = host.connection(&listener);
                if let Some(rate) = own {
                    limit_rate(&server, rate);
                }
                transfer(&mut server, &mut client, 40 * SEGMENT);
                let found = (host.counts("started"), Some(rate_limit(&server)));
                assert_eq!(found, (started, own.or(inherited)), "{variant}");
            }
        });
    }
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
            let words = ss(&["state", "syn-sent", "dst", &to.to_string()]);
            assert_eq!(number(&words, "rto"), Some(expected), "{words:?}");
        }
    });
}

#[test]
fn an_answer_to_a_request_is_repeated_after_the_estimates_time_at_every_listener() {
    on_paper(66, async |host| {
        let of_both = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        of_both.set_only_v6(false).unwrap();
        of_both.bind(&"[::]:8001".parse::<SocketAddr>().unwrap().into()).unwrap();
        of_both.listen(8).unwrap();
        let _of_one = listen(host.server);
        // Three round trips of 100 ms; and one second where nothing is known.
        let known = [(host.client, 2), (host.server.ip(), 1)];
        for ((from, expected), port) in known.into_iter().flat_map(|known| [(known, 8_000_u16), (known, 8_001)]) {
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
    on_host(12, "paper", "cubic", "window_option = true", async |mut host| {
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
        host.run_again(40).await;
        eventually("the next agent is in force", || host.agent.in_force() == 1).await;
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
    let option = header.get(20..)?.windows(12).find(|option| option.starts_with(&[254, 12, 0x53, 0x50]))?;
    let number = |at: usize| Some(u32::from_be_bytes(*option[at..].first_chunk()?));
    (header[..2] == from.to_be_bytes() && tcp.len() > header.len()).then_some((number(4)?, number(8)?))
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
        host.stream.advise(&host.network, 20, 60).await;
        let none = format!("{own}no jump, since half of the share is no larger");
        eventually("half of 20 is no jump", || model(&host) == none).await;
    });
}
