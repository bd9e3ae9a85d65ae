//! The initial windows that connections really used, counted on the wire.

use std::collections::BTreeMap;

use ipnet::IpNet;
use spand_tests::lab::truth::FlowId;
use spand_tests::lab::wire::Sender;

use crate::load::Timed;

/// Shorter transfers may end before their window does.
const BYTES_MIN: u64 = 100_000;

/// First flights of the connections to a network that are long enough to show the whole initial window: segments and how
/// often.
fn first_flights(network: IpNet, timed: &[Timed], senders: &BTreeMap<FlowId, Sender>) -> BTreeMap<u64, usize> {
    let mut flights = BTreeMap::new();
    let long = timed.iter().filter(|one| one.network == network && one.bytes >= BYTES_MIN);
    for sender in long.filter_map(|one| senders.get(&one.flow)).filter(|sender| sender.first_flight_acked) {
        *flights.entry(sender.first_flight).or_default() += 1;
    }
    flights
}

/// Prints what the agent grants and what was seen.
pub(crate) fn print_first_flights(
    networks: &[IpNet],
    timed: &[Timed],
    senders: &BTreeMap<FlowId, Sender>,
    granted: &BTreeMap<IpNet, u32>,
) {
    println!("  {:<18} {:>14}  on the wire (segments x connections)", "network", "agent grants");
    for network in networks {
        let grants = granted.get(network).map_or("nothing".to_owned(), |window| format!("{window} segments"));
        let flights = first_flights(*network, timed, senders);
        let words: Vec<String> = flights.iter().map(|(value, times)| format!("{value} x {times}")).collect();
        println!("  {:<18} {grants:>14}  {}", network.to_string(), words.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_transfers_longer_than_a_window_count() {
        let network: IpNet = "198.51.100.0/24".parse().unwrap();
        let mut senders = BTreeMap::new();
        let mut timed = |port: u16, bytes, first_flight, first_flight_acked| {
            let remote = format!("198.51.100.11:{port}").parse().unwrap();
            let flow = FlowId { local: "192.0.2.2:80".parse().unwrap(), remote };
            let mut sender = Sender::default();
            (sender.first_flight, sender.first_flight_acked) = (first_flight, first_flight_acked);
            senders.insert(flow, sender);
            Timed { network, bytes, completion: Duration::ZERO, flow }
        };
        let all = [
            timed(1, 100_000, 10, true),
            timed(2, 1_000_000, 10, true),
            timed(3, 100_000, 34, true),
            timed(4, 10_000, 7, true),
            timed(5, 100_000, 12, false),
        ];
        assert_eq!(first_flights(network, &all, &senders), BTreeMap::from([(10, 2), (34, 1)]));
    }
}
