//! What NATS refuses, and what is in the way, each in its sentence. The gateway goes on trying.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use spand_cells::GatewayId;
use spand_share::exchange::{LinkState, Topic};
use spand_share::nats::{NatsConfig, NatsIdentity, NatsLogin, NatsTls};
use spand_tests::access::{Authority, Wanted};
use spand_tests::cluster::Servers;

use crate::member::{Member, config};

const JETSTREAM: &str = "jetstream { store_dir: \"@STORE@\" }";

/// A user for each case, all with one password.
const USERS: &str = r#"
authorization { users: [
  { user: gateway, password: word, permissions: {
      publish: ["spand.test.here.*.1", "$JS.API.>"], subscribe: ["spand.test.>", "_INBOX.>"] } }
  { user: other, password: word, permissions: {
      publish: ["spand.test.here.*.2", "$JS.API.>"], subscribe: ["spand.test.>", "_INBOX.>"] } }
  { user: makes-nothing, password: word, permissions: {
      publish: { allow: [">"], deny: ["$JS.API.STREAM.CREATE.>"] } } }
  { user: reads-nothing, password: word, permissions: {
      publish: { allow: [">"], deny: ["$JS.API.DIRECT.GET.>"] } } }
  { user: deaf, password: word, permissions: {
      publish: [">"], subscribe: { allow: [">"], deny: ["spand.test.*.open.*"] } } }
] }
"#;

fn logged_in(servers: &Servers, user: &str, password: &str) -> NatsConfig {
    let password_file = servers.folder().join(format!("{user}-{password}"));
    fs::write(&password_file, format!("{password}\n")).expect("a file");
    NatsConfig {
        login: Some(NatsLogin::Password { user: user.to_owned(), password_file }),
        ..config(servers.urls(), 1)
    }
}

async fn says(config: NatsConfig, parts: &[&str]) {
    let sentence = Member::join(config).sentence().await;
    for part in parts {
        assert!(sentence.contains(part), "`{part}` is not in: {sentence}");
    }
    println!("{sentence}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_right_is_named_with_the_subject_and_what_to_do() {
    let Some(servers) = Servers::start(1, USERS).unwrap() else { return };
    let as_user = |user| logged_in(&servers, user, "word");
    says(config(servers.urls(), 1), &["asks for a login"]).await;
    says(logged_in(&servers, "gateway", "wrong"), &["refuses user `gateway`", "gateway-wrong"]).await;
    let to_make =
        ["no NATS stream spand-test-here", "$JS.API.STREAM.CREATE.spand-test-here", "`nats stream add spand-test-here"];
    says(as_user("makes-nothing"), &to_make).await;

    let member = Member::up(as_user("gateway")).await;
    let mut wrong = Member::join(as_user("other"));
    let sentence = wrong.sentence().await;
    assert!(sentence.contains("may not publish to spand.test.here."), "{sentence}");
    assert!(sentence.contains("allow it to publish to spand.test.here.*.1"), "{sentence}");
    println!("{sentence}");
    says(as_user("deaf"), &["may not subscribe to spand.test.*.open.*"]).await;
    says(as_user("reads-nothing"), &["may not publish to $JS.API.DIRECT.GET.spand-test-here"]).await;
    // One that is there needs no right to make it.
    let mut reader = Member::up(NatsConfig { gateway: GatewayId(2), ..as_user("makes-nothing") }).await;
    member.send(Topic::Closed, "kept").await;
    reader.expect(1, Topic::Closed, "kept").await;
    assert!(!matches!(*wrong.state.borrow(), LinkState::Up), "never up");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_jetstream_it_says_so() {
    let Some(mut servers) = Servers::configure(1, "").unwrap() else { return };
    servers.start_one(0).unwrap();
    says(config(servers.urls(), 1), &["JetStream is off"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_replicas_than_servers_are_refused() {
    let Some(servers) = Servers::start(1, "").unwrap() else { return };
    says(NatsConfig { replicas: 3, ..config(servers.urls(), 1) }, &["spand-test-here with 3 replicas"]).await;
}

/// A server that speaks TLS with a certificate of `names`, and what else its `tls` block says.
fn with_tls(authority: &Authority, wanted: &Wanted<'_>, more: &str) -> Result<Option<Servers>> {
    let Some(mut servers) = Servers::configure(1, JETSTREAM)? else { return Ok(None) };
    let (certificate, key) = authority.make_wanted(wanted)?.write(servers.folder(), "server")?;
    let ca = servers.folder().join("ca.pem");
    fs::write(&ca, authority.certificate())?;
    let (certificate, key, ca) = (certificate.display(), key.display(), ca.display());
    servers
        .add(&format!("\ntls {{ cert_file: \"{certificate}\", key_file: \"{key}\", ca_file: \"{ca}\"\n {more} }}\n"))?;
    servers.start_one(0)?;
    Ok(Some(servers))
}

fn by_tls(servers: &Servers, ca: PathBuf, identity: Option<NatsIdentity>) -> NatsConfig {
    NatsConfig { tls: Some(NatsTls { ca, identity }), ..config(servers.urls(), 1) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_does_not_hold_is_named_with_the_reason() {
    let (authority, foreign) = (Authority::new("own").unwrap(), Authority::new("foreign").unwrap());
    let names = ["127.0.0.1"];
    let good = Wanted { names: &names, ..Wanted::default() };
    let Some(servers) = with_tls(&authority, &good, "verify: true").unwrap() else { return };
    let ca = servers.folder().join("ca.pem");
    let foreign_ca = servers.folder().join("foreign.pem");
    fs::write(&foreign_ca, foreign.certificate()).unwrap();

    let identity = |authority: &Authority, name: &str| {
        let made = authority.make(&["gateway"]).unwrap();
        let (certificate, key) = made.write(servers.folder(), name).unwrap();
        Some(NatsIdentity { certificate, key })
    };
    let own = identity(&authority, "own");
    says(by_tls(&servers, foreign_ca.clone(), own.clone()), &["is of no authority in", "foreign.pem"]).await;
    says(by_tls(&servers, ca.clone(), None), &["asks for a client's certificate"]).await;
    says(by_tls(&servers, ca.clone(), identity(&foreign, "stranger")), &["refuses the certificate in", "stranger.pem"])
        .await;
    says(by_tls(&servers, servers.folder().join("none.pem"), None), &["none.pem", "cannot be read"]).await;
    Member::up(by_tls(&servers, ca, own)).await;

    let old = Wanted { age: Duration::from_secs(7_200), life: Duration::from_secs(3_600), ..good };
    let servers = with_tls(&authority, &old, "").unwrap().expect("as before");
    says(by_tls(&servers, servers.folder().join("ca.pem"), None), &["has expired"]).await;
    let elsewhere = Wanted { names: &["192.0.2.1"], ..Wanted::default() };
    let servers = with_tls(&authority, &elsewhere, "").unwrap().expect("as before");
    says(by_tls(&servers, servers.folder().join("ca.pem"), None), &["names another host"]).await;
    let servers = Servers::start(1, "").unwrap().expect("as before");
    says(by_tls(&servers, foreign_ca_of(&servers, &foreign), None), &["does not speak TLS"]).await;
}

fn foreign_ca_of(servers: &Servers, authority: &Authority) -> PathBuf {
    let path = servers.folder().join("ca.pem");
    fs::write(&path, authority.certificate()).expect("a file");
    path
}
