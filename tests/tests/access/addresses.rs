//! An agent reports its own addresses, and nobody else's.

use spand_proto::v1;
use spand_tests::access::{Log, Made, Setup, Stage};
use tonic::{Code, Status};

fn wish(addresses: &[&str]) -> v1::SubscribeRequest {
    let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
    v1::SubscribeRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        addresses,
        agent: None,
        cluster: String::new(),
        networks: Vec::new(),
    }
}

fn report(batch: u64, hosts: &[&str]) -> v1::ReportRequest {
    let connection = |host: &&str| v1::ConnectionReport {
        host_address: (*host).to_owned(),
        host_port: 443,
        remote_address: "192.0.2.7".to_owned(),
        remote_port: 50_000,
        ..v1::ConnectionReport::default()
    };
    v1::ReportRequest {
        contract_version: 1,
        host_name: "web-1".to_owned(),
        batch,
        agent_started_unix_ns: 1,
        connections: hosts.iter().map(connection).collect(),
        pushes: None,
        pause: None,
    }
}

async fn subscribe(stage: &Stage, shows: Option<&Made>, addresses: &[&str]) -> Result<(), Status> {
    let client = match shows {
        Some(_) => stage.client(shows).await,
        None => stage.plain_client().await,
    };
    client.unwrap().subscribe(wish(addresses)).await.map(|_| ())
}

/// Refused with words that name the address and the way out.
fn denied(outcome: Result<(), Status>, address: &str) {
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(status.message().contains(&format!("{address} is not an address of")), "{status:?}");
    assert!(status.message().contains("`addresses` in the agent's configuration"), "{status:?}");
}

#[tokio::test]
async fn a_certificate_says_for_which_addresses_its_agent_may_speak() {
    let log = Log::of_this_thread();
    let given = "[agents.addresses]\n\"Web-1.example.org\" = [\"198.51.100.0/28\"]\n";
    let stage = Setup::with(given).unwrap().start().await.unwrap();
    let web = stage.authority.make(&["web-1.example.org", "203.0.113.9"]).unwrap();
    let other = stage.authority.make(&["web-2.example.org"]).unwrap();
    subscribe(&stage, Some(&web), &["203.0.113.9", "198.51.100.3"]).await.unwrap();
    for _ in 0..3 {
        denied(subscribe(&stage, Some(&web), &["203.0.113.9", "203.0.113.10"]).await, "203.0.113.10");
    }
    denied(subscribe(&stage, Some(&other), &["198.51.100.3"]).await, "198.51.100.3");
    denied(subscribe(&stage, Some(&other), &["127.0.0.1"]).await, "127.0.0.1");
    assert_eq!(stage.refused("grpc", "other_address").await.unwrap(), 5);
    let lines = log.lines("is not an address of");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("203.0.113.10 is not an address of web-1.example.org at 127.0.0.1"), "{lines:?}");
    stage.stop();
}

#[tokio::test]
async fn connections_of_others_are_not_taken_from_a_report() {
    let stage = Setup::new().unwrap().start().await.unwrap();
    let web = stage.authority.make(&["web-1.example.org", "203.0.113.9"]).unwrap();
    let mut client = stage.client(Some(&web)).await.unwrap();
    let receipt = client.report(report(1, &["203.0.113.9", "203.0.113.10"])).await.unwrap().into_inner();
    assert_eq!((receipt.accepted, receipt.ignored), (1, 1));
    denied(client.report(report(2, &["203.0.113.10"])).await.map(|_| ()), "203.0.113.10");
    // Counts alone are about nobody else.
    client.report(report(3, &[])).await.unwrap();
    assert_eq!(stage.refused("grpc", "other_address").await.unwrap(), 2);

    // Another host that gives itself the same name does not make this one's reports look repeated.
    let thief = stage.authority.make(&["web-2.example.org", "203.0.113.10"]).unwrap();
    let far = v1::ReportRequest { agent_started_unix_ns: u64::MAX >> 1, ..report(9, &["203.0.113.10"]) };
    stage.client(Some(&thief)).await.unwrap().report(far).await.unwrap();
    let receipt = client.report(report(4, &["203.0.113.9"])).await.unwrap().into_inner();
    assert_eq!((receipt.accepted, receipt.ignored), (1, 0));
    stage.stop();
}

#[tokio::test]
async fn without_tls_the_address_of_the_peer_counts_where_that_is_configured() {
    let loose = "[tls]\n[agents]\nidentity = \"none\"\n";
    let stage = Setup::with(loose).unwrap().start().await.unwrap();
    subscribe(&stage, None, &["203.0.113.10"]).await.unwrap();
    stage.stop();
    let strict = "[tls]\n[agents]\nidentity = \"peer_address\"\n";
    let stage = Setup::with(strict).unwrap().start().await.unwrap();
    subscribe(&stage, None, &["127.0.0.1"]).await.unwrap();
    denied(subscribe(&stage, None, &["203.0.113.10"]).await, "203.0.113.10");
    assert_eq!(stage.refused("grpc", "other_address").await.unwrap(), 1);
    stage.stop();
}
