//! The files of `packaging/nats`, and what an operator does with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream;
use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use nkeys::KeyPair;
use serde_json::{Value, json};
use spand_cells::GatewayId;
use spand_share::exchange::Topic;
use spand_share::nats::{NatsConfig, NatsLogin, NatsTls};
use spand_tests::cluster::Servers;
use spand_tests::patience::awaited;
use tokio::time::sleep;

use crate::member::{Member, config};

/// One of them.
pub(crate) fn packaged(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/nats").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands in a file.
pub(crate) fn replace(text: &str, what: &str, with: &str) -> String {
    assert!(text.contains(what), "`{what}` is not in: {text}");
    text.replace(what, with)
}

/// `users.conf` with passwords.
pub(crate) fn with_passwords(users: &str) -> String {
    let users = (1..=2).fold(users.to_owned(), |users, user| {
        replace(&users, &format!("$GATEWAY_{user}_PASSWORD\n"), &format!("\"word-{user}\"\n"))
    });
    replace(&users, "$ADMIN_PASSWORD\n", "\"word-admin\"\n")
}

/// Servers as clients know them.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) urls: Vec<String>,
    /// Where `ca.pem` is.
    pub(crate) folder: PathBuf,
    pub(crate) site: &'static str,
}

impl Known {
    /// Gateway N as its user of `users.conf`, with the password of user M.
    pub(crate) fn gateway(&self, number: u16, user: u16) -> NatsConfig {
        let password_file = self.folder.join(format!("password-{user}"));
        fs::write(&password_file, format!("word-{user}\n")).expect("a file");
        NatsConfig {
            login: Some(NatsLogin::Password { user: format!("gateway-{user}"), password_file }),
            tls: Some(NatsTls { ca: self.folder.join("ca.pem"), identity: None }),
            ..NatsConfig::new(self.urls.clone(), "main", self.site, GatewayId(number))
        }
    }

    /// A client as this user.
    pub(crate) fn client(&self, user: &str, password: &str) -> async_nats::ConnectOptions {
        let ca = self.folder.join("ca.pem");
        let options = async_nats::ConnectOptions::new().require_tls(true).add_root_certificates(ca);
        // As gateways: servers hand addresses on, and their certificates have names.
        let options = options.ignore_discovered_servers();
        options.user_and_password(user.to_owned(), password.to_owned())
    }

    /// A stream of a packaged file, made once by the packaged user for that.
    pub(crate) async fn make_stream(&self, text: &str) -> Context {
        let options = self.client("admin", "word-admin");
        let admin = awaited("the servers", options.connect(&self.urls[0])).await.expect("the packaged user");
        let admin = ContextBuilder::new().timeout(Duration::from_secs(1)).build(admin);
        let wanted: jetstream::stream::Config = serde_json::from_str(text).expect("a stream");
        let made = async {
            // The servers elect a leader first.
            while let Err(error) = admin.create_stream(wanted.clone()).await {
                println!("not yet: {error}");
                sleep(Duration::from_millis(200)).await;
            }
        };
        awaited("the stream", made).await;
        admin
    }
}

// What is sent is heard, by everybody else and once.

