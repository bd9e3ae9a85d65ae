//! `[share]`: other gateways whose cells count here too.

use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spand_cells::{GatewayId, MOST_GATEWAYS, Pseudonyms, Sharing, TapId};
use tonic::transport::Uri;

use super::Config;
use crate::sharing::IS_BUILT;

/// Servers that can be named.
const MOST_SERVERS: usize = 32;
/// Port of a server where none is named.
const DEFAULT_PORT: u16 = 4_222;
/// Longest name of a cluster or site.
const LONGEST_NAME: usize = 64;

/// `[share]`: other gateways whose cells count here too. Off where it names no server.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Share {
    /// NATS servers of this site, `tls://name:port` or `nats://name:port`. Default none: nothing is shared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<String>,
    /// The gateways that share: all of one cluster. Default "main".
    pub cluster: String,
    /// The site of the servers: gateways of a cluster may be at several. Default "main".
    pub site: String,
    /// This gateway's number in the cluster, from 1 to 64. Needed with servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<NonZeroU16>,
    /// The mirror group, where taps of several gateways see the same packets. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror_group: Option<NonZeroU16>,
    /// File of the cluster's secret, 32 hexadecimal digits: clients' addresses leave as hashes under it. Needed with servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<PathBuf>,
    /// The user at the servers. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// File of that user's password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<PathBuf>,
    /// In place of both: file of a user's seed (`nk -gen user`), or of what `nsc generate creds` writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PathBuf>,
    /// The authority of the servers' certificates, in PEM. Needed with `tls://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// This gateway's certificate at the servers, in PEM. Default none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its private key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Copies of what is kept, on as many servers. Default 3; 1 with one server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<NonZeroU16>,
    /// Memory of what is kept at each server, in MiB. Default 1024.
    pub kept_mib: NonZeroU32,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            cluster: "main".to_owned(),
            site: "main".to_owned(),
            gateway: None,
            mirror_group: None,
            secret: None,
            user: None,
            password: None,
            credentials: None,
            ca: None,
            certificate: None,
            key: None,
            replicas: None,
            kept_mib: const { NonZeroU32::new(1_024).unwrap() },
        }
    }
}

/// A file of a secret that is none.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// It cannot be read.
    #[error("cannot read {} (share.secret): {source}; the gateway's user needs the right to", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// It holds something else.
    #[error(
        "{} (share.secret) does not hold 32 hexadecimal digits: make one with `openssl rand -hex 16` and give all gateways of the \
         cluster the same", .0.display()
    )]
    NotASecret(PathBuf),
}

impl Share {
    /// Whether anything is shared.
    pub fn is_on(&self) -> bool {
        !self.servers.is_empty()
    }

    /// Whether a program that shares if it `is_built` so can do what is configured.
    fn may_be_on(&self, is_built: bool) -> Result<(), String> {
        if self.is_on() && !is_built {
            return Err("share.servers names servers, and this program was built without the feature `share`: use one that has it, as the packages do, \
                        or leave [share] out"
                .to_owned());
        }
        Ok(())
    }

    /// The files that hold secrets.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.secret, &self.key, &self.password, &self.credentials].into_iter().flatten()
    }

    /// Every file that it names.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let login = [&self.password, &self.credentials];
        [&self.secret, &self.ca, &self.certificate, &self.key].into_iter().chain(login).flatten()
    }

    pub(super) fn anchor(&mut self, folder: &Path) {
        let login = [&mut self.password, &mut self.credentials];
        let files = [&mut self.secret, &mut self.ca, &mut self.certificate, &mut self.key];
        for path in files.into_iter().chain(login).flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Copies of what is kept.
    pub fn replicas(&self) -> usize {
        let default = if self.servers.len() > 1 { 3 } else { 1 };
        self.replicas.map_or(default, |replicas| usize::from(replicas.get()))
    }

    /// Hosts and ports of the servers.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = (String, u16)> {
        let uris = self.servers.iter().filter_map(|server| server.parse::<Uri>().ok());
        uris.filter_map(|uri| {
            let host = uri.host()?.trim_matches(['[', ']']).to_owned();
            Some((host, uri.port_u16().unwrap_or(DEFAULT_PORT)))
        })
    }

    /// How engines share; `None` where nothing is shared. Reads the secret.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub fn sharing(&self) -> Result<Option<Sharing>, SecretError> {
        let (Some(gateway), Some(path)) = (self.gateway.filter(|_| self.is_on()), &self.secret) else {
            return Ok(None);
        };
        let text = spand_confine::read_to_string(path)
            .map_err(|source| SecretError::Unreadable { path: path.clone(), source })?;
        let digits = text.trim();
        let is_whole = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let key = u128::from_str_radix(digits, 16).ok().filter(|_| is_whole);
        let key = key.ok_or_else(|| SecretError::NotASecret(path.clone()))?.to_be_bytes();
        let gateway = GatewayId(gateway.get());
        let tap = self.mirror_group.map_or_else(|| TapId::of_gateway(gateway), |group| TapId::of_group(group.get()));
        Ok(Some(Sharing { gateway, tap, pseudonyms: Pseudonyms::new(key) }))
    }
}

