//! The lab, scenarios, replay cases and benchmarks of spand.

pub mod access;
pub mod accuracy;
pub mod advised;
pub mod applications;
pub mod attacks;
pub mod benefit;
pub mod campaign;
pub mod cases;
pub mod cluster;
pub mod dashboard;
pub mod dialect;
pub mod hostile;
pub mod kernels;
pub mod lab;
pub mod memory;
pub mod networks;
pub mod oracle;
pub mod papers;
pub mod patience;
pub mod plot;
pub mod product;
pub mod rules;
pub mod shares;
pub mod silent;
pub mod starts;

pub use spand_engine_tests::{ending, trace};
