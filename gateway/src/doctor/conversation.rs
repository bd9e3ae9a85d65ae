//! One question over HTTP, on one connection: in the clear, or by TLS with a gateway that has to show the configured certificate.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};
use spand_proto::operator::Failure;

use crate::config::Config;
use crate::tls::Files;

/// Longest wait for a connection, and for an answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// Largest answer that is read, in bytes.
const MOST_BYTES: u64 = 8 << 20;

/// How a gateway is asked: what it proves itself by, and what the person at the doctor's proves themselves by.
#[derive(Debug, Default)]
pub(super) struct Manner {
    tls: Option<Arc<ClientConfig>>,
    authorization: Option<String>,
}

impl Manner {
    /// As the configuration says. `person` is a name of `admin.passwords` and the password.
    pub(super) fn of(config: &Config, person: Option<(&str, &str)>) -> Result<Self, Failure> {
        let own = if config.admin.tls { Files::read(&config.tls)? } else { None };
        let own = own.map(|files| files.own_certificate()).transpose()?;
        let authorization = person.map(|(name, password)| {
            let pair = BASE64_STANDARD.encode(format!("{name}:{password}"));
            format!("Authorization: Basic {pair}\r\n")
        });
        Ok(Self { tls: own.map(only).transpose()?.map(Arc::new), authorization })
    }

    /// Whether the person proves themselves.
    pub(super) const fn has_password(&self) -> bool {
        self.authorization.is_some()
    }

    /// Asks for `path`: all that came back.
    pub(super) fn ask(&self, stream: TcpStream, address: SocketAddr, path: &str) -> io::Result<String> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let proof = self.authorization.as_deref().unwrap_or_default();
        let question = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{proof}Connection: close\r\n\r\n");
        match &self.tls {
            None => talk(stream, &question),
            Some(tls) => {
                let name = ServerName::IpAddress(address.ip().into());
                let connection = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
                talk(StreamOwned::new(connection, stream), &question)
            }
        }
    }
}

fn talk(mut stream: impl Read + Write, question: &str) -> io::Result<String> {
    stream.write_all(question.as_bytes())?;
    let mut answer = Vec::new();
    match stream.take(MOST_BYTES).read_to_end(&mut answer) {
        // A server may close without TLS's word of farewell; whether the answer is whole shows in it.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof && !answer.is_empty() => {}
        read => drop(read?),
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Takes one certificate and no other, whatever its names and dates: it is the gateway's of this configuration.
fn only(certificate: CertificateDer<'static>) -> Result<ClientConfig, Failure> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(Failure::environment)?.dangerous();
    Ok(builder.with_custom_certificate_verifier(Arc::new(Only { certificate, provider })).with_no_client_auth())
}

#[derive(Debug)]
struct Only {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Only {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *shown == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General("its certificate is not the one in tls.certificate".to_owned()))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, shown, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, shown, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
