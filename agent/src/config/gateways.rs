//! Where the gateways are: `gateway.url` for one, `gateway.urls` for several.

use std::net::IpAddr;
use std::path::Path;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use tonic::transport::Uri;

use super::Gateway;

/// Where the gateway is unless the file names another.
pub(super) const DEFAULT_URL: &str = "unix:/run/spand/gateway.sock";

/// Gateways that can be named. A host tries them one after the other, so that more would only make the round longer.
pub(super) const MOST_GATEWAYS: usize = 32;

impl Gateway {
    /// Adds the default gateway where the file names none.
    pub(super) fn fill_in(&mut self) {
        if self.url.is_none() && self.urls.is_none() {
            self.url = Some(DEFAULT_URL.to_owned());
        }
    }

    /// The gateways in the order in which they are tried.
    pub fn list(&self) -> Vec<&str> {
        match &self.urls {
            Some(urls) => urls.iter().map(String::as_str).collect(),
            None => vec![self.url.as_deref().unwrap_or(DEFAULT_URL)],
        }
    }

    /// The key that names them.
    pub(crate) const fn key(&self) -> &'static str {
        if self.urls.is_some() { "gateway.urls" } else { "gateway.url" }
    }

    /// Only this one.
    pub(crate) fn only(&mut self, url: &str) {
        self.url = Some(url.to_owned());
        self.urls = None;
    }

    /// The first contradiction between them, as a sentence.
    pub(super) fn check(&self) -> Result<(), String> {
        let Some(all) = &self.urls else { return Ok(()) };
        if self.url.is_some() {
            return Err(
                "gateway.url and gateway.urls are both given: keep gateway.url for one gateway, gateway.urls for \
                        several"
                    .to_owned(),
            );
        }
        if all.is_empty() {
            return Err("gateway.urls names no gateway: write [\"https://HOST:PORT\"]".to_owned());
        }
        if all.len() > MOST_GATEWAYS {
            return Err(format!("gateway.urls names {} gateways: give at most {MOST_GATEWAYS}", all.len()));
        }
        let places: Vec<String> = all.iter().map(|url| canonical(url)).collect();
        match (1..all.len()).find(|&at| places[..at].contains(&places[at])) {
            Some(again) => Err(format!("gateway.urls names `{}` twice: leave one out", all[again])),
            None => Ok(()),
        }
    }
}

/// The Unix socket that a URL names, where it names one: `unix:/PATH` or `unix:///PATH`.
pub(crate) fn socket_of(url: &str) -> Option<&Path> {
    let path = url.strip_prefix("unix:")?;
    Some(Path::new(path.strip_prefix("//").unwrap_or(path)))
}

/// One spelling for each gateway: scheme, host and port, or its socket. What is no URL stays as it is.
fn canonical(url: &str) -> String {
    if let Some(path) = socket_of(url) {
        return format!("unix {}", path.display());
    }
    let Ok(uri) = url.parse::<Uri>() else { return url.to_owned() };
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else { return url.to_owned() };
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    let host = host.parse().map_or(host, |address: IpAddr| address.to_string());
    let port = uri.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    format!("{scheme} {host} {port}")
}

/// Reads `gateway.urls`.
pub(super) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "write gateways in order of preference, such as [\"https://a:7400\", \"https://b:7400\"]"
    )]
    enum Urls {
        List(Vec<String>),
        Groups(Vec<Vec<String>>),
    }

    match Urls::deserialize(deserializer)? {
        Urls::List(urls) => Ok(Some(urls)),
        Urls::Groups(groups) => Err(D::Error::custom(format!(
            "gateways have no groups any more: write one list in order of preference, {:?}",
            groups.concat()
        ))),
    }
}
