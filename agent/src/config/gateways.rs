//! Where the gateways are: `gateway.url` for one, `gateway.urls` for several in groups.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use serde::de::{SeqAccess, Visitor};
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

    /// The gateways by group, in the order in which groups are tried.
    pub fn groups(&self) -> Vec<Vec<&str>> {
        match &self.urls {
            Some(groups) => groups.iter().map(|group| group.iter().map(String::as_str).collect()).collect(),
            None => vec![vec![self.url.as_deref().unwrap_or(DEFAULT_URL)]],
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
        let Some(groups) = &self.urls else { return Ok(()) };
        if self.url.is_some() {
            return Err(
                "gateway.url and gateway.urls are both given: keep gateway.url for one gateway, gateway.urls for \
                        several"
                    .to_owned(),
            );
        }
        if groups.is_empty() {
            return Err("gateway.urls names no gateway: write [[\"https://HOST:PORT\"]]".to_owned());
        }
        if let Some(empty) = groups.iter().position(Vec::is_empty) {
            return Err(format!("gateway.urls: group {} is empty: name a gateway in it, or leave it out", empty + 1));
        }
        let all = groups.concat();
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
pub(crate) fn canonical(url: &str) -> String {
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

/// Reads `gateway.urls`, and says what it should be where it is something else.
pub(super) fn groups<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Vec<String>>>, D::Error> {
    struct Groups;

    impl<'de> Visitor<'de> for Groups {
        type Value = Vec<Vec<String>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("groups of gateways, such as [[\"https://a:7400\", \"https://b:7400\"], [\"https://c:7400\"]]")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut groups = Vec::new();
            while let Some(Group(group)) = list.next_element()? {
                groups.push(group);
            }
            Ok(groups)
        }
    }

    deserializer.deserialize_seq(Groups).map(Some)
}

/// A group, read so that a URL outside of one gets a sentence.
struct Group(Vec<String>);

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Urls;

        impl<'de> Visitor<'de> for Urls {
            type Value = Vec<String>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a group of gateways in brackets of its own, such as [\"https://a:7400\", \"https://b:7400\"]",
                )
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut urls = Vec::new();
                while let Some(url) = list.next_element()? {
                    urls.push(url);
                }
                Ok(urls)
            }
        }

        deserializer.deserialize_seq(Urls).map(Self)
    }
}
