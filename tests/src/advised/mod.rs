//! Connections that start on advice of one's own making: a lab whose server host has the agent's kernel programs, which get directly what is
//! known of each network, and every segment's window by the kernel.

mod follow;
mod stage;

pub use follow::{Followed, follow};
pub use stage::{Advice, Stage, ask, by_connection};
