//! An address to listen on, as it is written in the configuration.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// An address to listen on.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "SocketAddr")]
pub struct Listen(pub SocketAddr);

/// A text that names no address to listen on.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no address to listen on: write one with a port, such as 127.0.0.1:7400 or [::1]:7400")]
pub struct NotAListenAddress(String);

impl TryFrom<String> for Listen {
    type Error = NotAListenAddress;

    fn try_from(text: String) -> Result<Self, NotAListenAddress> {
        text.parse().map(Self).map_err(|_| NotAListenAddress(text))
    }
}

impl From<Listen> for SocketAddr {
    fn from(listen: Listen) -> Self {
        listen.0
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
