//! What the advice changed: completion times before and after, the first flight on the wire, retransmissions.

use std::collections::BTreeMap;
use std::time::Duration;

use ipnet::IpNet;
use spand_tests::lab::truth::FlowId;
use spand_tests::lab::wire::Sender;

use crate::load::{TIMED_BYTES, Timed};

/// Width of the bar of the longer time of a pair.
const BAR_WIDTH: f64 = 28.0;

/// One timed set with what its packets showed.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    /// Transfers in order.
    pub(crate) timed: Vec<Timed>,
    /// Their senders on the wire.
    pub(crate) senders: BTreeMap<FlowId, Sender>,
}

impl Set {
    /// Median completion time.
    fn median(&self, network: IpNet, bytes: u64) -> Option<Duration> {
        let mut times: Vec<Duration> =
            self.timed.iter().filter(|t| t.network == network && t.bytes == bytes).map(|t| t.completion).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }

    fn senders_of(&self, network: IpNet, bytes: u64) -> impl Iterator<Item = &Sender> {
        let wanted = self.timed.iter().filter(move |t| t.network == network && t.bytes == bytes);
        wanted.filter_map(|t| self.senders.get(&t.flow))
    }

    /// Data packets and retransmitted ones among them, of the whole set.
    fn packets(&self) -> (u64, u64) {
        self.senders
            .values()
            .fold((0, 0), |(data, again), sender| (data + sender.data_packets, again + sender.retransmitted_packets))
    }

    fn retransmitted(&self, network: IpNet, bytes: u64) -> u64 {
        self.senders_of(network, bytes).map(|sender| sender.retransmitted_packets).sum()
    }

    /// First flights of the connections long enough to show the whole initial window: value and how often.
    fn first_flights(&self, network: IpNet) -> BTreeMap<u64, usize> {
        let longest = TIMED_BYTES.iter().copied().max().unwrap_or(0);
        let mut flights = BTreeMap::new();
        for sender in self.senders_of(network, longest).filter(|sender| sender.first_flight_acked) {
            *flights.entry(sender.first_flight).or_default() += 1;
        }
        flights
    }
}

/// Prints the initial windows that connections really used, counted on the wire.
pub(crate) fn print_first_flights(networks: &[IpNet], before: &Set, after: &Set, granted: &BTreeMap<IpNet, u32>) {
    println!("  {:<18} {:>14}  {:<26} {:<26}", "network", "agent grants", "before (segments x times)", "after");
    for network in networks {
        let says = granted.get(network).map_or("nothing".to_owned(), |window| format!("{window} segments"));
        let list = |set: &Set| {
            let flights = set.first_flights(*network);
            let words: Vec<String> = flights.iter().map(|(value, times)| format!("{value} x {times}")).collect();
            words.join(", ")
        };
        println!("  {:<18} {says:>14}  {:<26} {:<26}", network.to_string(), list(before), list(after));
    }
}

/// Prints completion times before and after, the worst change first.
pub(crate) fn print_times(networks: &[IpNet], before: &Set, after: &Set) {
    let mut cells = Vec::new();
    for network in networks {
        for bytes in TIMED_BYTES {
            if let (Some(was), Some(is)) = (before.median(*network, bytes), after.median(*network, bytes)) {
                cells.push((is.as_secs_f64() / was.as_secs_f64() - 1.0, *network, bytes, was, is));
            }
        }
    }
    cells.sort_by(|a, b| b.0.total_cmp(&a.0));
    let slower = cells.iter().filter(|cell| cell.0 > 0.0).count();
    let ((sent_was, again_was), (sent_is, again_is)) = (before.packets(), after.packets());
    println!(
        "  slower in {slower} of {} rows; retransmitted {again_was} of {sent_was} packets before, {again_is} of {sent_is} after",
        cells.len()
    );
    println!();
    println!(
        "  {:<18} {:>8} {:>10} {:>10} {:>8}  {:>16}  before (=) and after (#)",
        "network", "size", "before", "after", "change", "retransmissions"
    );
    for (change, network, bytes, was, is) in cells {
        let longer = was.max(is).as_secs_f64();
        let repeated = format!("{} -> {}", before.retransmitted(network, bytes), after.retransmitted(network, bytes));
        println!(
            "  {:<18} {:>5} KB {:>7.0} ms {:>7.0} ms {:>+6.0} %  {repeated:>16}  {}",
            network.to_string(),
            bytes / 1_000,
            was.as_secs_f64() * 1e3,
            is.as_secs_f64() * 1e3,
            change * 100.0,
            bar('=', was.as_secs_f64() / longer)
        );
        println!("  {:>86}  {}", "", bar('#', is.as_secs_f64() / longer));
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a width, 0 to 28")]
fn bar(mark: char, share: f64) -> String {
    std::iter::repeat_n(mark, (share * BAR_WIDTH).round().max(1.0) as usize).collect()
}
