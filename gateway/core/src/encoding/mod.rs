//! Values as bytes: what the store's entries and the messages between gateways have in common. Each has a format of its own, with a
//! version, and reads what is damaged or hostile without allocating for it.

pub mod numbers;
pub mod parts;
