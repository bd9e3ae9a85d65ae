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
#[cfg(test)]
mod support;
