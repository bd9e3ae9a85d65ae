//! What becomes of a start's window after the first words: a TLS server's are few, and its answer leaves a round trip later.

use super::bbr::{after, bits_per_s};
use super::*;

/// The first words, and the client's after them: far fewer than any window.
fn first_words(server: &mut TcpStream, client: &mut TcpStream) {
    transfer(server, client, 3 * SEGMENT);
    transfer(client, server, 100);
}

#[test]
fn a_window_that_the_first_words_did_not_fill_is_paced_and_budgeted_when_it_leaves() {
    in_namespace(|| async {
        let mut host = Host::new(50, "careful", "cubic", "\n[policy]\nrtt_ratio_min = 0.0000001").await;
        let mut update = estimate(&host.network, 100, 60);
        // What is paced waits for seconds, and is seen to.
        update.estimate.rtt_mean = Some(Micros::from_secs(4));
        update.lease = Some(Segments(25));
        host.stream.send(UpdateEvent::Estimate(update)).await;
        eventually("the lease is known", || host.counts("networks_changed") == 1).await;
        // On a busy machine a pause can be longer than the retransmission timeout: then it is another start.
        for _ in 0..10 {
            let restarted = host.counts("restarted");
            let (mut server, mut client) = host.accepted();
            first_words(&mut server, &mut client);
            let before = under_way(&host);
            // Nothing of it waits for room.
            socket2::SockRef::from(&server).set_send_buffer_size(1 << 20).unwrap();
            // An acknowledgement would give the RTT of loopback, and the kernel would pace by that.
            lose_all(&client);
            server.write_all(&vec![7; 35 * SEGMENT]).unwrap();
            let (words, during) = (ss_words(&server), under_way(&host));
            if words.iter().any(|word| word.starts_with("retrans:")) || host.counts("restarted") > restarted {
                continue;
            }
            assert!(before.contains("0 of the lease of 25"), "{before}");
            assert!(during.contains("25 of the lease of 25"), "{during}");
            assert!(number(&words, "notsent") > Some(10 * SEGMENT as u64), "it left as one burst: {words:?}");
            // The share of 100 segments in a round trip of 4 s.
            let rate = bits_per_s(after(&words, "pacing_rate"));
            assert!((rate / (100.0 * SEGMENT as f64 * 8.0 / 4.0) - 1.0).abs() < 0.01, "{words:?}");
            return;
        }
        panic!("every pause was longer than the retransmission timeout");
    });
}

#[test]
fn a_window_that_finds_no_budget_any_more_leaves_as_the_hosts_own() {
    in_namespace(|| async {
        let mut host = Host::new(51, "careful", "cubic", "\n[policy]\nrtt_ratio_min = 0.0000001").await;
        let mut update = estimate(&host.network, 100, 60);
        update.estimate.rtt_mean = Some(Micros::from_secs(4));
        update.lease = Some(Segments(25));
        host.stream.send(UpdateEvent::Estimate(update)).await;
        eventually("the lease is known", || host.counts("networks_changed") == 1).await;
        let listener = listen(host.server);
        for _ in 0..10 {
            let restarted = host.counts("restarted");
            let (mut first, mut its_client) = host.connection(&listener);
            first_words(&mut first, &mut its_client);
            // Another takes all that there is.
            let (mut second, its_other_client) = host.connection(&listener);
            // What was acknowledged would be given back, and move the window.
            for (server, client) in [(&first, &its_client), (&second, &its_other_client)] {
                socket2::SockRef::from(server).set_send_buffer_size(1 << 20).unwrap();
                lose_all(client);
            }
            second.write_all(&vec![7; 35 * SEGMENT]).unwrap();
            first.write_all(&vec![7; 35 * SEGMENT]).unwrap();
            let words = ss_words(&first);
            if words.iter().any(|word| word.starts_with("retrans:")) || host.counts("restarted") > restarted {
                continue;
            }
            assert!(number(&words, "cwnd") < Some(30), "{words:?}");
            assert!(host.counts("clipped_budget") >= 3, "both starts, and what was left of the first");
            return;
        }
        panic!("every pause was longer than the retransmission timeout");
    });
}