const A_WHILE: Duration = Duration::from_millis(700);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_hear_each_other_and_who_comes_late_hears_what_is_kept() {
    let Some(servers) = Servers::start(1, "").unwrap() else { return };
    let mut one = Member::up(config(servers.urls(), 1)).await;
    let mut other = Member::up(config(servers.urls(), 2)).await;
    for topic in [Topic::Open, Topic::Member, Topic::Closed] {
        one.send(topic, topic.name()).await;
        other.expect(1, topic, topic.name()).await;
        other.send(topic, topic.name()).await;
        one.expect(2, topic, topic.name()).await;
    }
    let mut late = Member::up(config(servers.urls(), 3)).await;
    for gateway in [1, 2] {
        late.expect(gateway, Topic::Closed, "closed").await;
    }
    for member in [&mut one, &mut other, &mut late] {
        member.nothing(A_WHILE).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_of_another_site_are_heard_and_those_of_another_cluster_are_not() {
    let Some(servers) = Servers::start(1, "").unwrap() else { return };
    let named = |cluster: &str, site: &str, gateway| {
        let (cluster, site) = (cluster.to_owned(), site.to_owned());
        NatsConfig { cluster, site, ..config(servers.urls(), gateway) }
    };
    // The stream of the third begins as those of the cluster `test` do.
    let there = Member::up(named("test", "there", 1)).await;
    let stranger = Member::up(named("test-x", "there", 2)).await;
    let mut here = Member::up(named("test", "here", 3)).await;
    for topic in [Topic::Closed, Topic::Open, Topic::Member] {
        stranger.send(topic, "of a stranger").await;
        there.send(topic, topic.name()).await;
        here.expect(1, topic, topic.name()).await;
    }
    here.nothing(A_WHILE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_down_while_the_server_is_away_and_up_when_it_comes() {
    let Some(mut servers) = Servers::configure(1, "jetstream { store_dir: \"@STORE@\" }").unwrap() else { return };
    let mut member = Member::join(config(servers.urls(), 1));
    let sentence = member.sentence().await;
    assert!(sentence.starts_with("no NATS server listens at 127.0.0.1:"), "{sentence}");
    servers.start_one(0).unwrap();
    member.wait_up().await;

    // All that a stream in memory held is gone with its server: numbers begin again.
    let mut other = Member::up(config(servers.urls(), 2)).await;
    for number in 0..5 {
        member.send(Topic::Closed, &format!("before {number}")).await;
        other.expect(1, Topic::Closed, &format!("before {number}")).await;
    }
    servers.all()[0].kill().unwrap();
    let sentence = member.sentence().await;
    assert!(sentence.contains("127.0.0.1:"), "{sentence}");
    servers.start_one(0).unwrap();
    member.wait_up().await;
    member.send(Topic::Closed, "after").await;
    other.expect(1, Topic::Closed, "after").await;
}

// Logins by a key: of a user in the servers' configuration, and of an account that `nsc` keeps.

fn with_credentials(servers: &Servers, gateway: u16, text: &str) -> NatsConfig {
    let file = servers.folder().join(format!("credentials-{gateway}"));
    fs::write(&file, text).expect("a file");
    NatsConfig { login: Some(NatsLogin::Credentials { file }), ..config(servers.urls(), gateway) }
}

/// A token of claims about `of`, signed by `by`.
fn token(of: &KeyPair, by: &KeyPair, nats: &Value) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let claims =
        json!({ "jti": of.public_key(), "iat": now, "iss": by.public_key(), "sub": of.public_key(), "nats": nats });
    let parts = [json!({ "typ": "JWT", "alg": "ed25519-nkey" }), claims].map(|part| BASE64.encode(part.to_string()));
    let signed = parts.join(".");
    let signature = by.sign(signed.as_bytes()).expect("a pair that signs");
    format!("{signed}.{}", BASE64.encode(signature))
}

/// As a file of `nsc generate creds`.
fn credentials(token: &str, user: &KeyPair) -> String {
    let seed = user.seed().expect("a pair with its seed");
    format!(
        "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
         -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
}

async fn carries(servers: &Servers, [one, other]: [&str; 2]) {
    let sender = Member::up(with_credentials(servers, 1, one)).await;
    let mut reader = Member::up(with_credentials(servers, 2, other)).await;
    sender.send(Topic::Closed, "kept").await;
    reader.expect(1, Topic::Closed, "kept").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_logs_in_by_the_seed_of_a_user() {
    let users = [KeyPair::new_user(), KeyPair::new_user()];
    let [one, other] = users.each_ref().map(|user| user.seed().expect("a pair with its seed"));
    let named = users.each_ref().map(|user| format!("{{ nkey: {} }}", user.public_key()));
    let more = format!("jetstream {{ store_dir: \"@STORE@\" }}\nauthorization {{ users: [{}] }}\n", named.join(", "));
    let Some(servers) = Servers::start(1, &more).unwrap() else { return };
    carries(&servers, [&one, &format!("{other}\n")]).await;

    let stranger = KeyPair::new_user().seed().expect("a pair with its seed");
    let sentence = Member::join(with_credentials(&servers, 3, &stranger)).sentence().await;
    assert!(sentence.contains("refuses the credentials in") && sentence.contains("credentials-3"), "{sentence}");
    let account = KeyPair::new_account().seed().expect("a pair with its seed");
    for wrong in ["", "word", one.get(..20).expect("a long seed"), &account] {
        let sentence = Member::join(with_credentials(&servers, 3, wrong)).sentence().await;
        assert!(sentence.contains("credentials-3 holds neither the seed of a user nor credentials"), "{sentence}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_logs_in_by_credentials_of_an_account() {
    let [operator, system, account] = [KeyPair::new_operator(), KeyPair::new_account(), KeyPair::new_account()];
    let unlimited = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
        "mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1
    });
    let of_account = |pair| token(pair, &operator, &json!({ "type": "account", "version": 2, "limits": unlimited }));
    let of_operator = json!({ "type": "operator", "version": 2, "system_account": system.public_key() });
    let more = format!(
        "jetstream {{ store_dir: \"@STORE@\" }}\noperator: {}\nsystem_account: {}\nresolver: MEMORY\n\
         resolver_preload: {{ {}: {}, {}: {} }}\n",
        token(&operator, &operator, &of_operator),
        system.public_key(),
        system.public_key(),
        token(&system, &operator, &json!({ "type": "account", "version": 2, "limits": { "conn": -1, "subs": -1 } })),
        account.public_key(),
        of_account(&account),
    );
    let Some(servers) = Servers::start(1, &more).unwrap() else { return };
    let of_user = json!({ "type": "user", "version": 2, "subs": -1, "data": -1, "payload": -1 });
    let made = |by: &KeyPair| {
        let user = KeyPair::new_user();
        credentials(&token(&user, by, &of_user), &user)
    };
    carries(&servers, [&made(&account), &made(&account)]).await;

    let stranger = made(&KeyPair::new_account());
    let sentence = Member::join(with_credentials(&servers, 3, &stranger)).sentence().await;
    assert!(sentence.contains("refuses the credentials in") && sentence.contains("credentials-3"), "{sentence}");
}
