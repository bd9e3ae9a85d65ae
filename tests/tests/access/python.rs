//! The client of docs/examples against the published contract: anybody can write one.

use std::path::Path;
use std::process::{Command, Output};

use spand_tests::access::Setup;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Runs the example with the contract's messages in `folder`.
fn client(folder: &Path, arguments: &[&str]) -> Output {
    let mut python = Command::new("/usr/bin/python3");
    python.arg(format!("{ROOT}/docs/examples/query.py")).args(arguments).env("PYTHONPATH", folder);
    python.output().expect("Debian's python3, which `make test` installs with python3-grpcio")
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_lines_of_python_ask_for_advice() {
    let folder = tempfile::tempdir().unwrap();
    let sources = ["estimate", "query", "report", "service", "start", "subscribe"];
    let sources = sources.map(|name| format!("{ROOT}/proto/spand/v1/{name}.proto"));
    let mut protoc = Command::new("protoc");
    protoc.arg(format!("-I{ROOT}/proto")).arg("--python_out").arg(folder.path()).args(sources);
    let made = protoc.status().expect("protoc of protobuf-compiler, which `make test` installs");
    assert!(made.success(), "the contract is understood by protoc");

    let stage = Setup::new().unwrap().start().await.unwrap();
    let agent = stage.authority.make(&["host1"]).unwrap();
    agent.write(stage.path(), "agent").unwrap();
    let gateway = format!("localhost:{}", stage.grpc.port());
    let (tls, known, unknown) = (stage.path().to_str().unwrap(), "192.0.2.7", "198.51.100.1");
    let asked = |arguments: Vec<String>| {
        let folder = folder.path().to_owned();
        tokio::task::spawn_blocking(move || {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            client(&folder, &arguments)
        })
    };
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    let answer = asked(words(&[&gateway, "1000000", known, unknown, "--tls", tls])).await.unwrap();
    let (stdout, errors) = (String::from_utf8_lossy(&answer.stdout), String::from_utf8_lossy(&answer.stderr));
    assert!(answer.status.success(), "{errors}");
    let lines: Vec<_> = stdout.lines().collect();
    // Three quarters of the share, as careful hosts start.
    assert_eq!(lines[0], "192.0.2.7: start with 20 segments of 1448 bytes");
    assert!(lines[1].starts_with("198.51.100.1: start as ever: "), "{stdout}");

    let refused = asked(words(&[&gateway, "1000000", known])).await.unwrap();
    assert!(!refused.status.success(), "without a certificate nothing is answered");
    stage.stop();
}
