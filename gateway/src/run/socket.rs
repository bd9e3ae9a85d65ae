//! The Unix socket on which agents of this machine ask.
//!
//! A user who may not write to its folder cannot take its place while the gateway is away, as any user can with a port of loopback.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use nix::unistd::{Group, getegid};
use spand_proto::operator::Failure;

/// Who may ask: owner and group.
const MODE: u32 = 0o660;
/// The group of those who may ask, where this machine has one of this name.
const GROUP: &str = "spand";
/// The mode of a folder that is made for it: others find the socket, and put none in its place.
const FOLDER_MODE: u32 = 0o755;

/// Removes the socket when the gateway ends.
#[derive(Debug)]
pub(super) struct Socket(PathBuf);

impl Socket {
    /// Listens at `path`. Replaces a socket at which nobody listens. Changes the process's umask for a moment, so that it is called while
    /// there is one thread.
    pub(super) fn bind(path: &Path) -> Result<(UnixListener, Self), Failure> {
        let failed = |why: String| {
            Failure::Environment(format!("cannot listen at the socket {} (api.grpc_socket): {why}", path.display()))
        };
        let fault =
            |error: io::Error| failed(format!("{error}; name a file in a folder that this program may write to"));
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
            fs::create_dir_all(folder).map_err(fault)?;
            fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE)).map_err(fault)?;
        }
        match UnixStream::connect(path) {
            Ok(_) => return Err(failed("another program answers there: stop it, or name another file".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                if !fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
                    return Err(failed("a file is there that is no socket: remove it, or name another".to_owned()));
                }
                fs::remove_file(path).map_err(fault)?;
            }
            Err(error) => return Err(fault(error)),
        }
        // The mode is right from the beginning: nobody else connects before it is set.
        let before = umask(Mode::from_bits_truncate(0o777 & !MODE));
        let bound = UnixListener::bind(path);
        umask(before);
        let listener = bound.map_err(fault)?;
        let socket = Self(path.to_owned());
        listener.set_nonblocking(true).map_err(fault)?;
        give_to_group(path);
        Ok((listener, socket))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

/// Members of a group may give their files to it; others need `CAP_CHOWN`.
fn give_to_group(path: &Path) {
    let group = Group::from_name(GROUP).ok().flatten();
    let Some(group) = group.filter(|group| group.gid != getegid()) else { return };
    if let Err(error) = lchown(path, None, Some(group.gid.as_raw())) {
        tracing::warn!(
            %error,
            "cannot give {} to the group {GROUP}, whose members ask there: run the gateway as a member",
            path.display()
        );
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The next start replaces a leftover.
        _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_leftover_is_replaced_and_an_answering_socket_or_another_file_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run/gateway.sock");
        let (listener, socket) = Socket::bind(&path).unwrap();
        let modes = [path.as_path(), path.parent().unwrap()].map(|path| fs::metadata(path).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o660, 0o755]);
        let taken = Socket::bind(&path).unwrap_err().to_string();
        assert!(taken.contains("gateway.sock (api.grpc_socket): another program answers there"), "{taken}");

        // As after a kill.
        std::mem::forget(socket);
        drop(listener);
        let (listener, socket) = Socket::bind(&path).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop((listener, socket));
        assert!(!path.exists(), "it is removed at the end");

        fs::write(&path, "text").unwrap();
        let refused = Socket::bind(&path).unwrap_err().to_string();
        assert!(refused.contains("that is no socket"), "{refused}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }
}
