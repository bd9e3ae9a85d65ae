//! The HTTP side without sockets, for fuzzing: compiled only with `--cfg fuzzing`, which cargo-fuzz sets.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use spand_confine::Confined;
use spand_proto::report::Report;
use tokio::runtime::{Builder, Runtime};

use crate::api::{Access, Api, ApiConfig};
use crate::publisher::{Client, Published, Subscription};

/// Messages of a live stream that are waited for; it never ends by itself.
const MESSAGES: usize = 2;

/// Who the reports are of.
pub const REPORTER: Client = Client::Address(IpAddr::V4(Ipv4Addr::LOCALHOST));

/// A gateway's pages.
#[derive(Debug)]
pub struct Pages {
    runtime: Runtime,
    router: Router,
    _agents: Vec<Subscription>,
}

impl Pages {
    /// Those on a published state with agents, made where they can wait for time, for whom `access` lets in, after hosts
    /// reported.
    ///
    /// # Errors
    ///
    /// Where the system gives no runtime.
    pub fn new(
        seen: impl FnOnce() -> (Published, Vec<Subscription>),
        access: Access,
        reports: &[Report],
    ) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let config = ApiConfig {
            // One peer asks as fast as it can.
            requests_per_s: NonZeroU32::MAX,
            live_interval: Duration::from_millis(1),
            ..ApiConfig::default()
        };
        let (router, agents) = runtime.block_on(async {
            let (published, agents) = seen();
            let api = Api::with_access(config, access, published.clone(), (None, None), &Confined::default());
            for report in reports {
                api.shared.reports.take(&REPORTER, report, &published).await;
            }
            (super::router(api), agents)
        });
        Ok(Self { runtime, router, _agents: agents })
    }

    /// The answer to a request: its status, the type of its content, and its content; of a live stream the first messages.
    pub fn ask(&self, request: Request<Vec<u8>>) -> (StatusCode, String, Vec<u8>) {
        self.runtime.block_on(async {
            let service = TowerToHyperService::new(self.router.clone());
            let Ok(response) = service.call(request.map(Body::from)).await;
            let status = response.status();
            let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let kind = kind.to_owned();
            if kind.starts_with("text/event-stream") {
                let messages = response.into_body().into_data_stream().take(MESSAGES);
                let messages: Vec<_> = messages.filter_map(async |message| message.ok()).collect().await;
                return (status, kind, messages.concat());
            }
            let body = to_bytes(response.into_body(), 64 << 20).await;
            (status, kind, body.map(Into::into).unwrap_or_default())
        })
    }
}
