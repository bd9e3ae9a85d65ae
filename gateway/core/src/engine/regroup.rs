//! Other prefixes in force between two frames: what they change goes, what they leave as it was stays.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::Engine;
use crate::flow::prefixes::Prefixes;
use crate::flow::tuple::Tuple;
use crate::shard::Part;

impl Engine {
    /// Other sockets are the gateway's own from here on. A connection that is followed already stays followed.
    pub fn set_own_listeners(&mut self, own_listeners: BTreeSet<SocketAddr>) {
        self.config.own_listeners = own_listeners;
    }

    /// Takes other prefixes inside, and another list of networks, from here on. Networks that the list does not make any more go and
    /// are withdrawn; the others keep what they hold. A connection whose ends or networks are others than before ends here, and its
    /// next segment opens it again, midstream: of several engines at the one that owns it then. Goes through every connection and
    /// every network. Returns how many networks were removed. Take the events.
    pub fn set_prefixes(&mut self, internal: Vec<IpNet>, networks: Vec<IpNet>) -> usize {
        let prefixes = Prefixes::new(&internal, &networks);
        let mut changed: Vec<Tuple> = Vec::new();
        for tuple in self.flows.tuples() {
            let [low, high] = tuple.addresses();
            if means(&self.prefixes, low, high) != means(&prefixes, low, high) {
                changed.push(*tuple);
            }
        }
        // Still under the prefixes that they were followed with.
        for tuple in changed {
            if let Some(key) = self.flows.find(&tuple) {
                self.end(key);
            }
        }
        self.config.internal = internal;
        self.config.prefixes = networks;
        self.part = Part::of(&self.config);
        let gone = self.networks.drop_unless(|network| prefixes.makes(network));
        self.prefixes = prefixes;
        self.take_network_events();
        gone
    }
}

/// Classification of a connection by the prefixes: whether any are configured, which end is inside, and the networks of both.
fn means(prefixes: &Prefixes, low: IpAddr, high: IpAddr) -> impl PartialEq + use<> {
    let of = |address| (prefixes.is_internal(address), prefixes.network_of(address));
    (prefixes.is_bare(), of(low), of(high))
}
