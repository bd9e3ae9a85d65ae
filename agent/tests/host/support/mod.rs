//! What the agent's tests share: a gateway that sends what a test sets, and network namespaces.

pub(crate) mod agent;
pub(crate) mod gateway;
pub(crate) mod namespace;
