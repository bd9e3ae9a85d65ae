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
    on_host(50, "careful", "cubic", ANY_RTT, async |mut host| {
        // What is paced waits for seconds, and is seen to.
        host.lease(25, Micros::from_secs(4)).await;
        // On a busy machine a pause can be longer than the retransmission timeout: then it is another start.
        for _ in 0..10 {
            let restarted = host.counts("restarted");
            let (mut server, mut client) = host.accepted();
            first_words(&mut server, &mut client);
            let before = under_way(&host);
            // An acknowledgement would give the RTT of loopback, and the kernel would pace by that.
            send_into_the_void(&mut server, &client, 35);
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
    on_host(51, "careful", "cubic", ANY_RTT, async |mut host| {
        host.lease(25, Micros::from_secs(4)).await;
        let listener = listen(host.server);
        for _ in 0..10 {
            let restarted = host.counts("restarted");
            let (mut first, mut its_client) = host.connection(&listener);
            first_words(&mut first, &mut its_client);
            // Another takes all that there is.
            let (mut second, its_other_client) = host.connection(&listener);
            // What was acknowledged would be given back, and move the window.
            send_into_the_void(&mut second, &its_other_client, 35);
            send_into_the_void(&mut first, &its_client, 35);
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
    on_host(58, "careful", "cubic", "\n[policy]\ncap_segments = 30\nrtt_ratio_min = 0.0000001", async |mut host| {
        // A half of the budget is two of these long.
        host.lease(30, Micros::from_secs(2)).await;
        let listener = listen(host.server);
        let start = || {
            let (mut server, client) = host.connection(&listener);
            send_into_the_void(&mut server, &client, 60);
            (server, client)
        };
        let (first, _its_client) = start();
        host.assert_leased(20, 30);
        std::thread::sleep(Duration::from_millis(4_200));
        let _second = start();
        host.assert_leased(30, 30);
        // What it was granted is free again.
        reset(first);
        host.assert_leased(10, 30);
    });
}

#[test]
fn first_words_that_arrive_do_not_end_a_row_of_losses() {
    on_paper(52, async |mut host| {
        for _ in 0..6 {
            let (mut server, mut client) = host.accepted();
            first_words(&mut server, &mut client);
            assert_eq!(host.granted_to_losers(1).await, [40]);
        }
        let (mut server, mut client) = host.accepted();
        first_words(&mut server, &mut client);
        assert_eq!(number(&ss_words(&server), "ssthresh"), Some(10));
    });
}

#[test]
fn first_words_do_not_spend_a_stated_size() {
    on_paper(53, async |host| {
        for (second_size, threshold) in [(None, 20), (Some(0), 40)] {
            let (mut server, mut client) = host.accepted();
            state_size(&server, 20 * SEGMENT as u64).unwrap();
            first_words(&mut server, &mut client);
            // Zero takes it back.
            second_size.map_or(Ok(()), |size| state_size(&server, size)).unwrap();
            // It is spent by what it was stated for.
            for (segments, threshold) in [(20, threshold), (3, 40)] {
                // The client thinks for longer than the retransmission timeout.
                std::thread::sleep(Duration::from_millis(600));
                transfer(&mut server, &mut client, segments * SEGMENT);
                let found = number(&ss_words(&server), "ssthresh");
                assert_eq!(found, Some(threshold), "{second_size:?}, {segments} segments");
            }
        }
    });
}

#[test]
fn a_loss_after_two_gibibytes_is_not_part_of_the_first_flight() {
    on_paper(54, async |host| {
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
            // BPF's random number is one of its ancillary loads.
            let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM).cast_unsigned();
            let greater = libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K;
            let [kept, lost] = [u32::MAX, 0].map(|returned| (RETURN, 0, 0, returned));
            // A fifth of what comes in.
            lose(&client, &[(LOAD, 0, 0, random), (greater, 1, 0, u32::MAX / 5), lost, kept]);
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
