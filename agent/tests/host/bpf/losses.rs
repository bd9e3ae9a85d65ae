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

    /// What transfers of the present client are granted that lose a segment of their first flights, one after another.
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
        let (mut server, mut client) = self.accepted();
        transfer(&mut server, &mut client, 3 * SEGMENT);
        number(&ss_words(&server), "ssthresh")
    }
}

#[test]
fn losses_of_one_client_hold_back_its_own_advice_and_not_its_neighbours() {
    in_namespace("bpf_losses_of_one", || async {
        let mut host = Host::new(77, "paper", "cubic", "").await;
        let one = host.client.to_string();
        assert_eq!(host.granted_to_losers(11).await, [[40; 6].as_slice(), &[20; 5]].concat());
        host.move_to("10.84.77.2");
        assert_eq!(host.threshold(), Some(40), "a neighbour has lost nothing");
        host.move_to(&one);
        assert_eq!(host.granted_to_losers(1).await, [20]);
        assert_eq!((host.threshold(), host.counts("retreated")), (None, 1), "twelve in a row");
        host.move_to("10.84.77.2");
        assert_eq!((host.threshold(), host.counts("retreated")), (Some(40), 1));
    });
}

#[test]
fn losses_of_two_clients_hold_back_the_advice_of_their_network() {
    in_namespace("bpf_losses_of_two", || async {
        let mut host = Host::new(78, "paper", "cubic", "").await;
        for (client, granted) in [(1, 40), (2, 40), (1, 20), (2, 20)] {
            host.move_to(&format!("10.84.78.{client}"));
            assert_eq!(host.granted_to_losers(3).await, [granted; 3]);
            if (client, granted) == (2, 40) {
                host.move_to("10.84.78.3");
                assert_eq!(host.threshold(), Some(20), "a third one has lost nothing: it is the network's");
            }
        }
        host.move_to("10.84.78.3");
        assert_eq!((host.threshold(), host.counts("retreated")), (None, 1));
    });
}

#[test]
fn the_threshold_of_a_network_whose_share_was_halved_is_that_share_although_no_sender_lost() {
    in_namespace("bpf_losses_back", || async {
        let mut host = Host::new(80, "careful", "cubic", "\n[policy]\nrtt_ratio_min = 0.0000001").await;
        let mut update = estimate(&host.network, 44, 60);
        (update.estimate.loss_connections, update.estimate.losses) = (0, 0);
        host.stream.send(UpdateEvent::Estimate(update)).await;
        eventually("a start without a threshold", || host.threshold().is_none()).await;
        assert_eq!(host.granted_to_losers(7).await, [[44; 6].as_slice(), &[22]].concat());
        assert_eq!(host.threshold(), Some(22));
    });
}

#[test]
fn an_address_with_advice_of_its_own_starts_on_it_and_its_neighbours_on_their_networks() {
    in_namespace("bpf_own_advice", || async {
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
    in_namespace("bpf_losses_of_ipv6", || async {
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
        for (client, divisor) in [(other, 1), (same, 2)] {
            host.client = client.parse().unwrap();
            assert_eq!(host.threshold(), Some(u64::from(granted[0] / divisor)), "{client}");
        }
    });
}
