//! What a configuration makes of sharing.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use spand_cells::{Addressed, GatewayId, HeldBack, Notice, TapId, fingerprint};
use spand_core::config::EngineConfig;
use spand_core::shard::Partition;
use spand_proto::contract::Cluster;
use spand_proto::units::{Micros, Timestamp};

use spand_share::exchange::Exchange;
use spand_share::format::Member;
use spand_share::nats::{NatsConfig, NatsExchange, NatsIdentity, NatsLogin, NatsTls};
use tokio::sync::mpsc::Sender;

use super::Share;
use crate::config::mib;
use crate::publisher::Published;

pub(crate) use spand_share::most_bytes;
pub use spand_share::{EngineEnd, ShareStatus, Sharing};

/// Kept messages outlive the window by so much: a gateway that starts has that long to read them.
const BEYOND: Duration = Duration::from_secs(30);

/// Starts what is configured, over NATS.
///
/// # Errors
///
/// Where the thread or what it waits with cannot be had.
pub fn start(
    (share, own): (&Share, Option<spand_cells::Sharing>),
    engines: (&EngineConfig, Partition, u64),
    published: &Published,
) -> io::Result<Option<(Sharing, Vec<EngineEnd>)>> {
    start_by(NatsExchange::new, (share, own), engines, published)
}

/// The same, for engines of this configuration and with the exchange that is made of it; `None` where nothing is.
/// `instance` is drawn at each start.
///
/// # Errors
///
/// Where the thread or what it waits with cannot be had.
pub fn start_by<E: Exchange>(
    exchange: impl FnOnce(NatsConfig) -> E,
    (share, own): (&Share, Option<spand_cells::Sharing>),
    (engine, partition, instance): (&EngineConfig, Partition, u64),
    published: &Published,
) -> io::Result<Option<(Sharing, Vec<EngineEnd>)>> {
    let Some(own) = own else { return Ok(None) };
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let member = Member {
        gateway: own.gateway,
        tap: own.tap,
        instance,
        name,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        bucket: engine.window.bucket,
        buckets: engine.window.buckets.get(),
        rule: engine.rule,
        prefixes: fingerprint(&engine.prefixes),
        clock: Timestamp(0),
        digests: Vec::new(),
        address: None,
    };
    let window = Duration::from(Micros(engine.window.bucket.0.saturating_mul(engine.window.buckets.get().into())));
    let exchange = exchange(NatsConfig {
        servers: share.servers.clone(),
        cluster: share.cluster.clone(),
        site: share.site.clone(),
        gateway: own.gateway,
        login: login(share),
        tls: share.ca.clone().map(|ca| NatsTls {
            ca,
            identity: share
                .certificate
                .clone()
                .zip(share.key.clone())
                .map(|(certificate, key)| NatsIdentity { certificate, key }),
        }),
        replicas: share.replicas(),
        window: window + BEYOND,
        stream_bytes: mib(share.kept_mib).get() as u64,
    });
    let engines = usize::try_from(engine.shard.count.get()).unwrap_or(1);
    let owner = move |network| usize::try_from(partition.owner(network)).unwrap_or(usize::MAX);
    let (sharing, ends) = Sharing::start(exchange, member, engines, Box::new(owner), Arc::new(published.clone()))?;
    sharing.status().set_names(&share.cluster, &share.site);
    if let Some(cluster) = Cluster::new(share.cluster.clone()) {
        let status = sharing.status().clone();
        published.join_cluster(cluster, move |time| status.knows_others(time.into()));
    }
    Ok(Some((sharing, ends)))
}

fn login(share: &Share) -> Option<NatsLogin> {
    let Share { user, password, credentials, .. } = share.clone();
    let with_password = user.zip(password).map(|(user, password_file)| NatsLogin::Password { user, password_file });
    with_password.or_else(|| credentials.map(|file| NatsLogin::Credentials { file }))
}

impl spand_share::Publisher for Published {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }

    fn share_by(&self, notices: Sender<Addressed>) {
        Self::share_by(self, notices);
    }

    fn set_members(&self, own: (GatewayId, TapId), members: BTreeMap<GatewayId, TapId>) {
        Self::set_members(self, own, members);
    }

    fn take_notices(&self, from: GatewayId, sent: Timestamp, notices: &[Notice]) {
        Self::take_notices(self, from, sent, notices);
    }

    fn held_back(&self) -> Vec<HeldBack> {
        Self::held_back(self)
    }

    fn seated(&self) -> Vec<IpAddr> {
        Self::seated(self)
    }

    fn outlier_found(&self, sentence: String) {
        Self::outlier_found(self, sentence);
    }
}
