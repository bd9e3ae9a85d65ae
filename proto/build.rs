//! Compiles the messages of `spand/v1` without a system `protoc`.

use std::error::Error;

const FILES: [&str; 6] = [
    "spand/v1/estimate.proto",
    "spand/v1/start.proto",
    "spand/v1/query.proto",
    "spand/v1/subscribe.proto",
    "spand/v1/report.proto",
    "spand/v1/service.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=spand");
    let descriptors = protox::compile(FILES, ["."])?;
    tonic_prost_build::configure().emit_rerun_if_changed(false).compile_fds(descriptors)?;
    Ok(())
}
