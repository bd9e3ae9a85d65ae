//! A client for one GET request to a gateway, on a connection of its own: in the clear, or by TLS with the configured certificate or an
//! authority. It follows no redirect and reads no chunked body.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, RootCertStore, SignatureScheme, StreamOwned,
};
use spand_proto::operator::Failure;

use crate::config::Config;
use crate::listener::stranger;
use crate::tls::Files;

/// Longest wait for a connection.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest time from the question to the end of its answer, however slowly that comes.
const WHOLE: Duration = Duration::from_secs(5);
/// Largest answer that is read, in bytes.
const MOST_BYTES: u64 = 8 << 20;

/// How the server is authenticated, and the user.
#[derive(Debug, Default)]
pub(crate) struct HttpClient {
    tls: Option<Arc<ClientConfig>>,
    authorization: Option<String>,
    /// A password goes to nobody but a listener that may be the gateway.
    suspicious: bool,
}

impl HttpClient {
    /// As the configuration says. `person` is a name of `admin.passwords` and the password.
    pub(crate) fn of(config: &Config, person: Option<(&str, &str)>) -> Result<Self, Failure> {
        let own = if config.admin.tls { Files::read(&config.tls)? } else { None };
        let own = own.map(|files| files.own_certificate()).transpose()?;
        Ok(Self::with(own.map(only).transpose()?, person))
    }

    /// In the clear, or by TLS with a gateway whose certificate an authority of these signed.
    pub(crate) fn trusting(
        authorities: Option<Vec<CertificateDer<'static>>>,
        person: Option<(&str, &str)>,
    ) -> Result<Self, Failure> {
        Ok(Self::with(authorities.map(signed_by).transpose()?, person))
    }

    fn with(tls: Option<ClientConfig>, person: Option<(&str, &str)>) -> Self {
        let authorization = person.map(|(name, password)| {
            let pair = BASE64_STANDARD.encode(format!("{name}:{password}"));
            format!("Authorization: Basic {pair}\r\n")
        });
        Self { tls: tls.map(Arc::new), authorization, suspicious: false }
    }

    /// Where nobody named the address of this machine that is asked: a process that binds its port first would get the password.
    pub(crate) const fn suspicious(mut self) -> Self {
        self.suspicious = true;
        self
    }

    fn admit(&self, port: u16) -> Result<(), String> {
        match (self.suspicious && self.has_password()).then(|| stranger(port)).flatten() {
            Some(user) => {
                Err(format!("user {user} listens there and is not the gateway's, so the password was not sent"))
            }
            None => Ok(()),
        }
    }

    /// Whether the person proves themselves.
    pub(crate) const fn has_password(&self) -> bool {
        self.authorization.is_some()
    }

    /// Requests `path` and returns status and body. `host` is an address or a name. Returns `None` where nobody listens.
    pub(crate) fn get(&self, host: &str, port: u16, path: &str) -> Result<Option<(u16, String)>, String> {
        self.admit(port)?;
        let mut addresses = (host, port).to_socket_addrs().map_err(|error| error.to_string())?;
        let stream = addresses.find_map(|address| TcpStream::connect_timeout(&address, PATIENCE).ok());
        let Some(stream) = stream else { return Ok(None) };
        // Once more: another listener may have come in between.
        self.admit(port)?;
        let stream = Timed { stream, end: Instant::now() + WHOLE };
        let answer = self.ask(stream, host, port, path).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("its answer is not whole after {} s", WHOLE.as_secs())
            }
            _ => error.to_string(),
        })?;
        let (status, body) = parts(&answer).ok_or("it is not an HTTP server")?;
        let status = status.parse().map_err(|_| "it is not an HTTP server")?;
        Ok(Some((status, body.to_owned())))
    }

    fn ask(&self, stream: Timed, host: &str, port: u16, path: &str) -> io::Result<String> {
        let proof = self.authorization.as_deref().unwrap_or_default();
        let written = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let question = format!("GET {path} HTTP/1.1\r\nHost: {written}\r\n{proof}Connection: close\r\n\r\n");
        match &self.tls {
            None => talk(stream, &question),
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                let connection = ClientConnection::new(Arc::clone(tls), name).map_err(io::Error::other)?;
                talk(StreamOwned::new(connection, stream), &question)
            }
        }
    }
}

/// A connection that ends at a moment: a timeout of the socket alone begins again with each byte.
struct Timed {
    stream: TcpStream,
    end: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Status and body. The documents asked for here come in one piece.
fn parts(answer: &str) -> Option<(&str, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.split_whitespace().next()?;
    Some((status, body))
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

/// Takes certificates that one of these authorities signed.
fn signed_by(authorities: Vec<CertificateDer<'static>>) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities);
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(Failure::environment)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
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
