//! The running agent's end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::stat::{Mode, umask};
use nix::unistd::{getegid, geteuid};
use spand_proto::operator::Failure;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::{MOST_REQUEST_BYTES, Reply, Request};

/// Connections at one time; more wait to be accepted.
const CONNECTIONS: usize = 16;

/// Time that a client has to ask, and to take its reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time that the agent has for its reply.
const REPLY_PATIENCE: Duration = Duration::from_secs(20);

/// Who may use the socket.
const MODE: u32 = 0o660;

/// Who asks, as the kernel noted at the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its process, where that is in a namespace that can be seen from here.
    pub pid: Option<i32>,
}

/// A request that waits for the agent's reply.
#[derive(Debug)]
pub struct Pending {
    /// What is asked.
    pub request: Request,
    /// By whom.
    pub peer: Peer,
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
        let listener = bind(path).and_then(UnixListener::from_std).map_err(fault)?;
        Ok(Self { path: path.to_owned(), task: tokio::spawn(accept(listener, path.to_owned(), requests)) })
    }
}

/// Listens at a socket that the agent's user and its group may use. One that nobody listens at any more is replaced.
pub(crate) fn bind(path: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() => {
            return Err(io::Error::other("a file is there that is no socket: remove it, or name another"));
        }
        Ok(_) => fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Nobody else may connect at any moment. The umask is the whole process's: it stays where it does for that.
    let before = others_may_write().then(|| umask(Mode::from_bits_truncate(0o777 & !MODE)));
    let bound = std::os::unix::net::UnixListener::bind(path);
    before.map(umask);
    let listener = bound?;
    fs::set_permissions(path, fs::Permissions::from_mode(MODE))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether the umask lets others write to what is made, as far as that is known.
fn others_may_write() -> bool {
    let status = procfs::process::Process::myself().and_then(|own| own.status());
    status.ok().and_then(|status| status.umask).is_none_or(|umask| umask & 0o002 == 0)
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        // A leftover is replaced by the next start.
        _ = fs::remove_file(&self.path);
    }
}

async fn accept(listener: UnixListener, path: PathBuf, requests: mpsc::Sender<Pending>) {
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
        let (requests, path) = (requests.clone(), path.clone());
        tokio::spawn(async move {
            let served = serve(stream, &path, &requests).await;
            debug!(?served, "control connection ended");
            drop(permit);
        });
    }
}

async fn serve(stream: UnixStream, path: &Path, requests: &mpsc::Sender<Pending>) -> io::Result<()> {
    let credentials = stream.peer_cred()?;
    let peer = Peer { uid: credentials.uid(), gid: credentials.gid(), pid: credentials.pid() };
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = BufReader::new(reader.take(MOST_REQUEST_BYTES as u64 + 1));
    in_time(PATIENCE, reader.read_line(&mut line)).await?;
    let reply = if line.len() > MOST_REQUEST_BYTES {
        Reply::Error(format!("a request has at most {MOST_REQUEST_BYTES} bytes"))
    } else {
        match serde_json::from_str::<Request>(&line) {
            Ok(request) if request.changes() && !may_change(peer, path) => {
                warn!(uid = peer.uid, pid = peer.pid, ?request, "refused: this user may not change anything");
                Reply::Error(format!(
                    "user {} may look and change nothing: run this as root, as the agent's user or in the group of {}",
                    peer.uid,
                    path.display()
                ))
            }
            Ok(request) => answer(request, peer, requests).await,
            Err(error) => Reply::Error(format!("this is no request: {error}")),
        }
    };
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    in_time(PATIENCE, writer.write_all(&text)).await?;
    writer.shutdown().await
}

async fn in_time<T>(patience: Duration, done: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(patience, done).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Whether a peer may change something: root, the agent's own user, and the socket's group. Other groups than the first of a process
/// are not among its credentials: others could connect only by the mode of the socket, which admits nobody else unless
/// somebody widened it.
fn may_change(peer: Peer, path: &Path) -> bool {
    if peer.uid == 0 || peer.uid == geteuid().as_raw() {
        return true;
    }
    fs::metadata(path).is_ok_and(|socket| peer.gid == socket.gid() || socket.mode() & 0o002 == 0)
}

/// The state of the agent, for its own listener.
pub(crate) async fn status(requests: &mpsc::Sender<Pending>) -> Reply {
    let peer = Peer { uid: geteuid().as_raw(), gid: getegid().as_raw(), pid: None };
    answer(Request::Status, peer, requests).await
}

async fn answer(request: Request, peer: Peer, requests: &mpsc::Sender<Pending>) -> Reply {
    let (reply, answer) = oneshot::channel();
    if requests.send(Pending { request, peer, reply }).await.is_err() {
        return Reply::Error("the agent is stopping".to_owned());
    }
    match tokio::time::timeout(REPLY_PATIENCE, answer).await {
        Ok(reply) => reply.unwrap_or_else(|_| Reply::Error("the agent is stopping".to_owned())),
        Err(_) => Reply::Error("the agent is busy: ask again".to_owned()),
    }
}
