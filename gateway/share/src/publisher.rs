//! The publisher of this gateway, as sharing needs it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use spand_cells::{Addressed, GatewayId, HeldBack, Notice, TapId};
use spand_proto::units::Timestamp;
use tokio::sync::mpsc::Sender;

/// Has other gateways know something, and takes what they have this one know. Nothing here waits.
pub trait Publisher: fmt::Debug + Send + Sync + 'static {
    /// The time that a packet captured now would carry.
    fn now(&self) -> Timestamp;

    /// Has notices for other gateways leave by this channel. Once.
    fn share_by(&self, notices: Sender<Addressed>);

    /// Takes which other gateways there are, and whose packets they see.
    fn set_members(&self, own: (GatewayId, TapId), members: BTreeMap<GatewayId, TapId>);

    /// Takes notices of another gateway, sent then by its clock.
    fn take_notices(&self, from: GatewayId, sent: Timestamp, notices: &[Notice]);

    /// The networks whose advice this gateway holds back, for gateways that may not have heard of it.
    fn held_back(&self) -> Vec<HeldBack>;

    /// The addresses of the hosts that are subscribed here.
    fn seated(&self) -> Vec<IpAddr>;

    /// Shows people that a tap lies far from all others.
    fn outlier_found(&self, sentence: String);
}