#[test]
fn what_was_taken_in_the_half_before_is_given_back_to_it() {
    in_namespace(|| async {
        let mut host =
            Host::new(58, "careful", "cubic", "\n[policy]\ncap_segments = 30\nrtt_ratio_min = 0.0000001").await;
        let mut update = estimate(&host.network, 100, 60);
        // A half of the budget is two of these long.
        update.estimate.rtt_mean = Some(Micros::from_secs(2));
        update.lease = Some(Segments(30));
        host.stream.send(UpdateEvent::Estimate(update)).await;
        eventually("the lease is known", || host.counts("networks_changed") == 1).await;
        let listener = listen(host.server);
        let start = || {
            let (mut server, client) = host.connection(&listener);
            lose_all(&client);
            socket2::SockRef::from(&server).set_send_buffer_size(1 << 20).unwrap();
            server.write_all(&vec![7; 60 * SEGMENT]).unwrap();
            (server, client)
        };
        let (first, _its_client) = start();
        assert!(under_way(&host).contains("20 of the lease of 30"), "{}", under_way(&host));
        std::thread::sleep(Duration::from_millis(4_200));
        let _second = start();
        assert!(under_way(&host).contains("30 of the lease of 30"), "{}", under_way(&host));
        // It is reset, and what it was granted is free again.
        socket2::SockRef::from(&first).set_linger(Some(Duration::ZERO)).unwrap();
        drop(first);
        assert!(under_way(&host).contains("10 of the lease of 30"), "{}", under_way(&host));
    });
}

#[test]
fn first_words_that_arrive_do_not_end_a_row_of_losses() {
    in_namespace(|| async {
        let mut host = Host::new(52, "paper", "cubic", "").await;
        let mut granted = Vec::new();
        for _ in 0..6 {
            let (mut server, mut client) = host.accepted();
            first_words(&mut server, &mut client);
            let (server, mut client) = host.accepted();
            granted.push(host.loses(&server, &mut client).await.advised);
        }
        assert_eq!(granted, [Some(Segments(40)); 6]);
        let (mut server, mut client) = host.accepted();
        first_words(&mut server, &mut client);
        assert_eq!(number(&ss_words(&server), "ssthresh"), Some(10));
    });
}

#[test]
fn first_words_do_not_spend_a_stated_size() {
    in_namespace(|| async {
        let host = Host::new(53, "paper", "cubic", "").await;
        let started_with = |server: &TcpStream| number(&ss_words(server), "ssthresh");
        let (mut server, mut client) = host.accepted();
        state_size(&server, 20 * SEGMENT as u64).unwrap();
        first_words(&mut server, &mut client);
        // The client thinks for longer than the retransmission timeout.
        std::thread::sleep(Duration::from_millis(600));
        transfer(&mut server, &mut client, 20 * SEGMENT);
        assert_eq!(started_with(&server), Some(20));
        std::thread::sleep(Duration::from_millis(600));
        transfer(&mut server, &mut client, 3 * SEGMENT);
        assert_eq!(started_with(&server), Some(40), "spent by what it was stated for");

        let (mut server, mut client) = host.accepted();
        state_size(&server, 20 * SEGMENT as u64).unwrap();
        first_words(&mut server, &mut client);
        state_size(&server, 0).unwrap();
        std::thread::sleep(Duration::from_millis(600));
        transfer(&mut server, &mut client, 20 * SEGMENT);
        assert_eq!(started_with(&server), Some(40), "taken back");
    });
}

#[test]
fn a_loss_after_two_gibibytes_is_not_part_of_the_first_flight() {
    in_namespace(|| async {
        let host = Host::new(54, "paper", "cubic", "").await;
        // As fast as it goes.
        ip("link set lo mtu 65536 gso_max_segs 65535");
        let (mut server, client) = host.accepted();
        // Between half of the sequence numbers and all of them after the first flight.
        let (far, chunk) = (2_200 << 20, 1 << 20);
        let data = vec![7; chunk];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..far / chunk + 64 {
                    server.write_all(&data).unwrap();
                }
            });
            drain(&client, far);
            assert_eq!(host.counts("first_flight_loss"), 0, "before any loss");
            lose_a_fifth(&client);
            // More than waits in buffers.
            drain(&client, 24 * chunk);
            socket2::SockRef::from(&client).detach_filter().unwrap();
            drain(&client, 40 * chunk);
        });
        let lost = ss_words(&server).iter().any(|word| word.starts_with("retrans:"));
        assert!(lost, "nothing was lost: {:?}", ss_words(&server));
        assert_eq!(host.counts("first_flight_loss"), 0);
    });
}

/// Reads and discards N bytes.
fn drain(from: &TcpStream, mut bytes: usize) {
    while bytes > 0 {
        // SAFETY: with MSG_TRUNC the kernel of a TCP socket writes nothing.
        let read = unsafe { libc::recv(from.as_raw_fd(), std::ptr::null_mut(), bytes.min(1 << 20), libc::MSG_TRUNC) };
        bytes -= usize::try_from(read).ok().filter(|read| *read > 0).expect("the stream goes on");
    }
}
