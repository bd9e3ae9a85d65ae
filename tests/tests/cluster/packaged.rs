//! The files of `packaging/nats`, and what an operator does with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::{self, Context};
use spand_core::sharing::GatewayId;
use spand_share::nats::{NatsConfig, NatsLogin, NatsTls};
use spand_tests::patience::awaited;
use tokio::time::sleep;

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
