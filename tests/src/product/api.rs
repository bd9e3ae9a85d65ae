//! The gateway's JSON interface, asked as a person would with curl.

use std::net::SocketAddr;

use crate::ending::TooBusy;
use crate::lab::namespace::Namespace;
use crate::patience::PATIENCE;
use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// Where the interface is.
#[derive(Debug)]
pub struct Api {
    /// A namespace that reaches it.
    pub namespace: Namespace,
    /// Its address there.
    pub address: SocketAddr,
}

impl Api {
    /// The address of `path` for people.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Asks for `path`: status and body.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        let url = self.url(path);
        self.namespace.enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let answer = runtime.block_on(async {
                tokio::time::timeout(PATIENCE, async {
                    let client = Client::builder(TokioExecutor::new()).build_http::<String>();
                    let response = client.get(url.parse()?).await?;
                    let status = response.status().as_u16();
                    let body = response.into_body().collect().await?.to_bytes();
                    anyhow::Ok((status, String::from_utf8_lossy(&body).into_owned()))
                })
                .await
            });
            answer.map_err(|_| TooBusy::new(format!("the answer of {url}"), PATIENCE))?
        })
    }

    /// Asks for `path` and reads the JSON of a good answer.
    pub fn json(&self, path: &str) -> Result<Value> {
        let (status, body) = self.get(path)?;
        if status != 200 {
            bail!("{} answered {status}: {body}", self.url(path));
        }
        serde_json::from_str(&body).with_context(|| format!("{} is no JSON: {body}", self.url(path)))
    }
}
