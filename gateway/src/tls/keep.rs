//! What is in force, kept in step with the files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::credentials::Credentials;
use super::files::{Files, TlsError};
use crate::config;

/// TLS that is in force, and the files it comes from.
#[derive(Debug)]
pub struct Tls {
    named: config::Tls,
    /// What the last attempt found: unchanged files are neither tried nor logged again.
    tried: Mutex<Result<Files, String>>,
    in_force: watch::Sender<Arc<Credentials>>,
    measures: TlsMeasures,
}

/// What is counted of changes.
#[derive(Clone, Debug, Default)]
pub struct TlsMeasures(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    reloads: AtomicU64,
    failures: AtomicU64,
}

impl TlsMeasures {
    /// Times new files came into force.
    pub fn reloads(&self) -> u64 {
        self.0.reloads.load(Ordering::Relaxed)
    }

    /// Times changed files could not be used.
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }
}

impl Tls {
    /// Reads the files that the configuration names; `None` where it names none.
    pub fn open(named: &config::Tls) -> Result<Option<Self>, TlsError> {
        let Some(files) = Files::read(named)? else { return Ok(None) };
        let (in_force, _) = watch::channel(Arc::new(Credentials::build(&files)?));
        let tried = Mutex::new(Ok(files));
        Ok(Some(Self { named: named.clone(), tried, in_force, measures: TlsMeasures::default() }))
    }

    /// What is in force, now and later.
    pub fn in_force(&self) -> watch::Receiver<Arc<Credentials>> {
        self.in_force.subscribe()
    }

    /// What is counted.
    pub const fn measures(&self) -> &TlsMeasures {
        &self.measures
    }

    /// Looks at the files: changed ones come into force, or are logged as broken, once.
    pub fn look(&self) {
        let read = match Files::read(&self.named) {
            Ok(Some(files)) => Ok(files),
            Ok(None) => return,
            Err(error) => Err(error.to_string()),
        };
        let mut tried = self.tried.lock();
        if *tried == read {
            return;
        }
        let built = read.as_ref().map_err(Clone::clone).and_then(|files| {
            let built = Credentials::build(files);
            built.map_err(|error| error.to_string())
        });
        *tried = read;
        drop(tried);
        match built {
            Ok(credentials) => {
                self.measures.0.reloads.fetch_add(1, Ordering::Relaxed);
                let ends_unix_s = credentials.certificate.not_after_unix_s;
                tracing::info!(expires_unix_s = ends_unix_s, "TLS files reloaded");
                self.in_force.send_replace(Arc::new(credentials));
            }
            Err(why) => {
                self.measures.0.failures.fetch_add(1, Ordering::Relaxed);
                tracing::error!(%why, "cannot reload TLS files; the previous ones stay in force");
            }
        }
    }
}
