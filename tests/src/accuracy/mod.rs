//! How right the gateway is, cell by cell: a covering design of paths, workloads and senders, each run on real kernels with
//! the kernel's own account beside the gateway's.
//!
//! [`factors`] says what cells differ in and [`plan`] which cells there are; [`cell`] runs one; [`engine`] replays what the
//! tap recorded and [`compare`] holds it against the truth ([`telling`]: which congestion controls can be distinguished);
//! [`result`] is what is kept of it and [`report`] makes tables and plots.

pub mod cell;
pub mod compare;
pub mod engine;
pub mod factors;
pub mod plan;
pub mod report;
pub mod result;
pub mod telling;
pub mod truth;
