//! Tests of the engine that need no kernel, no gateway and no agent: `make quick` runs them after a change of the core.

pub mod frame;
pub mod script;
