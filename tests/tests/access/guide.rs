//! The commands of the guide make files that work.

use std::fs;
use std::path::Path;
use std::process::Command;

use spand_tests::access::{Setup, question};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// The blocks of shell in the guide's section on certificates, in their order.
fn commands() -> Vec<String> {
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/access.md")).unwrap();
    let section = guide.split("## Certificates").nth(1).unwrap().split("\n## ").next().unwrap();
    section.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_certificates_of_the_guide_prove_both_ends_until_revoked() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED 1 test: no openssl to make certificates with");
        return;
    }
    let stage = Setup::new().unwrap().start().await.unwrap();
    let blocks = commands();
    assert_eq!(blocks.len(), 4, "authority, gateway, host and list");
    let (list, make) = blocks.split_last().unwrap();
    let shell = |text: &str| {
        let done =
            Command::new("bash").args(["-euo", "pipefail", "-c", text]).current_dir(stage.path()).output().unwrap();
        assert!(done.status.success(), "{text}\n{}", String::from_utf8_lossy(&done.stderr));
    };
    for block in make {
        shell(block);
    }
    // The authority's list is not there yet: the stage's own says nothing about it.
    stage.access.look();
    let file = |name: &str| fs::read_to_string(stage.path().join(name)).unwrap();
    let ask = async || {
        let tls = ClientTlsConfig::new()
            .domain_name("gateway.example.org")
            .ca_certificate(Certificate::from_pem(file("ca.pem")))
            .identity(Identity::from_pem(file("agent.pem"), file("agent.key")));
        let endpoint = Endpoint::from_shared(format!("https://{}", stage.grpc)).unwrap().tls_config(tls).unwrap();
        let mut client = spand_proto::v1::spand_client::SpandClient::new(endpoint.connect().await?);
        client.query(question()).await?;
        anyhow::Ok(())
    };
    ask().await.unwrap();
    shell(list);
    stage.access.look();
    assert!(ask().await.is_err(), "revoked, and still answered");
    assert_eq!(stage.refused("grpc", "revoked").await.unwrap(), 1);
    stage.stop();
}
