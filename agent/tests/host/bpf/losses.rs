//! What losses in first flights hold back on this host: those of one client its own advice, those of two clients their network's.

use super::*;

#[test]
fn losses_of_one_client_hold_back_its_own_advice_and_not_its_neighbours() {
    on_paper(101, async |mut host| {
        let one = host.client.to_string();
        assert_eq!(host.granted_to_losers(6).await, [40; 6]);
        host.move_to("10.84.101.2");
        assert_eq!((host.threshold(), host.counts("retreated")), (Some(40), 0), "a neighbour has lost nothing");
        host.move_to(&one);
        assert_eq!((host.start(), host.counts("retreated")), ((Some(10), Some(10)), 1));
        // What the kernel sends after a timeout is no new transfer.
        assert_eq!((host.counts("first_flight_loss"), host.counts("restarted")), (6, 0));
    });
}

#[test]
fn losses_of_two_clients_hold_back_the_advice_of_their_network() {
    on_paper(78, async |mut host| {
        for client in [1, 2] {
            host.move_to(&format!("10.84.78.{client}"));
            assert_eq!(host.granted_to_losers(3).await, [40; 3]);
        }
        host.move_to("10.84.78.3");
        assert_eq!(host.start(), (Some(10), Some(10)), "a third one has lost nothing: it is the network's");
        assert_eq!(host.counts("retreated"), 1);
        // A start no larger than any host's arrives whole on a path that a larger one is too much for.
        host.sent(60);
        assert_eq!(host.start(), (Some(10), Some(10)));
    });
}

#[test]
fn first_flights_that_lose_no_more_than_half_hold_back_no_advice() {
    on_paper(82, async |mut host| {
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
    on_paper(83, async |mut host| {
        let (mut server, client) = host.accepted();
        send_into_the_void(&mut server, &client, 60);
        let report = host.reported_at_once(&client).await;
        let all = FirstFlightLoss { sent: Segments(40), lost: Segments(40) };
        assert_eq!((report.first_flight, report.acknowledged.0), (Some(all), 0));
    });
}

#[test]
fn a_network_that_is_held_back_has_a_threshold_although_no_sender_lost() {
    on_host(102, "careful", "cubic", ANY_RTT, async |mut host| {
        host.changed(44, |update| (update.estimate.loss_connections, update.estimate.losses) = (0, 0)).await;
        assert_eq!(host.start(), (Some(44), None));
        assert_eq!(host.granted_to_losers(6).await, [44; 6]);
        assert_eq!(host.start(), (Some(10), Some(10)));
    });
}

#[test]
fn an_address_with_advice_of_its_own_starts_on_it_and_its_neighbours_on_their_networks() {
    on_paper(79, async |mut host| {
        let own = format!("{}/32", host.client);
        host.advise(&[(&own, 20)]).await;
        assert_eq!(host.threshold(), Some(20));
        host.move_to("10.84.79.2");
        assert_eq!(host.threshold(), Some(40));
        host.stream.withdraw(&own).await;
        eventually("the address has none any more", || host.agent.in_force() == 1).await;
        host.move_to("10.84.79.1");
        assert_eq!(host.threshold(), Some(40));
    });
}

#[test]
fn a_64_of_ipv6_is_one_client() {
    on_paper(81, async |mut host| {
        let [server, one, same, other] =
            ["2001:db8:83::81", "2001:db8:84:1::1", "2001:db8:84:1::2", "2001:db8:84:2::1"];
        host.add_ipv6(server, &[one, same, other]);
        host.advise(&[("2001:db8:84::/48", 40)]).await;
        let granted = host.granted_to_losers(6).await;
        // Segments are smaller than those of the estimate.
        assert!(granted.iter().all(|segments| *segments == granted[0] && *segments >= 40), "{granted:?}");
        for (client, threshold) in [(other, granted[0]), (same, 10)] {
            host.move_to(client);
            assert_eq!(host.threshold(), Some(u64::from(threshold)), "{client}");
        }
    });
}
