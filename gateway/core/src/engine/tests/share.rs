//! Engines of several gateways that share.

use std::net::IpAddr;

use spand_proto::network::Network;

use super::*;
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
