//! Who is let in: authorities that make certificates, and a gateway's listeners in this process that ask for them.

mod authority;
mod stage;

pub use authority::{Authority, Made, Wanted};
pub use stage::{Log, Setup, Stage, question};
