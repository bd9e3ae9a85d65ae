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

fn talks(limit: usize) -> Talks {
    Talks::new(WINDOW, NonZeroUsize::new(limit).unwrap(), NonZeroUsize::new(1_000_000).unwrap())
}

#[test]
fn a_talk_counts_for_the_window_and_a_newer_one_for_longer() {
    let mut talks = talks(10);
    assert!(talks.note(1, network(1), true, at(0)).new);
    talks.note(1, network(2), true, at(0));
    talks.note(1, network(3), false, at(0));
    assert_eq!(talks.note(1, network(1), true, at(20)), Noted::default());
    assert_eq!(talks.lapse(at(159), 10), Lapsed::default());
    assert_eq!(
        talks.lapse(at(160), 10),
        Lapsed { all: 2, held: vec![(1, network(2))] },
        "of the third nothing was told"
    );
    assert_eq!(talks.page(1, None, 10), [network(1)]);
    assert_eq!(talks.lapse(at(180), 10).held, [(1, network(1))]);
    assert_eq!((talks.pairs(), talks.hosts_of(network(1)).len()), (0, 0));
}

#[test]
fn a_full_list_lets_go_of_what_was_never_told_and_then_of_the_oldest() {
    let mut talks = talks(3);
    talks.note(1, network(1), true, at(0));
    talks.note(1, network(2), true, at(1));
    talks.note(1, network(3), false, at(2));
    assert_eq!(talks.note(1, network(4), false, at(3)).displaced, Some((network(3), false)), "newer, and never told");
    talks.tell(1, network(4));
    assert_eq!(talks.note(1, network(5), true, at(4)).displaced, Some((network(1), true)));
    assert_eq!(talks.page(1, Some(network(2)), 1), [network(4)]);
    assert_eq!(talks.note(2, network(7), true, at(5)).displaced, None, "each host has a list of its own");
}

#[test]
fn pairs_of_all_hosts_are_bounded_and_a_host_without_any_has_one() {
    let mut talks = Talks::new(WINDOW, NonZeroUsize::new(10).unwrap(), NonZeroUsize::new(3).unwrap());
    for n in 1..=3 {
        assert_eq!(talks.note(1, network(n), true, at(u64::from(n))).displaced, None);
    }
    assert_eq!(talks.note(1, network(4), true, at(4)).displaced, Some((network(1), true)), "its own oldest goes");
    assert_eq!(talks.note(2, network(9), true, at(5)).displaced, None);
    assert_eq!(talks.note(2, network(8), true, at(6)).displaced, Some((network(9), true)));
    assert_eq!((talks.pairs(), talks.len(1), talks.len(2)), (4, 3, 1));
}

#[test]
fn who_is_gone_is_forgotten() {
    let mut talks = talks(3);
    talks.note(1, network(1), true, at(0));
    talks.note(2, network(1), false, at(0));
    assert_eq!(talks.told(network(1)).collect::<Vec<_>>(), [1]);
    talks.keep(&BTreeSet::from([2]));
    assert_eq!(talks.hosts_of(network(1)), [2]);
    assert_eq!((talks.len(1), talks.len(2), talks.pairs()), (0, 1, 1));
    talks.tell(1, network(1));
    assert!(!talks.talks(1, network(1)) && talks.talks(2, network(1)));
}

proptest! {
    #[test]
    fn no_list_outgrows_its_limit_and_both_sides_agree(
        steps in prop::collection::vec((0u64..3, 0u8..8, any::<bool>(), 0u64..40), 1..200),
    ) {
        let (mut talks, mut now) = (talks(4), 0);
        for (host, n, told, pause) in steps {
            now += pause;
            talks.note(host, network(n), told, at(now));
            talks.lapse(at(now), 2);
            let mut pairs = 0;
            for host in 0..3 {
                let networks = talks.page(host, None, 100);
                prop_assert!(networks.len() <= 4);
                pairs += networks.len();
                for n in 0..8 {
                    let here = networks.contains(&network(n));
                    prop_assert_eq!(talks.hosts_of(network(n)).contains(&host), here);
                    prop_assert_eq!(talks.talks(host, network(n)), here);
                }
                if let Some(known) = talks.hosts.get(&host) {
                    prop_assert_eq!(known.told.len() + known.untold.len(), networks.len());
                }
            }
            prop_assert_eq!(talks.pairs(), pairs);
        }
    }
}
