//! The agent on a host: the real program and the real kernel, with a gateway that sends what a test sets.

#[cfg(test)]
mod bpf;
#[cfg(test)]
mod cli;
#[cfg(test)]
mod reload;
#[cfg(test)]
mod route;
#[cfg(test)]
mod subscriber;
/// What these tests share: a gateway that sends what a test sets, and network namespaces.
#[cfg(test)]
mod support {
    pub(crate) mod agent;
    pub(crate) mod gateway;
    pub(crate) mod namespace;
}
