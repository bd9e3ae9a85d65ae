//! The client in C (`agent/advice/c/spand_advice.h`): compiled without a warning, against an agent whose lines the test writes, and
//! against the agent's own socket, beside the client in Rust.
//!
//! The clients are compiled with the sanitizers of the C compiler. Where it has none, standard error gets a line: memory was not checked.

#![expect(clippy::unwrap_used, reason = "what a test stands on either works or fails it")]

mod driver;
mod fake;
mod real;

use std::process::Command;

use driver::{compile, repository};

#[test]
fn the_header_is_c99_and_cpp_without_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("example.o");
    let source = repository().join("docs/examples/advice.c");
    for language in [
        ["cc", "-xc", "-std=c99"],
        ["cc", "-xc", "-std=gnu17"],
        ["clang", "-xc", "-std=c99"],
        ["clang++", "-xc++", "-std=c++11"],
        ["clang++", "-xc++", "-std=c++20"],
    ] {
        let [compiler, rest @ ..] = language;
        let mut command = Command::new(compiler);
        command.args(rest).args(["-Wpedantic", "-Wconversion", "-Wshadow", "-c"]);
        compile(&mut command, &source, &object).unwrap_or_else(|messages| panic!("{language:?}: {messages}"));
    }
}
