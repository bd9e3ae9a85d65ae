//! One gateway's end of an exchange.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use spand_cells::GatewayId;
use spand_share::exchange::{
    Exchange, Incoming, Link, LinkState, Outgoing, SiteStream, StreamFault, StreamState, Topic,
};
use spand_share::nats::{NatsConfig, NatsExchange};
use spand_tests::patience::{PATIENCE, awaited};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

/// What a gateway has in its hands.
pub(crate) struct Member {
    pub(crate) out: mpsc::Sender<Outgoing>,
    pub(crate) inbox: mpsc::Receiver<Incoming>,
    pub(crate) state: watch::Receiver<LinkState>,
    /// What keeps cells, by site.
    reported: Arc<Mutex<Vec<SiteStream>>>,
    /// Of whom which messages were expected out of the stream.
    kept: BTreeSet<(u16, String)>,
}

/// One replica, at these servers.
pub(crate) fn config(servers: Vec<String>, gateway: u16) -> NatsConfig {
    NatsConfig { replicas: 1, stream_bytes: 64 << 20, ..NatsConfig::new(servers, "test", "here", GatewayId(gateway)) }
}

impl Member {
    pub(crate) fn join(config: NatsConfig) -> Self {
        let ((out, outgoing), (incoming, inbox)) = (mpsc::channel(256), mpsc::channel(256));
        let (state, seen) = watch::channel(LinkState::default());
        let reported = Arc::default();
        tokio::spawn(Box::new(NatsExchange::new(config)).run(Link {
            outgoing,
            cells: incoming.clone(),
            incoming,
            state,
            streams: Arc::clone(&reported),
        }));
        Self { out, inbox, state: seen, reported, kept: BTreeSet::new() }
    }

    /// Joined and up.
    pub(crate) async fn up(config: NatsConfig) -> Self {
        let mut member = Self::join(config);
        member.wait_up().await;
        member
    }

    pub(crate) async fn wait_up(&mut self) {
        let up = timeout(PATIENCE, self.state.wait_for(|state| *state == LinkState::Up)).await.map(|up| up.map(drop));
        assert!(up.is_ok(), "not up: {:?}", *self.state.borrow());
    }

    /// Waits until it is down; its sentence.
    pub(crate) async fn sentence(&mut self) -> String {
        let down = awaited("down", self.state.wait_for(|state| matches!(state, LinkState::Down(_)))).await;
        match down.expect("the exchange runs").clone() {
            LinkState::Down(sentence) => sentence,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn send(&self, topic: Topic, payload: &str) {
        self.out.send(Outgoing::to_all(topic, payload.as_bytes().to_vec())).await.expect("the exchange runs");
    }

    /// The next message: of whom, about what, and what.
    pub(crate) async fn next(&mut self) -> (u16, Topic, String) {
        let message = awaited("a message", self.inbox.recv()).await.expect("the exchange runs");
        (message.gateway.0, message.topic, String::from_utf8(message.payload).expect("text"))
    }

    /// The next message is this one.
    pub(crate) async fn expect(&mut self, from: u16, topic: Topic, payload: &str) {
        if topic.is_kept() {
            self.kept.insert((from, payload.to_owned()));
        }
        let expected = (from, topic, payload.to_owned());
        loop {
            let found = self.next().await;
            if found == expected {
                return;
            }
            assert!(self.is_copy(&found), "{found:?} in place of {expected:?}");
        }
    }

    /// What is kept may come twice: as it is published, and out of the stream.
    fn is_copy(&self, (from, topic, payload): &(u16, Topic, String)) -> bool {
        *topic == Topic::Closed && self.kept.contains(&(*from, payload.clone()))
    }

    /// The state of a site's stream, where the servers reported one.
    pub(crate) fn reported(&self, site: &str) -> Option<Result<StreamState, StreamFault>> {
        self.reported.lock().iter().find(|kept| kept.site == site).map(|kept| kept.found.clone())
    }

    /// Waits until they reported that it is kept.
    pub(crate) async fn kept(&self, site: &str) -> StreamState {
        let reported = async {
            loop {
                if let Some(Ok(keeping)) = self.reported(site) {
                    return keeping;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        awaited("what the servers tell", reported).await
    }

    /// Every message up to this one.
    pub(crate) async fn until(&mut self, from: u16, topic: Topic, payload: &str) {
        let expected = (from, topic, payload.to_owned());
        let came = async { while self.next().await != expected {} };
        awaited("the message", came).await;
    }

    /// That nothing more comes for a while.
    pub(crate) async fn nothing(&mut self, length: Duration) {
        let end = Instant::now() + length;
        while let Ok(message) = tokio::time::timeout_at(end, self.inbox.recv()).await {
            let Incoming { gateway, topic, payload } = message.expect("the exchange runs");
            let found = (gateway.0, topic, String::from_utf8(payload).expect("text"));
            assert!(self.is_copy(&found), "{found:?}");
        }
    }
}
