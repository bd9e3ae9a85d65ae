//! Connections on BBR where `bpf.bbr` is `full`: they start whole on a congestion control of ours, and end on the kernel's own.

use super::*;

fn control(words: &[String]) -> &str {
    words.iter().find(|word| word.ends_with("bbr")).expect("a socket on BBR")
}

/// Bandwidth and pacing gain of the kernel's own BBR: `bbr:(bw:23.1Mbps,mrtt:0.04,pacing_gain:1,cwnd_gain:2)`; `None` where that is not shown.
fn own_bbr(words: &[String]) -> Option<(f64, f64)> {
    let shown = words.iter().find_map(|word| word.strip_prefix("bbr:(")?.strip_suffix(')'))?;
    let value = |name: &str| shown.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix(':'));
    Some((bits_per_s(value("bw")?), value("pacing_gain")?.parse().unwrap()))
}

/// A rate as `ss` writes it.
pub(super) fn bits_per_s(text: &str) -> f64 {
    let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap());
    let units = [("bps", 1.0), ("Kbps", 1e3), ("Mbps", 1e6), ("Gbps", 1e9)];
    number.parse::<f64>().unwrap() * units.iter().find(|(name, _)| *name == unit).unwrap().1
}

/// The word that follows this one.
pub(super) fn after<'a>(words: &'a [String], name: &str) -> &'a str {
    let place = words.iter().position(|word| word == name).expect("a socket that is paced");
    &words[place + 1]
}

/// What a share of N segments is in bits per second, by the round trip that `ss` shows.
fn rate_of(segments: f64, words: &[String]) -> f64 {
    let rtt = words.iter().find_map(|word| word.strip_prefix("rtt:")).unwrap();
    let rtt_ms: f64 = rtt.split('/').next().unwrap().parse().unwrap();
    segments * SEGMENT as f64 * 8.0 / (rtt_ms / 1e3)
}

fn is_near(found: f64, expected: f64) -> bool {
    // The kernel's round trip is in eighths of a microsecond, what `ss` shows in whole ones.
    (found / expected - 1.0).abs() < 0.1
}

/// One segment a round trip, so that BBR measures nothing above what it goes on from, until the kernel's own has the connection.
fn trickle(server: &mut TcpStream, client: &mut TcpStream) -> Vec<String> {
    for _ in 0..100 {
        let words = ss_words(server);
        if control(&words) == "bbr" {
            return words;
        }
        transfer(server, client, SEGMENT);
    }
    panic!("not handed over: {:?}", ss_words(server));
}

#[test]
fn a_connection_on_bbr_starts_whole_and_ends_on_the_kernels_own_with_what_it_started_from() {
    on_host(110, "paper", "bbr", "bbr = \"full\"", async |host| {
        let (mut server, client) = host.accepted();
        // Nothing comes back: what is seen is the start.
        lose_all(&client);
        let before = ss_words(&server);
        server.write_all(&[7; 4 * SEGMENT]).unwrap();
        let words = ss_words(&server);
        assert_eq!((control(&words), number(&words, "cwnd"), number(&words, "ssthresh")), ("t110_bbr", Some(40), None));
        let rate = bits_per_s(after(&words, "pacing_rate"));
        assert!(is_near(rate, rate_of(0.95 * 40.0, &before)), "{rate}: {words:?}");
        drop((server, client));

        let (mut server, mut client) = host.accepted();
        let before = ss_words(&server);
        let words = trickle(&mut server, &mut client);
        let (bandwidth, pacing_gain) = own_bbr(&words).unwrap();
        assert!(is_near(bandwidth, rate_of(40.0, &before)), "{words:?}");
        // A BBR that began here would search, at 2.88.
        assert!(pacing_gain <= 1.25, "{words:?}");
        let counts =
            ["started", "bbr_seeded", "bbr_handed_over", "other_congestion_control"].map(|name| host.counts(name));
        assert_eq!(counts, [2, 2, 1, 0]);
    });
}

#[test]
fn after_an_idle_time_nothing_is_set_before_the_hand_over_and_after_it() {
    on_host(111, "paper", "bbr", "bbr = \"full\"", async |host| {
        let (mut server, mut client) = host.accepted();
        for on in ["t111_bbr", "bbr"] {
            if on == "bbr" {
                trickle(&mut server, &mut client);
            } else {
                transfer(&mut server, &mut client, SEGMENT);
            }
            let before = ss_words(&server);
            std::thread::sleep(Duration::from_millis(500));
            transfer(&mut server, &mut client, SEGMENT);
            let words = ss_words(&server);
            assert_eq!((control(&before), control(&words)), (on, on));
            let [before, after] = [before, words].map(|words| own_bbr(&words).map(|(bandwidth, _)| bandwidth));
            assert_eq!((after.is_some(), after), (on == "bbr", before), "the estimate stays");
        }
        assert_eq!(["started", "restarted", "bbr_seeded"].map(|name| host.counts(name)), [1, 0, 1]);
    });
}

#[test]
fn controls_and_refused_connections_are_plain_bbr_from_the_first_segment_to_the_last() {
    in_namespace(|| async {
        for (number, mode, controls, counted) in
            [(112, "paper", "1.0", "control"), (113, "careful", "0.0", "rtt_mismatch")]
        {
            let host = Host::with(number, mode, "bbr", &format!("bbr = \"full\"\ncontrol_fraction = {controls}")).await;
            let (mut server, mut client) = host.accepted();
            if counted == "control" {
                assert_eq!(control(&ss_words(&server)), "bbr");
            }
            send_into_the_void(&mut server, &client, 4);
            let words = ss_words(&server);
            assert_eq!((control(&words), super::number(&words, "cwnd")), ("bbr", Some(10)), "{counted}: {words:?}");
            socket2::SockRef::from(&client).detach_filter().unwrap();
            client.read_exact(&mut [0; 4 * SEGMENT]).unwrap();
            for _ in 0..30 {
                transfer(&mut server, &mut client, SEGMENT);
                assert_eq!(control(&ss_words(&server)), "bbr");
            }
            let counts = [counted, "started", "bbr_seeded", "bbr_handed_over"].map(|name| host.counts(name));
            assert_eq!(counts, [1, 0, 0, 0], "{counted}");
        }
    });
}

#[test]
fn connections_on_bbr_get_a_window_alone_where_that_is_asked_for_or_socket_options_are() {
    for (number, bpf) in [(114, "bbr = \"window\""), (115, "bbr = \"full\"\nvariant = \"sockops\"")] {
        on_host(number, "paper", "bbr", bpf, async |host| {
            let (.., words) = host.unanswered(1);
            assert_eq!((control(&words), super::number(&words, "cwnd")), ("bbr", Some(40)), "{words:?}");
            assert_eq!(["started", "bbr_seeded"].map(|name| host.counts(name)), [1, 0]);
            let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
            assert!(!available.contains(&format!("t{number}_bbr")), "{available}");
        });
    }
}

#[test]
fn connections_on_cubic_start_as_before_where_bbr_is_started_whole() {
    on_host(116, "paper", "cubic", "bbr = \"full\"", async |host| {
        let words = host.sent(40);
        assert!(words.iter().any(|word| word == "t116_cubic"), "{words:?}");
        assert_eq!(number(&words, "ssthresh"), Some(40), "{words:?}");
        assert_eq!(["started", "bbr_seeded"].map(|name| host.counts(name)), [1, 0]);
    });
}
