//! The commands of the guide make files with which an agent and a gateway prove themselves to each other.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use clap::Parser;
use spand_gateway::cli;
use spand_gateway::cli::Cli;
use spand_tests::access::{Setup, question};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::tls::{agent_of, receives_estimates};

/// The blocks of shell in the guide's section on certificates, in their order.
fn commands() -> Vec<String> {
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operate/access.md")).unwrap();
    let section = guide.split("## Certificates").nth(1).unwrap().split("\n## ").next().unwrap();
    section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap().trim().to_owned()).collect()
}

/// Runs a command of the guide with the authority in `folder`.
fn run(folder: &Path, command: &str) {
    let folder = folder.to_str().unwrap();
    let words = command.split_whitespace().map(|word| word.replace("/etc/spand/ca", folder));
    let words: Vec<String> = words.chain(["--dir".to_owned(), folder.to_owned()]).collect();
    cli::run(Cli::try_parse_from(&words).unwrap()).unwrap_or_else(|failure| panic!("{command}: {failure}"));
}

#[tokio::test]
async fn the_certificates_of_the_guide_prove_both_ends_until_revoked() {
    let blocks = commands();
    let [init, gateway, host, revoke] = blocks.as_slice() else {
        panic!("authority, gateway, host and list: {blocks:?}")
    };
    let stage = Setup::new().unwrap().start().await.unwrap();
    let folder = stage.path().join("ca");
    let put = |from: &str, to: &str| fs::copy(folder.join(from), stage.path().join(to)).unwrap();
    run(&folder, init);
    // This machine's addresses, beside those of the guide: the stage is on loopback.
    run(&folder, &format!("{gateway} --address 127.0.0.1"));
    run(&folder, &format!("{host} --address 127.0.0.1"));
    for (name, to) in [("gateway.example.org", "gateway"), ("web-1.example.org", "agent")] {
        for end in ["key", "pem"] {
            put(&format!("{name}.{end}"), &format!("{to}.{end}"));
        }
    }
    put("ca.pem", "ca.pem");
    // The authority's list is not there yet: the stage's own says nothing about it.
    stage.access.look();
    receives_estimates(&agent_of(&stage)).await;

    let file = |name: &str| fs::read_to_string(stage.path().join(name)).unwrap();
    let ask = async |shows: &str| {
        let tls = ClientTlsConfig::new()
            .domain_name("gateway.example.org")
            .ca_certificate(Certificate::from_pem(file("ca.pem")))
            .identity(Identity::from_pem(file(&format!("{shows}.pem")), file(&format!("{shows}.key"))));
        let endpoint = Endpoint::from_shared(format!("https://{}", stage.grpc)).unwrap().tls_config(tls).unwrap();
        let mut client = spand_proto::v1::spand_client::SpandClient::new(endpoint.connect().await?);
        client.query(question()).await?;
        anyhow::Ok(())
    };
    ask("agent").await.unwrap();
    assert!(ask("gateway").await.is_err(), "a gateway's certificate is no agent's");
    assert_eq!(stage.refused("grpc", "certificate").await.unwrap(), 1);

    run(&folder, &host.replace("web-1", "web-2"));
    run(&folder, revoke);
    put("revoked.pem", "revoked.pem");
    stage.access.look();
    assert!(ask("agent").await.is_err(), "revoked, and still answered");
    assert_eq!(stage.refused("grpc", "revoked").await.unwrap(), 1);
    // Others of the authority are not.
    for end in ["key", "pem"] {
        put(&format!("web-2.example.org.{end}"), &format!("other.{end}"));
    }
    ask("other").await.unwrap();
    stage.stop();
}

// The client of docs/examples against the published contract: anybody can write one.

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
