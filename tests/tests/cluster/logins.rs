//! Logins by a key: of a user in the servers' configuration, and of an account that `nsc` keeps.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use nkeys::KeyPair;
use serde_json::{Value, json};
use spand_share::exchange::Topic;
use spand_share::nats::{NatsConfig, NatsLogin};
use spand_tests::cluster::Servers;

use crate::member::{Member, config};

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
