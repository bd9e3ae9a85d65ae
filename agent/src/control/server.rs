//! The running agent's end.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use spand_proto::operator::Failure;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::debug;

use super::{MOST_REQUEST_BYTES, Reply, Request};

/// Connections at one time; more wait to be accepted.
const CONNECTIONS: usize = 16;

/// Time that a client has to ask and to take its reply.
const PATIENCE: Duration = Duration::from_secs(2);

/// A request that waits for the agent's reply.
#[derive(Debug)]
pub struct Pending {
    /// What is asked.
    pub request: Request,
    /// Where the reply goes.
    pub reply: oneshot::Sender<Reply>,
}

/// The listening socket; it is removed when this is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens at `path` and hands requests to `requests`. A socket that nobody listens at any more is replaced.
    pub fn start(path: &Path, requests: mpsc::Sender<Pending>) -> Result<Self, Failure> {
        let fault = |error: io::Error| {
            Failure::Environment(format!("cannot listen at the control socket {}: {error}", path.display()))
        };
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(Failure::Environment(format!(
                "an agent already runs here: it answers at {}; stop it first, or give this one its own state_dir",
                path.display()
            )));
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fault(error)),
            _ => {}
        }
        let listener = UnixListener::bind(path).map_err(fault)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(fault)?;
        Ok(Self { path: path.to_owned(), task: tokio::spawn(accept(listener, requests)) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        // A leftover is replaced by the next start.
        _ = fs::remove_file(&self.path);
    }
}

async fn accept(listener: UnixListener, requests: mpsc::Sender<Pending>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: they come back.
                debug!(%error, "cannot accept a control connection");
                tokio::time::sleep(PATIENCE).await;
                continue;
            }
        };
        let requests = requests.clone();
        tokio::spawn(async move {
            let served = tokio::time::timeout(PATIENCE, serve(stream, &requests)).await;
            debug!(?served, "control connection ended");
            drop(permit);
        });
    }
}

async fn serve(stream: UnixStream, requests: &mpsc::Sender<Pending>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(MOST_REQUEST_BYTES as u64 + 1));
    reader.read_line(&mut line).await?;
    let reply = if line.len() > MOST_REQUEST_BYTES {
        Reply::Error(format!("a request has at most {MOST_REQUEST_BYTES} bytes"))
    } else {
        match serde_json::from_str(&line) {
            Ok(request) => answer(request, requests).await,
            Err(error) => Reply::Error(format!("this is no request: {error}")),
        }
    };
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    writer.write_all(&text).await?;
    writer.shutdown().await
}

async fn answer(request: Request, requests: &mpsc::Sender<Pending>) -> Reply {
    let (reply, answer) = oneshot::channel();
    if requests.send(Pending { request, reply }).await.is_err() {
        return Reply::Error("the agent is stopping".to_owned());
    }
    answer.await.unwrap_or_else(|_| Reply::Error("the agent is stopping".to_owned()))
}
