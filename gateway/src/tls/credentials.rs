//! From files to the configuration of rustls.

use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use spand_proto::tls::{Certificate, PemFile};

use super::files::{Files, TlsError};

/// What is in force: built as a whole.
#[derive(Clone, Debug)]
pub struct Credentials {
    agents: Option<Arc<ServerConfig>>,
    people: Arc<ServerConfig>,
    /// What the gateway's own certificate says.
    pub certificate: Certificate,
    /// When the first certificate of the authority ends, where there is one.
    pub ca_not_after_unix_s: Option<i64>,
    trust: Trust,
}

/// Which certificates are taken. Where this changes, a connection was proven by something that may no longer hold.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trust(Option<(PemFile, Option<PemFile>)>);

impl Credentials {
    /// Builds both sides' settings.
    pub fn build(files: &Files) -> Result<Self, TlsError> {
        let agents = files.ca.as_ref().map(|ca| server(files, Some(ca), b"h2")).transpose()?;
        let ca_ends = files.ca.as_ref().map(PemFile::first_certificate).transpose()?;
        Ok(Self {
            agents,
            people: server(files, None, b"http/1.1")?,
            certificate: files.certificate.first_certificate()?,
            ca_not_after_unix_s: ca_ends.map(|ca| ca.not_after_unix_s),
            trust: Trust(files.ca.clone().map(|ca| (ca, files.revoked.clone()))),
        })
    }

    /// Settings for agents: they must show a certificate of the authority. `None` without one.
    pub const fn agents(&self) -> Option<&Arc<ServerConfig>> {
        self.agents.as_ref()
    }

    /// Settings for people and scripts, who prove themselves by other means.
    pub const fn people(&self) -> &Arc<ServerConfig> {
        &self.people
    }

    /// By what agents are proven.
    pub const fn trust(&self) -> &Trust {
        &self.trust
    }
}

fn server(files: &Files, ca: Option<&PemFile>, protocol: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(|why| mismatch(files, why))?;
    let builder = match ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let refused = |why: String| TlsError::Trust { path: ca.path.clone(), why };
            let mut roots = RootCertStore::empty();
            for certificate in ca.certificates()? {
                roots.add(certificate).map_err(|why| refused(why.to_string()))?;
            }
            let mut verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            if let Some(revoked) = &files.revoked {
                // An authority without a list has revoked nothing; its intermediates are its own affair.
                verifier = verifier
                    .with_crls(revoked.revocation_lists()?)
                    .only_check_end_entity_revocation()
                    .allow_unknown_revocation_status();
            }
            builder.with_client_cert_verifier(verifier.build().map_err(|why| refused(why.to_string()))?)
        }
    };
    let mut config = builder
        .with_single_cert(files.certificate.certificates()?, files.key.private_key()?)
        .map_err(|why| mismatch(files, why))?;
    config.alpn_protocols = vec![protocol.to_vec()];
    // A resumed session would be taken without looking at the certificate again, after it ended or was revoked.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn mismatch(files: &Files, why: rustls::Error) -> TlsError {
    TlsError::Mismatch { certificate: files.certificate.path.clone(), key: files.key.path.clone(), why }
}
