//! What is remembered, what goes first, and that both sides of the account agree.

use proptest::prelude::*;

use super::*;

const WINDOW: Micros = Micros::from_secs(160);

fn at(s: u64) -> Timestamp {
    Timestamp::default().after(Micros::from_secs(1_000 + s))
}

fn network(n: u8) -> Network {
    Network::of([198, 51, n, 1].into())
}

fn destinations(limit: usize) -> DestinationsInUse {
    DestinationsInUse::new(WINDOW, NonZeroUsize::new(limit).unwrap(), NonZeroUsize::new(1_000_000).unwrap())
}

#[test]
fn a_destination_expires_a_window_after_its_last_use() {
    let mut destinations = destinations(10);
    assert!(destinations.record(1, network(1), true, at(0)).new);
    destinations.record(1, network(2), true, at(0));
    destinations.record(1, network(3), false, at(0));
    assert_eq!(destinations.record(1, network(1), true, at(20)), Recorded::default());
    assert_eq!(destinations.expire(at(159), 10), Expired::default());
    assert_eq!(
        destinations.expire(at(160), 10),
        Expired { all: 2, advertised: vec![(1, network(2))] },
        "the third was never advertised"
    );
    assert_eq!(destinations.page(1, None, 10), [network(1)]);
    assert_eq!(destinations.expire(at(180), 10).advertised, [(1, network(1))]);
    assert_eq!((destinations.pairs(), destinations.hosts_of(network(1)).len()), (0, 0));
}

#[test]
fn a_full_list_evicts_what_was_never_advertised_and_then_the_oldest() {
    let mut destinations = destinations(3);
    destinations.record(1, network(1), true, at(0));
    destinations.record(1, network(2), true, at(1));
    destinations.record(1, network(3), false, at(2));
    assert_eq!(
        destinations.record(1, network(4), false, at(3)).evicted,
        Some((network(3), false)),
        "newer, but never advertised"
    );
    destinations.set_advertised(1, network(4));
    assert_eq!(destinations.record(1, network(5), true, at(4)).evicted, Some((network(1), true)));
    assert_eq!(destinations.page(1, Some(network(2)), 1), [network(4)]);
    assert_eq!(destinations.record(2, network(7), true, at(5)).evicted, None, "each host has a list of its own");
}

#[test]
fn networks_of_one_provider_that_fill_half_of_a_list_displace_only_each_other() {
    let mut destinations = destinations(8);
    let honest = [1, 2, 3, 4].map(|n| Network::of([203, n, 113, 1].into()));
    for (at_s, network) in honest.into_iter().enumerate() {
        destinations.record(1, network, at_s > 0, at(at_s.try_into().unwrap()));
    }
    let one_of_32 = |n: u16| Network::of(std::net::Ipv6Addr::from([0x2001, 0xdb8, n, 0, 0, 0, 0, 1]).into());
    for n in 0..100 {
        destinations.record(1, one_of_32(n), true, at(100));
    }
    assert!(honest.iter().all(|network| destinations.contains(1, *network)));
    assert_eq!(
        destinations.record(1, network(1), true, at(101)).evicted,
        Some((honest[0], false)),
        "the order of others"
    );
    assert_eq!(destinations.len(1), 8);
}

#[test]
fn pairs_of_all_hosts_are_bounded_and_a_host_without_any_has_one() {
    let mut destinations =
        DestinationsInUse::new(WINDOW, NonZeroUsize::new(10).unwrap(), NonZeroUsize::new(3).unwrap());
    for n in 1..=3 {
        assert_eq!(destinations.record(1, network(n), true, at(u64::from(n))).evicted, None);
    }
    assert_eq!(
        destinations.record(1, network(4), true, at(4)).evicted,
        Some((network(1), true)),
        "its own oldest goes"
    );
    assert_eq!(destinations.record(2, network(9), true, at(5)).evicted, None);
    assert_eq!(destinations.record(2, network(8), true, at(6)).evicted, Some((network(9), true)));
    assert_eq!((destinations.pairs(), destinations.len(1), destinations.len(2)), (4, 3, 1));
}

#[test]
fn who_is_gone_is_forgotten() {
    let mut destinations = destinations(3);
    destinations.record(1, network(1), true, at(0));
    destinations.record(2, network(1), false, at(0));
    assert_eq!(destinations.advertised(network(1)).collect::<Vec<_>>(), [1]);
    destinations.retain_hosts(&BTreeSet::from([2]));
    assert_eq!(destinations.hosts_of(network(1)), [2]);
    assert_eq!((destinations.len(1), destinations.len(2), destinations.pairs()), (0, 1, 1));
    destinations.set_advertised(1, network(1));
    assert!(!destinations.contains(1, network(1)) && destinations.contains(2, network(1)));
}

proptest! {
    #[test]
    fn no_list_outgrows_its_limit_and_both_sides_agree(
        steps in prop::collection::vec((0u64..3, 0u8..8, any::<bool>(), 0u64..40), 1..200),
    ) {
        let (mut destinations, mut now) = (destinations(4), 0);
        for (host, n, advertised, pause) in steps {
            now += pause;
            destinations.record(host, network(n), advertised, at(now));
            destinations.expire(at(now), 2);
            let mut pairs = 0;
            for host in 0..3 {
                let networks = destinations.page(host, None, 100);
                prop_assert!(networks.len() <= 4);
                pairs += networks.len();
                for n in 0..8 {
                    let here = networks.contains(&network(n));
                    prop_assert_eq!(destinations.hosts_of(network(n)).contains(&host), here);
                    prop_assert_eq!(destinations.contains(host, network(n)), here);
                }
                if let Some(known) = destinations.hosts.get(&host) {
                    prop_assert_eq!(known.advertised.len() + known.unadvertised.len(), networks.len());
                }
            }
            prop_assert_eq!(destinations.pairs(), pairs);
        }
    }
}
