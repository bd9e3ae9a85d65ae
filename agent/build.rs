//! Compiles the kernel programs with clang; no compiled ones lie in the repository.

use std::path::PathBuf;
use std::process::Command;

const FOLDER: &str = "src/bpf";

fn main() {
    println!("cargo::rerun-if-changed={FOLDER}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // linux/types.h includes asm/types.h, which Debian keeps apart for each architecture.
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    for object in ["spand", "bbr"] {
        let source = format!("{FOLDER}/{object}.bpf.c");
        let out = out.join(format!("{object}.bpf.o"));
        let mut clang = Command::new("clang");
        clang.arg(format!("-I/usr/include/{architecture}-linux-gnu"));
        // The line information of an object names no folder of the machine that compiled it.
        clang.arg("-fdebug-compilation-dir=.");
        clang.args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-c", &source, "-o"]).arg(&out);
        // Kernels before 6.3 refuse a program that reads what was not written on every way there.
        clang.args(["-Wuninitialized", "-Wsometimes-uninitialized", "-Wconditional-uninitialized"]);
        match clang.status() {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("clang could not compile {source} ({status}): its messages are above"),
            Err(error) => panic!("cannot run clang ({error}): run `make packages`, or install clang and libelf-dev"),
        }
    }
}
