//! Clients with a share of their own, in networks whose addresses differ.

use spand_core::estimate::AddressShare;
use spand_proto::estimate::Mark;
use spand_proto::units::Segments;

use super::retreats::{advised, flight, lose, own};
use super::*;

/// The first network, whose lower part has ten segments, with the shares of these addresses in segments and their samples.
fn differing(published: &Published, mark: Option<Mark>, addresses: &[(u8, u32, u32)]) {
    apply(published, [Event::estimate(estimate(1, 14_480.0, 0))]);
    let view = NetworkView::clone(&published.network(network(1)).unwrap());
    let share = |(address, segments, samples): &(u8, u32, u32)| AddressShare {
        address: [198, 51, 1, *address].into(),
        share: Window::from_segments(Segments(*segments), Bytes(1_448)),
        samples: *samples,
        is_lower: *segments <= 10,
    };
    let bdp = Some(Window::from_segments(Segments(100), Bytes(1_448)));
    let estimate = view.estimate.clone().map(|of| Estimate { mark, loss_connections: 0, loss_window: None, bdp, ..of });
    let addresses = addresses.iter().map(share).collect();
    apply(published, [Event::Network(Box::new(NetworkView { estimate, addresses, ..view }))]);
}

const DIFFER: Option<Mark> = Some(Mark::AddressesDiffer);

#[tokio::test(start_paused = true)]
async fn a_client_with_samples_has_its_own_share_and_all_others_that_of_the_lower_part() {
    let (published, _) = publisher(PublisherConfig::default());
    let mut subscription = published.subscribe(&[OTHER.into()]).unwrap();
    let mut twin = Twin::default();
    differing(&published, DIFFER, &[(8, 150, 9), (7, 90, 2), (9, 10, 20)]);
    assert_eq!(advised(&published, 8), (own(8), Some(150)));
    assert_eq!(advised(&published, 9), (own(9), Some(10)));
    assert_eq!(advised(&published, 7), (network(1), Some(10)), "two samples are too few");
    assert_eq!(advised(&published, 6), (network(1), Some(10)), "not known");
    let bdp = |address: u8| {
        let view = published.lookup([198, 51, 1, address].into()).unwrap();
        view.estimate.as_ref().and_then(|of| of.bdp).map(|bdp| bdp.segments(Bytes(1_448)).0)
    };
    assert_eq!([8, 9].map(bdp), [Some(100), Some(10)], "a slow client's path holds no more than its share");
    // What a start is pushed with.
    let narrowed =
        |address: u8| published.shared.state.read().networks.narrowed(network(1), [198, 51, 1, address].into());
    assert_eq!([8, 9, 7, 6].map(narrowed), [own(8), own(9), network(1), network(1)]);
    assert_eq!((published.network_count(), published.address_retreats()), (1, 0));
    twin.read(&mut subscription).await;
    assert_eq!(twin.held.keys().copied().collect::<Vec<_>>(), [network(1), own(8), own(9)]);
    assert_eq!((twin.held[&own(8)].loss_connections, twin.held[&own(8)].samples), (1, 9), "its own samples back it");

    // An address that is gone from the window, and a network whose addresses agree again.
    differing(&published, DIFFER, &[(8, 150, 9)]);
    assert_eq!(advised(&published, 9), (network(1), Some(10)));
    differing(&published, None, &[]);
    assert_eq!(advised(&published, 8), (network(1), Some(10)));
    twin.read(&mut subscription).await;
    assert_eq!(twin.held.keys().copied().collect::<Vec<_>>(), [network(1)]);
}

#[tokio::test(start_paused = true)]
async fn the_retreat_of_a_client_or_of_its_network_is_above_its_own_share() {
    let (published, _) = publisher(PublisherConfig::default());
    differing(&published, DIFFER, &[(8, 150, 9), (9, 12, 20)]);
    flight(&published, 8, 1, false);
    lose(&published, 9, 1..=6);
    differing(&published, DIFFER, &[(8, 150, 9), (9, 40, 20)]);
    assert_eq!((advised(&published, 9), advised(&published, 8)), ((own(9), Some(10)), (own(8), Some(150))));
    // Losses of several addresses.
    for address in 1..=6 {
        lose(&published, address, 1..=1);
    }
    differing(&published, DIFFER, &[(8, 150, 9), (9, 40, 20)]);
    assert_eq!(published.retreats(), 1);
    assert_eq!(advised(&published, 8), (network(1), Some(10)));
}
