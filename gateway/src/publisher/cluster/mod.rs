//! The gateways of a cluster: what this publisher has others know, and what it takes from them.
//!
//! Notices leave through a bounded channel on which nobody waits; what has no room is counted and dropped, and each kind says what that
//! costs.

mod notice;

use spand_core::sharing::GatewayId;
use spand_proto::push::WithdrawalReason;
use spand_proto::units::Timestamp;
use tokio::sync::mpsc::Sender;

use super::insight::Kind;
use super::state::Advertised;
use super::{PacketClock, Published};

pub use self::notice::{HeldBack, Notice};

/// Notices that wait for the hub.
pub(crate) const NOTICES: usize = 8_192;

/// The publisher's clock.
impl PacketClock for Published {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }
}

impl Published {
    /// Has notices for other gateways leave by this channel. Once.
    pub(crate) fn share_by(&self, notices: Sender<Notice>) {
        drop(self.shared.notices.set(notices));
    }

    /// Has other gateways know, where there are any.
    pub(super) fn notify_others(&self, notice: Notice) {
        if let Some(notices) = self.shared.notices.get()
            && notices.try_send(notice).is_err()
        {
            self.measures().notices_dropped.inc();
        }
    }

    /// The networks whose advice this gateway holds back, for gateways that may not have heard of it.
    pub(crate) fn held_back(&self) -> Vec<HeldBack> {
        self.shared.state.read().networks.all_held_back()
    }

    /// Takes notices of another gateway.
    pub(crate) fn take_notices(&self, from: GatewayId, notices: &[Notice]) {
        for notice in notices {
            match notice {
                Notice::HeldBack(held) => self.take_held_back(from, held),
            }
        }
    }

    /// Holds advice back that another gateway holds back.
    fn take_held_back(&self, GatewayId(gateway): GatewayId, held: &HeldBack) {
        let now = self.now();
        let mut state = self.shared.state.write();
        let Some(changes) = state.networks.hold_back(held, now, &self.shared.config) else { return };
        let mut advertised = Advertised::default();
        state.advertise(changes, WithdrawalReason::Retreat, now, &mut advertised);
        drop(state);
        self.measures().retreats_of_others.inc();
        let what = if held.withdrawn.is_some() { "withdrawn_elsewhere" } else { "halved_elsewhere" };
        self.shared.insight.note(now, Kind::Retreat, what, held.network.to_string());
        tracing::debug!(gateway, network = %held.network, what, "advice is held back as at another gateway");
        self.send_out(advertised);
    }
}
