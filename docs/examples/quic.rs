//! Files over QUIC, with quinn: a server whose connections start on the agent's advice, and a client.
//!
//! ```text
//! quic serve ADDRESS:PORT CERTIFICATE [SOCKET]      SOCKET: that of the agent; without one, quinn's own start
//! quic fetch ADDRESS:PORT CERTIFICATE BYTES [FROM]  prints bytes, port and times
//! ```
//!
//! The server makes a certificate for `localhost` and writes it to CERTIFICATE, where the client finds it. For each connection that ended
//! it prints a line of JSON: `remote`, `sent_packets`, `lost_packets` and `congestion_events`.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use quinn::rustls::{self, RootCertStore};
use quinn::{ClientConfig, Connection, Endpoint, Incoming, ServerConfig, TransportConfig};
use spand_advice::quinn::{Advised, Handle};
use spand_advice::{Adviser, Question, Ready};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match *arguments {
        ["serve", address, certificate] => serve(address, Path::new(certificate), None).await,
        ["serve", address, certificate, socket] => {
            serve(address, Path::new(certificate), Some(Adviser::connect(socket, "quic"))).await
        }
        ["fetch", address, certificate, bytes] => fetch(address, Path::new(certificate), bytes, None).await,
        ["fetch", address, certificate, bytes, from] => fetch(address, Path::new(certificate), bytes, Some(from)).await,
        _ => {
            eprintln!(
                "quic serve ADDRESS:PORT CERTIFICATE [SOCKET], or quic fetch ADDRESS:PORT CERTIFICATE BYTES [FROM]"
            );
            return ExitCode::from(64);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(address: &str, certificate: &Path, adviser: Option<Adviser>) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let endpoint = Endpoint::server(config.clone(), address.parse().context("no address and port")?)?;
    // Written when the server listens: a client that finds it may connect.
    std::fs::write(certificate, made.cert.der())?;
    while let Some(incoming) = endpoint.accept().await {
        let (config, adviser) = (config.clone(), adviser.clone());
        tokio::spawn(async move {
            if let Err(error) = answer(incoming, config, adviser).await {
                eprintln!("{error:#}");
            }
        });
    }
    Ok(())
}

/// One connection: each stream asks for a number of bytes, and gets them.
async fn answer(incoming: Incoming, mut config: ServerConfig, adviser: Option<Adviser>) -> Result<()> {
    let remote = incoming.remote_address();
    let mut start = Handle::default();
    if let Some(adviser) = adviser {
        // Each connection has its own factory, since the advice is for its other end.
        let factory = Advised::new(adviser, Question::of(remote));
        start = factory.handle();
        let mut transport = TransportConfig::default();
        transport.congestion_controller_factory(Arc::new(factory));
        config.transport_config(Arc::new(transport));
    }
    let connection = incoming.accept_with(Arc::new(config))?.await?;
    while let Ok((mut to, mut from)) = connection.accept_bi().await {
        let mut asked = [0; 8];
        from.read_exact(&mut asked).await?;
        let bytes = u64::from_be_bytes(asked);
        start.set_transfer_size(bytes);
        let pace = start.pace();
        let block = vec![0; 65_536];
        let mut written = 0;
        while written < bytes {
            match pace.ready(written, Instant::now()) {
                Ready::Write(room) => {
                    let part = room.min(bytes - written).min(block.len() as u64);
                    to.write_all(block.get(..usize::try_from(part)?).unwrap_or_default()).await?;
                    written += part;
                }
                Ready::Wait(time) => tokio::time::sleep(time).await,
            }
        }
        to.finish()?;
    }
    let path = connection.stats().path;
    println!(
        r#"{{"remote":"{remote}","sent_packets":{},"lost_packets":{},"congestion_events":{}}}"#,
        path.sent_packets, path.lost_packets, path.congestion_events
    );
    Ok(())
}

async fn fetch(address: &str, certificate: &Path, bytes: &str, from: Option<&str>) -> Result<()> {
    let address: SocketAddr = address.parse().context("no address and port")?;
    let bytes: u64 = bytes.parse().context("no number of bytes")?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(certificate)?))?;
    let config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let any = if address.is_ipv4() { "0.0.0.0" } else { "::" };
    let own: IpAddr = from.unwrap_or(any).parse().context("no address to send from")?;
    let mut endpoint = Endpoint::client(SocketAddr::new(own, 0))?;
    endpoint.set_default_client_config(ClientConfig::new(Arc::new(QuicClientConfig::try_from(config)?)));
    let begin = Instant::now();
    let connection: Connection = endpoint.connect(address, "localhost")?.await?;
    let connected = Instant::now();
    let (mut to, mut from) = connection.open_bi().await?;
    to.write_all(&bytes.to_be_bytes()).await?;
    to.finish()?;
    let mut got = 0;
    while let Some(chunk) = from.read_chunk(usize::MAX, true).await? {
        got += chunk.bytes.len() as u64;
    }
    if got != bytes {
        bail!("{got} of {bytes} bytes came");
    }
    let (handshake, transfer) = (connected - begin, connected.elapsed());
    println!(
        r#"{{"bytes":{bytes},"port":{},"handshake_s":{:.6},"transfer_s":{:.6}}}"#,
        endpoint.local_addr()?.port(),
        handshake.as_secs_f64(),
        transfer.as_secs_f64()
    );
    connection.close(0_u32.into(), b"done");
    endpoint.wait_idle().await;
    Ok(())
}
