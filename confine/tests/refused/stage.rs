//! What attempts are made on: files, ports and a socket without a place in the file system.

use std::fmt;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

/// A folder, and listeners of the process that made it.
pub(crate) struct Stage {
    folder: PathBuf,
    /// A port that may be connected to.
    pub(crate) port: u16,
    /// One that may not, of an IPv4 and an IPv6 socket.
    pub(crate) other: u16,
    _held: Option<Held>,
}

struct Held {
    folder: tempfile::TempDir,
    _listeners: [TcpListener; 3],
    _nameless: UnixListener,
}

impl Stage {
    pub(crate) fn build() -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        for name in ["read", "write"] {
            fs::create_dir(path.join(name))?;
            fs::write(path.join(name).join("file"), "")?;
        }
        fs::write(path.join("beside"), "")?;
        fs::copy("/bin/true", path.join("program"))?;
        std::os::unix::fs::symlink("../beside", path.join("read/link"))?;
        let (port, other) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
        let ports = (port.local_addr()?.port(), other.local_addr()?.port());
        let six = TcpListener::bind(("::1", ports.1))?;
        let nameless = UnixListener::bind_addr(&nameless(path)?)?;
        let held = Held { folder, _listeners: [port, other, six], _nameless: nameless };
        let folder = held.folder.path().to_owned();
        Ok(Self { folder, port: ports.0, other: ports.1, _held: Some(held) })
    }

    /// The stage that another process made.
    pub(crate) fn of(text: &str) -> Self {
        let mut parts = text.splitn(3, ' ');
        let mut port = || parts.next()?.parse().ok();
        let ports: (Option<u16>, Option<u16>) = (port(), port());
        let folder = PathBuf::from(parts.next().unwrap_or_default());
        Self { folder, port: ports.0.expect("a port"), other: ports.1.expect("a port"), _held: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The address of the socket that lies in no folder.
    pub(crate) fn nameless(&self) -> io::Result<SocketAddr> {
        nameless(&self.folder)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.port, self.other, self.folder.display())
    }
}

fn nameless(folder: &Path) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(folder.as_os_str().as_encoded_bytes())
}
