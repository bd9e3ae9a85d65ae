//! What gateways of a cluster have each other know.

#![forbid(unsafe_code)]

mod notice;

pub use self::notice::{Addressed, HeldBack, Notice, SEATS_AGAIN, StartSeen, WireNetwork};
