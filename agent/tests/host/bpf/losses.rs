//! What losses in first flights hold back on this host: those of one client its own advice, those of two clients their network's.

use super::*;

impl Host {
    /// One more address in the peer's network, from which the next connections come.
    fn move_to(&mut self, client: &str) {
        if try_ip(&format!("addr add {client}/32 dev lo")).is_ok() {
            ip(&format!("route replace local {client} dev lo table local congctl cubic"));
        }
        self.client = client.parse().unwrap();
    }

    /// What transfers of the present client are granted that lose most of their first flights, one after another.
    async fn granted_to_losers(&mut self, transfers: usize) -> Vec<u32> {
        let mut granted = Vec::new();
        for _ in 0..transfers {
            let (server, mut client) = self.accepted();
            granted.push(self.loses(&server, &mut client).await.advised.unwrap().0);
        }
        granted
    }

    /// The threshold of a start that the present client gets. What it sends does not depend on the start.
    fn threshold(&self) -> Option<u64> {
        self.start().1
    }

    /// Its window and threshold.
    fn start(&self) -> (Option<u64>, Option<u64>) {
        let (mut server, mut client) = self.accepted();
        transfer(&mut server, &mut client, 3 * SEGMENT);
        let words = ss_words(&server);
        (number(&words, "cwnd"), number(&words, "ssthresh"))
    }
}

#[test]
fn losses_of_one_client_hold_back_its_own_advice_and_not_its_neighbours() {
    in_namespace(|| async {
        let mut host = Host::new(101, "paper", "cubic", "").await;
        let one = host.client.to_string();
        assert_eq!(host.granted_to_losers(6).await, [40; 6]);
        host.move_to("10.84.101.2");
        assert_eq!((host.threshold(), host.counts("retreated")), (Some(40), 0), "a neighbour has lost nothing");
        host.move_to(&one);
        assert_eq!((host.start(), host.counts("retreated")), ((Some(10), Some(10)), 1));
    });
}

#[test]
fn losses_of_two_clients_hold_back_the_advice_of_their_network() {
    in_namespace(|| async {
        let mut host = Host::new(78, "paper", "cubic", "").await;
        for client in [1, 2] {
            host.move_to(&format!("10.84.78.{client}"));
            assert_eq!(host.granted_to_losers(3).await, [40; 3]);
        }
        host.move_to("10.84.78.3");
        assert_eq!(host.start(), (Some(10), Some(10)), "a third one has lost nothing: it is the network's");
        assert_eq!(host.counts("retreated"), 1);
        // A start no larger than any host's arrives whole on a path that a larger one is too much for.
        let (mut server, mut client) = host.accepted();
        transfer(&mut server, &mut client, 60 * SEGMENT);
        assert_eq!(host.start(), (Some(10), Some(10)));
    });
}

#[test]
fn first_flights_that_lose_no_more_than_half_hold_back_no_advice() {
    in_namespace(|| async {
        let mut host = Host::new(82, "paper", "cubic", "").await;
        for _ in 0..7 {
            let (server, mut client) = host.accepted();
            host.loses_some(&server, &mut client).await;
        }
        assert_eq!((host.counts("first_flight_loss"), host.counts("retreated")), (7, 0));
        assert_eq!(host.threshold(), Some(40));
        let reports = host.reported(8).await;
        let lost: Vec<_> = reports.iter().filter_map(|report| report.first_flight).collect();
        assert_eq!(lost.len(), 7, "{reports:?}");
        for FirstFlightLoss { sent, lost } in lost {
            assert!(sent <= Segments(40) && (1..=sent.0 / 2).contains(&lost.0), "{lost} of {sent}");
        }
        assert!(reports.iter().all(|report| report.duration.is_some()), "at the transfer's end: {reports:?}");
    });
}

#[test]
fn a_first_flight_of_which_nothing_arrives_is_lost() {
    in_namespace(|| async {
        let mut host = Host::new(83, "paper", "cubic", "").await;
        let (mut server, client) = host.accepted();
        socket2::SockRef::from(&server).set_send_buffer_size(1 << 20).unwrap();
        lose_all(&client);
        server.write_all(&vec![7; 60 * SEGMENT]).unwrap();
        let report = host.reported_at_once(&client).await;
        let all = FirstFlightLoss { sent: Segments(40), lost: Segments(40) };
        assert_eq!((report.first_flight, report.acknowledged.0), (Some(all), 0));
    });
}

#[test]
fn a_network_that_is_held_back_has_a_threshold_although_no_sender_lost() {
    in_namespace(|| async {
        let mut host = Host::new(102, "careful", "cubic", "\n[policy]\nrtt_ratio_min = 0.0000001").await;
        let mut update = estimate(&host.network, 44, 60);
        (update.estimate.loss_connections, update.estimate.losses) = (0, 0);
        host.stream.send(UpdateEvent::Estimate(update)).await;
        eventually("a start without a threshold", || host.threshold().is_none()).await;
        assert_eq!(host.granted_to_losers(6).await, [44; 6]);
        assert_eq!(host.start(), (Some(10), Some(10)));
    });
}

#[test]
fn an_address_with_advice_of_its_own_starts_on_it_and_its_neighbours_on_their_networks() {
    in_namespace(|| async {
        let mut host = Host::new(79, "paper", "cubic", "").await;
        let own = format!("{}/32", host.client);
        host.advise(&[(&own, 20)]).await;
        assert_eq!(host.threshold(), Some(20));
        host.move_to("10.84.79.2");
        assert_eq!(host.threshold(), Some(40));
        let reason = WithdrawalReason::Expired;
        host.stream.send(UpdateEvent::Withdrawal { network: own.parse().unwrap(), reason }).await;
        eventually("the address has none any more", || in_force(&host.agent) == 1).await;
        host.move_to("10.84.79.1");
        assert_eq!(host.threshold(), Some(40));
    });
}

#[test]
fn a_64_of_ipv6_is_one_client() {
    in_namespace(|| async {
        let mut host = Host::new(81, "paper", "cubic", "").await;
        let [server, one, same, other] =
            ["2001:db8:83::81", "2001:db8:84:1::1", "2001:db8:84:1::2", "2001:db8:84:2::1"];
        for address in [server, one, same, other] {
            ip(&format!("addr add {address}/128 dev lo nodad"));
            // The kernel's own comes a moment after its address.
            let remove = format!("-6 route del local {address} dev lo table local");
            eventually("the kernel's own route", || try_ip(&remove).is_ok()).await;
            ip(&format!("-6 route add local {address} dev lo table local congctl cubic"));
        }
        let update = estimate("2001:db8:84::/48", 40, 60);
        host.stream.send(UpdateEvent::Estimate(update)).await;
        eventually("the network is known", || host.counts("networks_added") == 2).await;
        (host.server, host.client) = (SocketAddr::new(server.parse().unwrap(), 8_000), one.parse().unwrap());
        let granted = host.granted_to_losers(6).await;
        // Segments are smaller than those of the estimate.
        assert!(granted.iter().all(|segments| *segments == granted[0] && *segments >= 40), "{granted:?}");
        for (client, threshold) in [(other, granted[0]), (same, 10)] {
            host.client = client.parse().unwrap();
            assert_eq!(host.threshold(), Some(u64::from(threshold)), "{client}");
        }
    });
}
