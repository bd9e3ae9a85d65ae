//! The lab, scenarios, replay cases and benchmarks of spand.

pub mod trace;