impl Config {
    /// The first contradiction in `[share]`, as a sentence.
    pub(super) fn check_share(&self) -> Result<(), String> {
        self.share.may_be_on(IS_BUILT)?;
        let share = &self.share;
        if !share.is_on() {
            let named = [share.gateway.is_some(), share.secret.is_some(), share.mirror_group.is_some()];
            return if named.contains(&true) {
                Err("share names no server, so nothing would be shared: name share.servers, or remove the section"
                    .to_owned())
            } else {
                Ok(())
            };
        }
        if share.servers.len() > MOST_SERVERS {
            return Err(format!("share.servers names {} servers: at most {MOST_SERVERS}", share.servers.len()));
        }
        for server in &share.servers {
            let uri = server.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
            let Some(("tls" | "nats", uri)) = uri.as_ref().and_then(|uri| Some((uri.scheme_str()?, uri))) else {
                return Err(format!(
                    "share.servers holds `{server}`: write tls://name:port, or nats://name:port without TLS"
                ));
            };
            if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
                return Err(
                    "share.servers holds a user or a password: name share.user and share.password in place of it"
                        .to_owned(),
                );
            }
        }
        let Some(gateway) = share.gateway else {
            return Err(
                "share.servers needs share.gateway: give each gateway of the cluster its own number, from 1 on"
                    .to_owned(),
            );
        };
        for (name, number) in [("gateway", Some(gateway)), ("mirror_group", share.mirror_group)] {
            if let Some(number) = number.filter(|number| number.get() > MOST_GATEWAYS) {
                return Err(format!("share.{name} is {number}: choose 1 to {MOST_GATEWAYS}"));
            }
        }
        if share.secret.is_none() {
            return Err("share.servers needs share.secret, under which clients' addresses leave as hashes: name a file with 32 \
                        hexadecimal digits, the same for all gateways (openssl rand -hex 16)"
                .to_owned());
        }
        for (key, name) in [("cluster", &share.cluster), ("site", &share.site)] {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_plain) {
                return Err(format!(
                    "share.{key} is `{name}`: choose letters, digits, - and _, at most {LONGEST_NAME}"
                ));
            }
        }
        if share.user.is_some() != share.password.is_some() {
            return Err("share.user and share.password go together: name both or neither".to_owned());
        }
        if share.user.is_some() && share.credentials.is_some() {
            return Err(
                "share.credentials stands in place of share.user and share.password: name one or the other".to_owned()
            );
        }
        if share.certificate.is_some() != share.key.is_some() {
            return Err("share.certificate and share.key go together: name both or neither".to_owned());
        }
        let tls = share.servers.iter().filter(|server| server.starts_with("tls:")).count();
        if (tls > 0) != share.ca.is_some() {
            return Err("share.servers with tls:// are known by the authority in share.ca: name it, and no server without TLS beside".to_owned());
        }
        if tls > 0 && tls < share.servers.len() {
            return Err("share.servers holds tls:// beside nats://: use TLS with all of them, or with none".to_owned());
        }
        let is_here = |host: &str| host == "localhost" || host.parse().is_ok_and(|host: IpAddr| host.is_loopback());
        let logs_in = [share.user.is_some().then_some("user"), share.credentials.is_some().then_some("credentials")];
        if let Some(key) = logs_in.into_iter().flatten().next()
            && tls == 0
            && !share.endpoints().all(|(host, _)| is_here(&host))
        {
            return Err(format!(
                "share.{key} would log in over the network in the clear: use tls://, or servers on this machine's loopback"
            ));
        }
        if share.certificate.is_some() && tls == 0 {
            return Err("share.certificate is shown by TLS alone: use tls://, or remove it".to_owned());
        }
        if share.replicas() > 5 {
            return Err(format!("share.replicas is {}: NATS keeps at most 5", share.replicas()));
        }
        if self.estimate.bucket_s.get() > 60 {
            return Err(format!(
                "estimate.bucket_s is {}: gateways that share need buckets of at most 60 s",
                self.estimate.bucket_s
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str =
        "[share]\nservers = [\"tls://nats-1:4222\"]\ngateway = 1\nsecret = \"share.secret\"\nca = \"ca.pem\"\n";

    fn refusal(text: &str) -> String {
        Config::parse(text, Path::new("gateway.toml")).unwrap_err().to_string()
    }

    #[test]
    fn what_contradicts_itself_is_refused_in_a_sentence() {
        let cases = [
            ("[share]\ngateway = 1\n", "names no server"),
            ("[share]\nservers = [\"nats-1\"]\n", "write tls://name:port"),
            ("[share]\nservers = [\"https://nats-1\"]\n", "write tls://name:port"),
            ("[share]\nservers = [\"tls://a:b@nats-1\"]\n", "holds a user or a password"),
            ("[share]\nservers = [\"tls://nats-1\"]\n", "needs share.gateway"),
            ("[share]\nservers = [\"tls://nats-1\"]\ngateway = 1024\n", "choose 1 to 64"),
            ("[share]\nservers = [\"tls://nats-1\"]\ngateway = 1\n", "needs share.secret"),
        ];
        for (text, expected) in cases {
            let refusal = refusal(text);
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
        for (line, expected) in [
            ("cluster = \"a.b\"", "share.cluster"),
            ("site = \"\"", "share.site"),
            ("user = \"gateway-1\"", "go together"),
            ("user = \"a\"\npassword = \"b\"\ncredentials = \"c\"", "one or the other"),
            ("replicas = 6", "at most 5"),
            ("key = \"key.pem\"", "go together"),
        ] {
            let refusal = refusal(&format!("{WHOLE}{line}\n"));
            assert!(refusal.contains(expected), "{line}: {refusal}");
        }
        let plain =
            |lines: &str| format!("[share]\nservers = [\"nats://nats-1\"]\ngateway = 1\nsecret = \"s\"\n{lines}");
        let mixed = WHOLE.replace("[\"", "[\"nats://b\", \"");
        for (text, expected) in [
            (WHOLE.replace("ca = ", "# "), "share.ca"),
            (plain("ca = \"ca.pem\"\n"), "share.ca"),
            (mixed, "beside nats://"),
            (plain("user = \"a\"\npassword = \"b\"\n"), "share.user would log in"),
            (plain("credentials = \"a\"\n"), "share.credentials would log in"),
            (plain("certificate = \"a\"\nkey = \"b\"\n"), "by TLS alone"),
        ] {
            let refusal = refusal(&text);
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
        let here = plain("user = \"a\"\npassword = \"b\"\n").replace("nats-1", "127.0.0.1");
        assert!(Config::parse(&here, Path::new("gateway.toml")).is_ok());
        let config = Config::parse(WHOLE, Path::new("gateway.toml")).unwrap();
        assert_eq!(config.share.replicas(), 1);
        assert_eq!(config.share.endpoints().collect::<Vec<_>>(), [("nats-1".to_owned(), 4_222)]);
    }

    #[test]
    fn a_program_without_sharing_refuses_to_be_configured_for_it() {
        let shares = Config::parse(WHOLE, Path::new("gateway.toml")).unwrap().share;
        assert!(shares.may_be_on(false).unwrap_err().contains("built without the feature `share`"));
        assert_eq!((shares.may_be_on(true), Share::default().may_be_on(false)), (Ok(()), Ok(())));
    }

    #[test]
    fn the_secret_is_32_digits_and_a_mirror_group_is_a_tap_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        let of = |lines: &str| {
            let text = format!("{WHOLE}{lines}");
            let mut config = Config::parse(&text, Path::new("gateway.toml")).unwrap();
            config.share.anchor(folder.path());
            config.share.secret = Some(secret.clone());
            config.share.sharing()
        };
        assert!(of("").unwrap_err().to_string().contains("cannot read"));
        for wrong in ["", "0123", "0123456789abcdef0123456789abcdeg", "+123456789abcdef0123456789abcdef"] {
            std::fs::write(&secret, wrong).unwrap();
            assert!(of("").unwrap_err().to_string().contains("openssl rand -hex 16"), "{wrong}");
        }
        std::fs::write(&secret, "0123456789abcdef0123456789ABCDEF\n").unwrap();
        let (alone, grouped) = (of("").unwrap().unwrap(), of("mirror_group = 1\n").unwrap().unwrap());
        assert_eq!((alone.gateway, alone.tap), (GatewayId(1), TapId(1)));
        assert_eq!((grouped.gateway, grouped.tap), (GatewayId(1), TapId(65_537)));
    }
}
