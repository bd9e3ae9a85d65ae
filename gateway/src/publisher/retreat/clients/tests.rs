//! Which clients go where there are too many.

use std::net::SocketAddr;

use spand_proto::units::{Bytes, Segments};

use super::super::tests::{at, view};
use super::*;

/// Clients of 192.0.2.0/24 do not suffice: the state of any network will do.
fn client(n: usize) -> Network {
    format!("10.{}.{}.1/32", n / 256, n % 256).parse().unwrap()
}

/// A host's report of a first flight to a client that lost.
fn lose(clients: &mut Clients, n: usize, host: u64, ms: u64) -> Reported {
    let port = u16::try_from(ms % 60_000).unwrap();
    let ends: [SocketAddr; 2] = [([10, 0, 0, 1], 443).into(), (client(n).prefix().addr(), port).into()];
    let began = Some(at(ms));
    let flight =
        FirstFlight { ends, lost: true, began, advised: Segments(40), acknowledged: Bytes(0), application_of: None };
    clients.report((client(n), &view(40.0)), host, &flight, at(ms))
}

fn displaced(reported: &Reported) -> Option<Network> {
    reported.displaced.map(|displaced| displaced.client)
}

#[test]
fn what_one_host_reports_displaces_its_own_and_no_other_host_s() {
    let mut clients = Clients::default();
    lose(&mut clients, 0, 1, 0);
    for n in 1..=CLIENTS_OF_HOST {
        assert_eq!(displaced(&lose(&mut clients, n, 2, n as u64)), None);
    }
    for n in CLIENTS_OF_HOST + 1..3 * CLIENTS {
        assert_eq!(displaced(&lose(&mut clients, n, 2, n as u64)), Some(client(n - CLIENTS_OF_HOST)));
    }
    assert!(clients.contains(client(0)));
    assert_eq!(
        (clients.known.len(), clients.order.len(), clients.order_of.len()),
        (1 + CLIENTS_OF_HOST, 1 + CLIENTS_OF_HOST, 2)
    );
}

#[test]
fn clients_are_bounded_and_those_whose_advice_is_held_back_go_last() {
    let mut clients = Clients::default();
    let verdicts: Vec<_> = (0..6).map(|ms| lose(&mut clients, 0, 0, ms).verdict).collect();
    assert_eq!(verdicts[4..], [Verdict::Random, Verdict::AddressHalved]);
    assert_eq!(clients.hold(client(0), &view(40.0)).unwrap().network, client(0));
    for n in 1..CLIENTS {
        assert_eq!(displaced(&lose(&mut clients, n, (n / CLIENTS_OF_HOST) as u64, 10 + n as u64)), None);
    }
    for n in CLIENTS..CLIENTS + 100 {
        assert_eq!(displaced(&lose(&mut clients, n, n as u64, 10 + n as u64)), Some(client(n - CLIENTS + 1)));
    }
    assert_eq!((clients.known.len(), clients.held()), (CLIENTS, 1));

    // Losses so old count no more, and what is forgotten then is no loss.
    let later = SERIES_SPAN.0 / 1_000 + 20_000;
    assert_eq!(displaced(&lose(&mut clients, 2 * CLIENTS, 0, later)), None);
    assert_eq!((clients.known.len(), clients.contains(client(101))), (CLIENTS, false));
}
