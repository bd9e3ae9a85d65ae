//! The API over real sockets: what it answers, and that nothing a client sends harms it.

mod floods;
mod grpc;
mod http;
mod insight;
mod openings;
mod share;
mod totals;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spand_cells::{GatewayId, TapId};
use spand_confine::Confined;
use spand_core::estimate::NoEstimate;
use spand_core::event::Event;
use spand_core::networks::traffic::NetworkTraffic;
use spand_core::networks::view::NetworkView;
use spand_core::service::ServiceSize;
use spand_core::types::{LimitCounts, SampleRate};
use spand_proto::estimate::Estimate;
use spand_proto::made_up;
use spand_proto::network::Network;
use spand_proto::no_estimate::{Outcomes, Reason};
use spand_proto::units::{Bytes, Timestamp, Window};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Access, Api, ApiConfig};
use crate::names::tests::names;
use crate::publisher::{Batch, PacketClock, Published, PublisherConfig, ToHosts};
use spand_share::{ShareStatus, ShareView};

#[derive(Clone)]
struct SetClock(Arc<AtomicU64>);

impl PacketClock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

/// A gateway's API on loopback, with four networks.
struct Rig {
    published: Published,
    clock: SetClock,
    http: SocketAddr,
    grpc: SocketAddr,
    stop: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
}

/// 20 segments, 40 ms, from many samples.
const GOOD: &str = "192.0.2.0/24";
/// 200 segments.
const WIDE: &str = "198.51.100.0/24";
const SIX: &str = "2001:db8:7::/48";
/// Samples, and too few.
const POOR: &str = "203.0.113.0/24";

impl Rig {
    async fn new(config: ApiConfig) -> Self {
        Self::publishing(config, PublisherConfig::default()).await
    }

    async fn publishing(config: ApiConfig, publisher: PublisherConfig) -> Self {
        Self::with(config, publisher, ShareView::default()).await
    }

    async fn sharing(shared: ShareView) -> Self {
        Self::with(ApiConfig::default(), PublisherConfig::default(), shared).await
    }

    async fn with(config: ApiConfig, publisher: PublisherConfig, shared: ShareView) -> Self {
        let clock = SetClock(Arc::new(AtomicU64::new(10_000_000_000)));
        let published = Published::new(publisher, clock.clone());
        tokio::spawn(published.clone().run());
        let view = NetworkView { why_not: Some(NoEstimate::TooFewSamples), ..poor() };
        let events =
            [(GOOD, 20.0), (WIDE, 200.0), (SIX, 50.0)].map(|(network, wc)| Event::estimate(estimate(network, wc)));
        let events = events.into_iter().chain([Event::Network(Box::new(view))]).collect();
        published.apply(Batch { events, ..Batch::new() });
        let service = ServiceSize { service: ([203, 0, 113, 10], 443).into(), quantile: Bytes(30_048), transfers: 412 };
        published.apply(Batch { events: vec![Event::ServiceSize(service)], ..Batch::new() });
        let (stop, stopped) = watch::channel(false);
        let (http, grpc) = (bind().await, bind().await);
        let addresses = (http.local_addr().unwrap(), grpc.local_addr().unwrap());
        let share = ShareStatus::from(shared);
        share.measures().compared(GatewayId(2), [40, 15]);
        share.measures().outlier(TapId(2), 1);
        let (access, confined) = (Access::default(), Confined::default());
        let api = Api::with_access(config, access, published.clone(), (None, Some(share)), &confined);
        api.names().replace(names("198.51.100.0/24 Branch office 7\n"));
        let (one, two, also_stopped) = (api.clone(), api, stopped.clone());
        let servers = vec![
            tokio::spawn(async move { one.serve_http(http, stopped).await }),
            tokio::spawn(async move { two.serve_grpc(grpc, also_stopped).await }),
        ];
        Self { published, clock, http: addresses.0, grpc: addresses.1, stop, servers }
    }

    /// Asks with GET; the status and the JSON document.
    async fn get(&self, path: &str) -> (u16, serde_json::Value) {
        let (status, body) =
            self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).await;
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Sends the bytes of a request; the status and the body.
    async fn send(&self, request: impl AsRef<[u8]>) -> (u16, String) {
        let mut tcp = TcpStream::connect(self.http).await.unwrap();
        // A server that refuses early may close before everything is written.
        drop(tcp.write_all(request.as_ref()).await);
        let mut answer = Vec::new();
        drop(tcp.read_to_end(&mut answer).await);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    /// Whether a good question still gets its answer.
    async fn unharmed(&self) -> bool {
        self.get("/v1/advice?destination=192.0.2.7&bytes=100000").await.0 == 200
    }

    async fn end(self) {
        self.stop.send(true).unwrap();
        for server in self.servers {
            server.await.unwrap();
        }
    }
}

async fn bind() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

fn estimate(network: &str, wc_segments: f64) -> Estimate {
    let share = Window::from_bytes(wc_segments * 1_448.0).unwrap();
    made_up::estimate(network.parse().unwrap(), share, Timestamp(9_000_000_000))
}

fn poor() -> NetworkView {
    NetworkView {
        network: POOR.parse::<Network>().unwrap(),
        estimate: None,
        why_not: None,
        rtt_min: None,
        rtt_mean: None,
        samples: 2,
        lower_bounds: 1,
        connections: 1,
        losses: 0,
        limits: LimitCounts { window: 3, receiver: 0, application: 1 },
        parallel: 0,
        parallel_at_samples: 0,
        parallel_here: 0,
        reported: None,
        followed: SampleRate::ALL,
        outcomes: Outcomes::new(3, &[(Reason::AppLimited, 1)]),
        traffic: NetworkTraffic::default(),
        needed: (3, 2),
        compared: Vec::new(),
        addresses: Vec::new(),
        newest: Some(Timestamp(8_000_000_000)),
    }
}
