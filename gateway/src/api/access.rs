//! Who is let in: what the configuration asks of each listener.

use std::fs;
use std::sync::Arc;

use spand_proto::operator::Failure;
use tokio::sync::watch;

use super::owners::Owners;
use super::passwords::{Passwords, PasswordsError};
use crate::config::{Config, Identity};
use crate::tls::{Credentials, Tls, TlsError};

/// Who is expected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Expected {
    /// Agents, over gRPC.
    Agents,
    /// People and scripts, over HTTP.
    People,
}

impl Expected {
    /// Its name as a label.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Agents => "grpc",
            Self::People => "http",
        }
    }
}

/// What is asked of those who connect. The default asks nothing: the listeners are then loopback's.
#[derive(Clone, Debug, Default)]
pub struct Access {
    tls: Option<Arc<Tls>>,
    /// Whether agents have to show a certificate.
    agents_prove: bool,
    /// Whether people speak TLS.
    people_tls: bool,
    owners: Owners,
    passwords: Option<Arc<Passwords>>,
    hosts: Vec<String>,
}

/// Files that give no working access.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Those of `[tls]`.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// That of `admin.passwords`.
    #[error(transparent)]
    Passwords(#[from] PasswordsError),
}

impl Access {
    /// Reads the files that the configuration names.
    pub fn open(config: &Config) -> Result<Self, AccessError> {
        let owners = match config.agents.identity {
            _ if config.takes_certificates() => {
                let given = config.agents.addresses.iter();
                Owners::Certificate(given.map(|(host, own)| (host.to_ascii_lowercase(), own.clone())).collect())
            }
            Identity::PeerAddress => Owners::PeerAddress,
            Identity::Auto | Identity::Certificate | Identity::None => Owners::Anyone,
        };
        let passwords = config.admin.passwords.as_deref().map(Passwords::open).transpose()?;
        Ok(Self {
            tls: Tls::open(&config.tls)?.map(Arc::new),
            agents_prove: config.tls.proves_agents(),
            people_tls: config.admin.tls,
            owners,
            passwords: passwords.map(Arc::new),
            hosts: names_of_this_machine().into_iter().chain(config.admin.hosts.iter().cloned()).collect(),
        })
    }

    /// Looks at the files: changed ones come into force, or are logged as broken, once.
    pub fn look(&self) {
        if let Some(tls) = &self.tls {
            tls.look();
        }
        if let Some(passwords) = &self.passwords {
            passwords.look();
        }
    }

    pub(super) const fn tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// For which addresses an agent may speak.
    pub(super) const fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Passwords of people, where they are asked for one.
    pub(super) const fn passwords(&self) -> Option<&Arc<Passwords>> {
        self.passwords.as_ref()
    }

    /// Names by which people may ask, beside `localhost` and addresses: the machine's own and those of `admin.hosts`.
    pub(super) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// What a listener speaks.
    pub(super) fn tls_for(&self, expected: Expected) -> Option<watch::Receiver<Arc<Credentials>>> {
        let speaks = match expected {
            Expected::Agents => self.agents_prove,
            Expected::People => self.people_tls,
        };
        self.tls.as_ref().filter(|_| speaks).map(|tls| tls.in_force())
    }
}

/// What this machine is called, as far as that is known without asking a server.
fn names_of_this_machine() -> Vec<String> {
    let hostname = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    own_names(&hostname, &fs::read_to_string("/etc/hosts").unwrap_or_default())
}

/// The hostname, its first label where it is fully qualified, and the fully qualified names that `/etc/hosts` (hosts(5)) gives it.
fn own_names(hostname: &str, hosts_file: &str) -> Vec<String> {
    let hostname = hostname.trim_end_matches('.');
    let label = hostname.split('.').next().unwrap_or_default();
    if label.is_empty() {
        return Vec::new();
    }
    let mut names = vec![hostname.to_owned(), label.to_owned()];
    for line in hosts_file.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let listed: Vec<&str> = line.split_whitespace().skip(1).collect();
        if listed.iter().any(|name| name.eq_ignore_ascii_case(hostname)) {
            let qualified = |name: &&&str| name.split('.').next().is_some_and(|own| own.eq_ignore_ascii_case(label));
            names.extend(listed.iter().filter(qualified).map(|name| (*name).to_owned()));
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Tls(error) => error.into(),
            AccessError::Passwords(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;
    use std::{fs, thread};

    use nix::sys::stat::Mode;
    use spand_confine::Confined;
    use tokio::sync::Notify;

    use super::*;
    use crate::api::{Api, ApiConfig, password_line};
    use crate::publisher::{MonotonicClock, Published, PublisherConfig};

    #[test]
    fn the_machine_is_called_as_its_hostname_and_hosts_file_say() {
        let file =
            "127.0.0.1 localhost\n127.0.1.1 gw-1.example.org gw-1 # gw-1.old\n192.0.2.9 evil gw-2.example.org gw-2\n";
        assert_eq!(own_names("gw-1", file), ["gw-1", "gw-1.example.org"]);
        assert_eq!(own_names("gw-1.example.org.", ""), ["gw-1", "gw-1.example.org"]);
        assert_eq!(own_names("gw-2", file), ["gw-2", "gw-2.example.org"]);
        assert_eq!(own_names("", file), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_disk_that_does_not_answer_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("passwords");
        let text = password_line("ada", "a word").unwrap();
        fs::write(&path, &text).unwrap();
        let passwords = Some(Arc::new(Passwords::open(&path).unwrap()));
        // Opening a pipe blocks until it has a writer.
        fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let (signal, signalled) = mpsc::channel();
        let writer = thread::spawn(move || {
            let others_ran = signalled.recv_timeout(Duration::from_secs(10)).is_ok();
            fs::write(&path, text).unwrap();
            others_ran
        });

        let published = Published::new(PublisherConfig::default(), MonotonicClock::from_wall_clock());
        let access = Access { passwords, ..Access::default() };
        let api = Api::with_access(ApiConfig::default(), access, published, (None, None), &Confined::default());
        let look = Notify::new();
        look.notify_one();
        let others = async {
            // Fails where the writer has waited too long for it, which the end says.
            _ = signal.send(());
            tokio::task::spawn_blocking(|| writer.join().unwrap()).await.unwrap()
        };
        tokio::select! {
            biased;
            () = api.keep_access(&look) => unreachable!("it never ends"),
            others_ran = others => assert!(others_ran, "the look at the file held up everything else"),
        }
    }
}
