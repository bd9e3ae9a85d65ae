//! Who is let in, over real handshakes: what is refused, logged once and counted, and what goes on meanwhile.

#![expect(clippy::unwrap_used, reason = "a test ends where something that it needs is missing")]

mod addresses;
mod guide;
mod limits;
mod people;
mod tls;
