//! TLS of the listeners: which certificate the gateway shows, which ones it takes, and how new files come into force
//! without a restart.
//!
//! Only TLS 1.3 (RFC 8446). What is in force is built whole from the files or not at all: a broken file leaves what was
//! there, logged once and counted.
//!
//! Knows nothing about what a peer may ask: it hands on the names of a certificate that was proven.

mod credentials;

pub use credentials::{Credentials, Files, Tls, TlsError, TlsMeasures, Trust};
