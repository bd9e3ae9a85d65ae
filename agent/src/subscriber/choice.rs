//! Which gateway a host prefers. Pure.
//!
//! Inside a group by rendezvous hashing (highest random weight): each host draws a number for each gateway and prefers the
//! highest. Hosts are divided evenly, the draw needs no agreement, and those of a gateway that is gone are divided over
//! all that remain, while the others stay where they are.

use std::cmp::Reverse;

use crate::config::{self, canonical};
use crate::hash::FixedHash;

/// A gateway as one host ranks it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// Where it is.
    pub url: String,
    /// Its group, from 1.
    pub group: usize,
    /// Its rank for this host inside the group, from 1.
    pub rank: usize,
}

/// The gateways in the order in which `host` prefers them.
pub fn ranked(gateway: &config::Gateway, host: &str) -> Vec<Place> {
    let groups = gateway.groups().into_iter().enumerate();
    groups.flat_map(|(group, urls)| of_group(group + 1, urls, host)).collect()
}

fn of_group(group: usize, mut urls: Vec<&str>, host: &str) -> Vec<Place> {
    // The second part decides between equal draws, on all hosts alike.
    urls.sort_by_cached_key(|url| (Reverse(weight(host, &canonical(url))), (*url).to_owned()));
    let place = |(at, url): (usize, &str)| Place { url: url.to_owned(), group, rank: at + 1 };
    urls.into_iter().enumerate().map(place).collect()
}

fn weight(host: &str, gateway: &str) -> u64 {
    // No host name holds a line's end, so that two pairs never are the same bytes.
    FixedHash::new().bytes(host.as_bytes()).bytes(b"\n").bytes(gateway.as_bytes()).finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const HOSTS: usize = 1_000;

    fn gateways(groups: &[&[&str]]) -> config::Gateway {
        let urls = groups.iter().map(|group| group.iter().map(|url| (*url).to_owned()).collect()).collect();
        config::Gateway { url: None, urls: Some(urls), ..config::Gateway::default() }
    }

    fn host(n: usize) -> String {
        format!("web-{n}.example.org")
    }

    /// Hosts by their first gateway.
    fn seats(gateway: &config::Gateway) -> BTreeMap<String, Vec<usize>> {
        let mut seats = BTreeMap::<_, Vec<_>>::new();
        for n in 0..HOSTS {
            seats.entry(ranked(gateway, &host(n))[0].url.clone()).or_default().push(n);
        }
        seats
    }

    #[test]
    fn hosts_are_divided_evenly_and_those_of_a_lost_gateway_over_all_others() {
        let [a, b, c] = ["https://a:7400", "https://b:7400", "https://c:7400"];
        let before = seats(&gateways(&[&[a, b, c]]));
        // A third with a standard deviation of 15; six of them around it.
        assert!(before.len() == 3 && before.values().all(|hosts| hosts.len().abs_diff(333) <= 90), "{before:?}");
        for (lost, left) in [(a, [b, c]), (b, [a, c]), (c, [a, b])] {
            let after = seats(&gateways(&[&left]));
            for url in left {
                assert!(before[url].iter().all(|host| after[url].contains(host)), "only hosts of {lost} move");
                let gained = after[url].len() - before[url].len();
                assert!(gained.abs_diff(before[lost].len() / 2) <= 60, "{gained} of {} to {url}", before[lost].len());
            }
        }
    }

    #[test]
    fn neither_the_order_nor_the_spelling_of_urls_matters_and_groups_keep_theirs() {
        let one = gateways(&[&["https://a", "https://b:443", "https://[2001:db8:0::1]"], &["https://z"]]);
        let other = gateways(&[&["https://[2001:db8::1]:443/", "https://B", "https://A:443/"], &["https://z"]]);
        for n in 0..HOSTS {
            let [one, other] = [&one, &other].map(|gateway| ranked(gateway, &host(n)));
            let places =
                |ranked: &[Place]| ranked.iter().map(|p| (canonical(&p.url), p.group, p.rank)).collect::<Vec<_>>();
            assert_eq!(places(&one), places(&other));
            assert_eq!((one[3].url.as_str(), one[3].group, one[3].rank), ("https://z", 2, 1));
        }
    }

    #[test]
    fn the_draw_is_the_same_in_every_release() {
        let gateway = gateways(&[&["https://a:7400", "https://b:7400", "https://c:7400"]]);
        let first: String = (0..24).filter_map(|n| ranked(&gateway, &host(n))[0].url.chars().nth(8)).collect();
        assert_eq!(first, "abacbbbacbcbcaccaccbcbbb");
    }

    #[test]
    fn one_gateway_is_the_first_of_the_first_group() {
        let place = Place { url: "unix:/run/spand/gateway.sock".to_owned(), group: 1, rank: 1 };
        assert_eq!(ranked(&config::Gateway::default(), "web-1"), [place]);
    }
}
