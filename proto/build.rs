//! Compiles the messages of `spand/v1` without a system `protoc`, where the feature `grpc` wants them.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=spand");
    messages()
}

#[cfg(feature = "grpc")]
fn messages() -> Result<(), Box<dyn Error>> {
    // The service imports every other file.
    let descriptors = protox::compile(["spand/v1/service.proto"], ["."])?;
    tonic_prost_build::configure().emit_rerun_if_changed(false).compile_fds(descriptors)?;
    Ok(())
}

#[cfg(not(feature = "grpc"))]
#[expect(clippy::unnecessary_wraps, reason = "the same shape as with the feature")]
fn messages() -> Result<(), Box<dyn Error>> {
    Ok(())
}
