//! What the agent's tests share: a gateway that says what a test tells it, and network namespaces.

pub(crate) mod agent;
pub(crate) mod gateway;
pub(crate) mod namespace;
