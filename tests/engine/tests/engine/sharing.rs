//! Engines of several gateways that share.

use spand_cells::{Cell, CellRefused, GatewayId, Pseudonyms, Shares, Sharing, TapId};
use spand_core::window::bucket::Source;
use spand_proto::network::Network;

use super::*;

fn engine(gateway: u16, prefix: Option<&str>) -> Engine {
    let (gateway, tap) = (GatewayId(gateway), TapId(gateway.into()));
    let sharing = Sharing { gateway, tap, pseudonyms: Pseudonyms::new([5; 16]) };
    let prefixes = prefix.into_iter().filter_map(|prefix| prefix.parse().ok()).collect();
    Engine::new(EngineConfig { prefixes, ..inside() }).sharing(Some(sharing))
}

/// Transfers to four clients, a second apart.
fn clients(engine: &mut Engine) {
    for host in 1..=4_u8 {
        let client = SocketAddr::new([198, 51, 100, host].into(), CLIENT.port());
        let segments = handshake().into_iter().chain(transfer(100, 0..12));
        let segments: Vec<_> =
            segments.map(|segment| segment.with_client(client).later(1_000 * u64::from(host))).collect();
        feed(engine, &segments);
    }
    engine.finish(ms(9_000));
    events(engine);
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
    let [mut one, mut other] = [1, 2].map(|gateway| engine(gateway, None));
    // The other one has seen more before.
    feed(&mut other, &handshake());
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
    let mut one = engine(1, None);
    clients(&mut one);
    let (mut other, mut third) = (engine(2, Some("198.51.100.0/23")), engine(3, None));
    for (network, cell) in cells(&one) {
        assert_eq!(other.take_cell(network, cell.clone(), ms(9_000)), Err(CellRefused::NotANetwork));
        assert_eq!(third.take_cell(network, cell, ms(9_000)), Ok(()));
    }
    assert_eq!(third.networks().len(), 1);
    third.set_prefixes(inside().internal, "198.51.100.0/23".parse().into_iter().collect());
    assert_eq!(third.networks().len(), 0);
}

#[test]
fn an_engine_that_does_not_share_has_no_cells_and_takes_none() {
    let mut one = engine(1, None);
    clients(&mut one);
    let mut alone = Engine::new(inside());
    clients(&mut alone);
    assert!(alone.take_cells().is_empty() && cells(&alone).is_empty() && alone.sharing_counts().is_none());
    for (network, cell) in cells(&one) {
        assert_eq!(alone.take_cell(network, cell, ms(9_000)), Err(CellRefused::Own));
    }
}
