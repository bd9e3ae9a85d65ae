//! Estimation rules held against real kernels (`make rules`): what single losses, unlike clients behind one address,
//! applications that send little, starts on advice, the sawtooth and a receiver that lies do to an estimate, and how
//! fast each rule follows a path that changes.
//!
//! A [`scenario`] is recorded once ([`record`]): the packets of the mirror port, and the kernel's own windows. The window
//! samples that the engine finds in the packets ([`series`]) are then given to every rule of [`variants`], whose estimates
//! [`judge`] holds against the kernel's windows.

pub mod judge;
pub mod page;
pub mod record;
pub mod scenario;
pub mod series;
pub mod variants;
