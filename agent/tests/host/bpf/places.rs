//! A place in the table of budgets that is another network's by the time that a connection speaks of it.

use super::*;

/// A host whose first network gave its place to a second one, and the connections to the first that still have their flights
/// out. `host.client` is in the second network.
async fn moved_on(number: u8, connections: usize, round_trip: Micros) -> (Host, Vec<(TcpStream, TcpStream)>) {
    let mut host =
        Host::new(number, "careful", "cubic", "\n[policy]\ncap_segments = 40\nrtt_ratio_min = 0.0000001").await;
    let advice = |network: &str| {
        let mut update = estimate(network, 100, 60);
        update.estimate.rtt_mean = Some(round_trip);
        update.lease = Some(Segments(200));
        UpdateEvent::Estimate(update)
    };
    host.stream.send(advice(&host.network)).await;
    eventually("the lease is known", || host.counts("networks_changed") == 1).await;
    let listener = TcpListener::bind(host.server).unwrap();
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(in_flight(&host, &listener));
    }
    let network = host.network.parse().unwrap();
    host.stream.send(UpdateEvent::Withdrawal { network, reason: WithdrawalReason::Retreat }).await;
    eventually("the first network is gone", || host.counts("networks_removed") == 1).await;

    host.client = format!("10.84.{number}.129").parse().unwrap();
    ip(&format!("addr add {}/32 dev lo", host.client));
    ip(&format!("route replace local {} dev lo table local congctl cubic", host.client));
    host.stream.send(advice(&format!("10.84.{number}.128/25"))).await;
    eventually("the second network is known", || host.counts("networks_added") == 2).await;
    (host, open)
}

/// A connection whose first flight is never acknowledged.
fn in_flight(host: &Host, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let (mut server, client) = host.connection(listener);
    lose_all(&client);
    socket2::SockRef::from(&server).set_send_buffer_size(1 << 20).unwrap();
    server.write_all(&vec![7; 60 * SEGMENT]).unwrap();
    (server, client)
}

#[test]
fn what_is_given_back_late_is_not_given_to_another_network() {
    in_namespace("bpf_late_return", || async {
        let (host, mut open) = moved_on(60, 1, Micros::from_secs(4)).await;
        let listener = TcpListener::bind(host.server).unwrap();
        let _second = in_flight(&host, &listener);
        assert!(under_way(&host).contains("30 of the lease of 200"), "{}", under_way(&host));
        // It is reset, and what it was granted was another network's.
        let (server, _) = open.pop().unwrap();
        socket2::SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
        drop(server);
        assert!(under_way(&host).contains("30 of the lease of 200"), "{}", under_way(&host));
    });
}

#[test]
fn losses_are_not_held_against_another_network() {
    in_namespace("bpf_late_losses", || async {
        let (mut host, _open) = moved_on(61, 6, Micros::from_millis(100)).await;
        let lost = host.reported(6).await;
        assert!(lost.iter().all(|report| report.first_flight.is_some_and(FirstFlightLoss::is_most)), "{lost:?}");
        let (mut server, mut client) = host.accepted();
        transfer(&mut server, &mut client, 5 * SEGMENT);
        assert_eq!(number(&ss_words(&server), "ssthresh"), Some(100), "held back: {:?}", ss_words(&server));
    });
}
