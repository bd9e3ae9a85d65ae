//! The commands of the guide make files with which an agent and a gateway prove themselves to each other.

use std::fs;
use std::path::Path;

use clap::Parser;
use spand_gateway::cli::{self, Cli};
use spand_tests::access::{Setup, question};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::tls::{agent_of, receives_estimates};

/// The blocks of shell in the guide's section on certificates, in their order.
fn commands() -> Vec<String> {
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/access.md")).unwrap();
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
