//! Tests of the engine that need no kernel, no gateway and no agent: `make quick` runs them after a change of the core.

#![forbid(unsafe_code)]

pub mod corpus;
pub mod digests;
pub mod ending;
pub mod frame;
pub mod parallel;
pub mod script;
pub mod trace;
