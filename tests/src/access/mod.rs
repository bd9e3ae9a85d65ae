//! Who is let in: authorities that make certificates, and a gateway's listeners in this process that ask for them.

mod authority;
mod log;
mod stage;

pub use authority::{Authority, Made, Wanted};
pub use log::Log;
pub use stage::{Setup, Stage, question};
