//! The HTTP side without sockets, for fuzzing: compiled only with `--cfg fuzzing`, which cargo-fuzz sets.

use std::num::NonZeroU32;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request, StatusCode, Uri};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use tokio::runtime::{Builder, Runtime};

use crate::api::{Api, ApiConfig};
use crate::publisher::Published;

/// A gateway's pages.
#[derive(Debug)]
pub struct Pages {
    runtime: Runtime,
    router: Router,
}

impl Pages {
    /// Those on a published state.
    ///
    /// # Errors
    ///
    /// Where the system gives no runtime.
    pub fn new(published: impl FnOnce() -> Published) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        // One peer asks as fast as it can.
        let config = ApiConfig { requests_per_s: NonZeroU32::MAX, ..ApiConfig::default() };
        let router = runtime.block_on(async { super::router(Api::new(config, published(), None)) });
        Ok(Self { runtime, router })
    }

    /// The answer to a request: its status, the type of its content, and its content, which is left out where it never
    /// ends.
    pub fn ask(&self, method: Method, uri: Uri) -> (StatusCode, String, Vec<u8>) {
        let mut request = Request::new(Body::empty());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        self.runtime.block_on(async {
            let service = TowerToHyperService::new(self.router.clone());
            let Ok(response) = service.call(request).await;
            let status = response.status();
            let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let kind = kind.to_owned();
            if kind.starts_with("text/event-stream") {
                return (status, kind, Vec::new());
            }
            let body = to_bytes(response.into_body(), 64 << 20).await;
            (status, kind, body.map(Into::into).unwrap_or_default())
        })
    }
}
