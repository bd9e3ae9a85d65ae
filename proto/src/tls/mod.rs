//! What gateway and agent show each other to prove who they are: certificates and keys from the bytes of PEM files, the
//! names a certificate holds, and when it ends.
//!
//! Does not: read files, know the time, or speak TLS. The programs do.

mod pem;
#[cfg(test)]
mod tests;

pub use pem::{Certificate, Names, PemError, PemFile};
