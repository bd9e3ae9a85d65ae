//! The engine's side of connections that gateways compare ([`crate::halves`]).

use spand_proto::units::Timestamp;

use super::Engine;
use crate::flow::connection::Connection;
use crate::flow::tuple::Tuple;
use crate::halves::Halves;

impl Engine {
    /// What it saw of connections that began [`crate::halves::JUDGED_AFTER`] ago; `None` where the engine does not share.
    pub fn take_halves(&mut self, now: Timestamp) -> Option<Halves> {
        let flows = &self.flows;
        let seen = |tuple: &Tuple| flows.find(tuple).and_then(|key| flows.get(key)).and_then(Connection::seen);
        Some(self.watch.as_mut()?.take(now.max(self.now), seen))
    }

    /// Watches a connection that begins.
    pub(super) fn watch(&mut self, tuple: Tuple) {
        let (Some(sharing), Some(watch)) = (&self.config.sharing, &mut self.watch) else { return };
        watch.begin(tuple, sharing.pseudonyms.ends(&tuple), self.now);
    }
}
