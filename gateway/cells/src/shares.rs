//! The tables and engines that share.

use spand_core::engine::Engine;
use spand_core::networks::{NetworkTable, OwnNetwork};
use spand_proto::network::Network;
use spand_proto::units::Timestamp;

use crate::cell::{Cell, CellRefused};
use crate::gateway::Sharing;
use crate::table::{SharedNetworks, SharingCounts};

/// What shares cells of its networks.
pub trait Shares: Sized {
    /// The table of its networks.
    fn table(&self) -> &NetworkTable;

    /// The same, to be changed.
    fn table_mut(&mut self) -> &mut NetworkTable;

    /// When it takes what comes of a network at `now`; `None` where it makes no such network.
    fn taken_at(&self, network: Network, now: Timestamp) -> Option<Timestamp>;

    /// The same, sharing with those of other gateways. For the start, before anything is seen.
    #[must_use]
    fn sharing(mut self, own: Option<Sharing>) -> Self {
        if let Some(own) = own {
            let networks = SharedNetworks::new(own, *self.table().config());
            self.table_mut().share_by(Box::new(networks));
        }
        self
    }

    /// Cells that are to leave for other gateways, oldest first; take them after every call that takes frames or time. None where nothing is
    /// shared.
    fn take_cells(&mut self) -> Vec<(Network, Cell)> {
        self.table_mut().others_mut().map(SharedNetworks::take_cells).unwrap_or_default()
    }

    /// What became of cells so far; `None` where nothing is shared.
    fn sharing_counts(&self) -> Option<&SharingCounts> {
        self.table().others().map(SharedNetworks::counts)
    }

    /// Every network with samples of this gateway's own, in order of prefix: to share again what may not have arrived.
    fn own_networks(&self) -> Vec<Network> {
        let mut networks: Vec<_> = self.table().networks_with_samples().map(|own| own.network).collect();
        networks.sort_unstable();
        networks
    }

    /// The cells of a network as this gateway saw it, from bucket `from` on: what left already, and the open one.
    fn own_cells(&self, network: Network, from: u64, now: Timestamp) -> Vec<Cell> {
        let shared = self.table().others::<SharedNetworks>().zip(self.table().own_network(network));
        shared.map(|(networks, own)| networks.own_cells(own, from, now)).unwrap_or_default()
    }

    /// Takes what another gateway saw of a network; `now` by the clock that stamps frames.
    ///
    /// # Errors
    ///
    /// Why it does not count.
    fn take_cell(&mut self, network: Network, cell: Cell, now: Timestamp) -> Result<(), CellRefused> {
        let now = self.taken_at(network, now).ok_or(CellRefused::NotANetwork)?;
        let Some(shared) = self.table().others::<SharedNetworks>() else { return Err(CellRefused::Own) };
        let (of, cell) = ((cell.gateway, cell.index()), shared.sound(cell, now)?);
        let take = |shared: &mut SharedNetworks, own: OwnNetwork<'_>| shared.take(own, cell);
        let taken = self.table_mut().take_foreign(network, now, take).unwrap_or(Err(CellRefused::NoRoom));
        if taken == Err(CellRefused::NoRoom)
            && let Some(shared) = self.table_mut().others_mut::<SharedNetworks>()
        {
            shared.note_no_room(of);
        }
        taken
    }
}

impl Shares for NetworkTable {
    fn table(&self) -> &NetworkTable {
        self
    }

    fn table_mut(&mut self) -> &mut NetworkTable {
        self
    }

    fn taken_at(&self, _network: Network, now: Timestamp) -> Option<Timestamp> {
        Some(now)
    }
}

impl Shares for Engine {
    fn table(&self) -> &NetworkTable {
        self.networks()
    }

    fn table_mut(&mut self) -> &mut NetworkTable {
        self.networks_mut()
    }

    fn taken_at(&self, network: Network, now: Timestamp) -> Option<Timestamp> {
        self.makes(network).then(|| now.max(self.clock_at(Timestamp(0))))
    }
}
