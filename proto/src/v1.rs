//! The messages of `spand.v1` with client and server, generated from `proto/spand/v1/*.proto`.
//!
//! What each field means and in which unit stands in those files and in `docs/reference/protocol.md`. Raw messages are for the
//! edge: [`crate::convert`] turns them into checked values.

#![allow(
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    clippy::clone_on_ref_ptr,
    clippy::use_self,
    reason = "generated code; its lints are the generator's concern"
)]

tonic::include_proto!("spand.v1");
