//! Compiles the lab's kernel programs with clang; no compiled ones lie in the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the programs of agent and lab have in common.
const SHARED: &str = "../agent/src/bpf";

const SOURCES: [&str; 3] = ["src/lab/truth/bpf/sender.bpf.c", "src/bin/bench/pass.bpf.c", "tests/beside/other.bpf.c"];

fn main() {
    println!("cargo::rerun-if-changed={SHARED}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
        compile(source, &out.join(Path::new(source).with_extension("o").file_name().expect("a file")));
    }
}

fn compile(source: &str, out: &Path) {
    let mut clang = Command::new("clang");
    // linux/types.h includes asm/types.h, which Debian keeps apart for each architecture.
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets CARGO_CFG_TARGET_ARCH");
    clang.arg(format!("-I/usr/include/{architecture}-linux-gnu")).arg(format!("-I{SHARED}"));
    clang.args(["-g", "-O2", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-c", source, "-o"]).arg(out);
    match clang.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("clang could not compile {source} ({status}): its messages are above"),
        Err(error) => panic!("cannot run clang ({error}): run `make packages`, or install clang and libelf-dev"),
    }
}
