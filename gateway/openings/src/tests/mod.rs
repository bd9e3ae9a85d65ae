//! The senders, the rules, and both in a table of networks.

mod rules;
mod senders;
mod table;

use std::net::IpAddr;

use spand_core::types::{ConnectionId, Phase, SenderId, SenderState};
use spand_proto::opening::Opening;
use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use super::*;
