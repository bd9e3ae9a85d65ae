//! Engines of several gateways that share.

use std::net::IpAddr;

use spand_proto::network::Network;

use super::*;
use crate::halves::{Direction, HashSample, Seen};
use crate::sharing::{GatewayId, Pseudonyms, Sharing, TapId};
use crate::window::bucket::Source;
use crate::window::cells::{Cell, CellRefused};

fn engine(gateway: u16, prefixes: &[&str]) -> Engine {
    let sharing =
        Sharing { gateway: GatewayId(gateway), tap: TapId(gateway.into()), pseudonyms: Pseudonyms::new([5; 16]) };
    Engine::new(EngineConfig {
        internal: vec!["192.0.2.0/24".parse().unwrap()],
        prefixes: prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect(),
        sharing: Some(sharing),
        ..EngineConfig::default()
    })
}

/// Transfers to four clients, a second apart.
fn clients(engine: &mut Engine) {
    for host in 1..=4_u8 {
        let mut segments: Vec<_> = handshake(100).into_iter().chain(transfer(100, 5_001, 12)).collect();
        for segment in &mut segments {
            let client = if segment.source.port == 80 { &mut segment.destination } else { &mut segment.source };
            client.address = IpAddr::from([198, 51, 100, host]);
            segment.at = segment.at.after(Micros::from_millis(1_000 * u64::from(host)));
        }
        feed(engine, &segments);
    }
    engine.finish(ms(9_000));
    while engine.poll_event().is_some() {}
}

fn cells(engine: &Engine) -> Vec<(Network, Cell)> {
    let of = |network: Network| engine.own_cells(network, 0, ms(9_000)).into_iter().map(move |cell| (network, cell));
    engine.own_networks().into_iter().flat_map(of).collect()
}

fn sources(cells: &[(Network, Cell)]) -> Vec<Source> {
    cells.iter().flat_map(|(_, cell)| &cell.contributions).filter_map(|part| part.source).collect()
}

#[test]
fn two_gateways_know_a_client_and_its_connection_by_the_same_pseudonyms() {
    let [mut one, mut other] = [1, 2].map(|gateway| engine(gateway, &[]));
    // The other one has seen more before.
    feed(&mut other, &handshake(7));
    clients(&mut one);
    clients(&mut other);
    let found = sources(&cells(&one));
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|source| Pseudonyms::hash_of(source.remote).is_some()), "{found:?}");
    assert_eq!(sources(&cells(&other)), found);
    let rtts = cells(&one);
    assert!(rtts.iter().flat_map(|(_, cell)| &cell.rtts).all(|part| Pseudonyms::hash_of(part.remote).is_some()));
}

#[test]
fn a_network_that_no_prefix_makes_is_refused_and_goes_with_the_prefix_that_made_it() {
    let mut one = engine(1, &[]);
    clients(&mut one);
    let mut other = engine(2, &["198.51.100.0/23"]);
    for (network, cell) in cells(&one) {
        assert_eq!(other.take_cell(network, cell, ms(9_000)), Err(CellRefused::NotANetwork));
    }
    let mut third = engine(3, &[]);
    for (network, cell) in cells(&one) {
        third.take_cell(network, cell, ms(9_000)).unwrap();
    }
    assert_eq!(third.network_count(), 1);
    third.set_prefixes(vec!["192.0.2.0/24".parse().unwrap()], vec!["198.51.100.0/23".parse().unwrap()]);
    assert_eq!(third.network_count(), 0);
}

#[test]
fn an_engine_that_does_not_share_has_no_cells_and_takes_none() {
    let mut one = engine(1, &[]);
    clients(&mut one);
    let mut alone =
        Engine::new(EngineConfig { internal: vec!["192.0.2.0/24".parse().unwrap()], ..EngineConfig::default() });
    clients(&mut alone);
    assert!(alone.take_cells().is_empty() && cells(&alone).is_empty() && alone.sharing_counts().is_none());
    for (network, cell) in cells(&one) {
        assert_eq!(alone.take_cell(network, cell, ms(9_000)), Err(CellRefused::Own));
    }
}

/// Segments of one connection from each of these ports, and of a SYN that nobody answers.
fn connections(ports: std::ops::Range<u16>) -> Vec<Segment> {
    let of = |port: u16| {
        handshake(u32::from(port)).into_iter().chain(transfer(100, 5_001, 3)).map(move |mut segment| {
            let client = if segment.source.port == 80 { &mut segment.destination } else { &mut segment.source };
            client.port = port;
            segment
        })
    };
    let mut unanswered = handshake(1)[0].clone();
    unanswered.source.port = 9;
    ports.flat_map(of).chain([unanswered]).collect()
}

#[test]
fn directions_of_a_connection_that_two_gateways_see_have_one_hash_and_other_sides() {
    let segments = connections(1_000..1_200);
    let is_outgoing = |segment: &&Segment| segment.source.port == 80;
    let [mut outgoing, mut incoming, mut both] = [1, 2, 3].map(|gateway| engine(gateway, &[]));
    let of = |is: bool| -> Vec<_> { segments.iter().filter(|one| is_outgoing(one) == is).cloned().collect() };
    feed(&mut outgoing, &of(true));
    feed(&mut incoming, &of(false));
    feed(&mut both, &segments);
    let [outgoing, incoming, both] = [&mut outgoing, &mut incoming, &mut both].map(|engine| {
        assert_eq!(engine.take_halves(ms(14_000)).unwrap().found, [], "too soon");
        let halves = engine.take_halves(ms(16_000)).unwrap();
        assert_eq!(halves.sample, HashSample::ALL);
        halves.found
    });
    assert_eq!([outgoing.len(), incoming.len(), both.len()], [200; 3], "and of the SYN that nobody answers none");
    let hashes: std::collections::BTreeSet<u64> = both.iter().map(|half| half.hash).collect();
    assert_eq!(hashes.len(), 200);
    for ((outgoing, incoming), both) in outgoing.iter().zip(&incoming).zip(&both) {
        assert_eq!([outgoing.hash, incoming.hash], [both.hash; 2]);
        assert_eq!((both.seen, both.lacks), (Seen::Both, None));
        assert_ne!(outgoing.seen, incoming.seen);
        assert!(outgoing.seen != Seen::Both && incoming.seen != Seen::Both);
        assert_eq!((outgoing.lacks, incoming.lacks), (Some(Direction::Incoming), Some(Direction::Outgoing)));
    }
}

#[test]
fn a_connection_that_began_before_the_gateway_is_not_compared_nor_one_of_who_does_not_share() {
    let mut midstream = engine(1, &[]);
    feed(&mut midstream, &transfer(100, 5_001, 3));
    assert_eq!(midstream.connections(), 1);
    assert_eq!(midstream.take_halves(ms(60_000)).unwrap().found, []);
    let mut alone = Engine::new(EngineConfig::default());
    feed(&mut alone, &connections(1_000..1_010));
    assert_eq!(alone.take_halves(ms(60_000)), None);
}
