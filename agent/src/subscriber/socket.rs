//! A gateway on this machine, at a Unix socket. It is believed only where no other user can have put it there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use nix::unistd::geteuid;
use tokio::net::UnixStream;
use tonic::codegen::Service;
use tonic::transport::Uri;

/// Group and others may write.
const WRITABLE: u32 = 0o022;

/// Connects to the socket at a path, whatever the URI.
#[derive(Clone, Debug)]
pub(super) struct Connector(pub(super) PathBuf);

impl Service<Uri> for Connector {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.0.clone();
        Box::pin(async move { connect(&path).await.map(TokioIo::new) })
    }
}

async fn connect(path: &Path) -> io::Result<UnixStream> {
    // `/var/run` is a link; what is checked is where it leads.
    let path = fs::canonicalize(path)?;
    let stream = UnixStream::connect(&path).await.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            io::Error::other(format!("{error}; run this as root, or as a member of the socket's group"))
        }
        _ => error,
    })?;
    check(&path, stream.peer_cred()?.uid())?;
    Ok(stream)
}

/// Refuses a socket that another user could replace, and one whose listener, user `peer`, is neither root nor the socket's owner.
fn check(path: &Path, peer: u32) -> io::Result<()> {
    let owner = fs::metadata(path)?.uid();
    if peer != 0 && peer != owner {
        return refuse(&format!(
            "user {peer} listens there although the socket belongs to user {owner}: stop that program, and restart the gateway"
        ));
    }
    for folder in path.ancestors().skip(1) {
        let found = fs::metadata(folder)?;
        let (shown, user) = (folder.display(), found.uid());
        if found.mode() & WRITABLE != 0 {
            return refuse(&format!(
                "others than its owner may write to the folder {shown} and take the gateway's place: chmod go-w it, or move \
                 api.grpc_socket to another folder"
            ));
        }
        if [0, geteuid().as_raw()].contains(&user) {
            break;
        }
        // The gateway's own folder. Only a user who may write to the one around it made it.
        if user != owner {
            return refuse(&format!(
                "the folder {shown} belongs to user {user}, who can take the gateway's place: give it to root or to user {owner}"
            ));
        }
    }
    Ok(())
}

fn refuse(why: &str) -> io::Result<()> {
    Err(io::Error::other(format!("not believed: {why}")))
}

#[cfg(test)]
mod tests {
    use spand_needs::{Need, needs};
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[tokio::test]
    async fn a_socket_that_another_user_listens_at_or_could_replace_is_not_believed() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().canonicalize().unwrap().join("run");
        let path = folder.join("gateway.sock");
        fs::create_dir(&folder).unwrap();
        let mode = |folder: &Path, mode| fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
        mode(&folder, 0o755);
        let absent = connect(&path).await.unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);

        let _listener = tokio::net::UnixListener::bind(&path).unwrap();
        connect(&path).await.unwrap();
        let refused = |peer| check(&path, peer).unwrap_err().to_string();
        assert!(refused(65_533).contains("user 65533 listens there"));

        mode(&folder, 0o777);
        let refused_all = connect(&path).await.unwrap_err().to_string();
        assert!(refused_all.contains("others than its owner may write to the folder"), "{refused_all}");
        mode(&folder, 0o1777);
        connect(&path).await.expect_err("any user may have a socket in a sticky folder");
        mode(&folder, 0o755);

        if !needs(Need::Root) {
            return;
        }
        let user = 65_534;
        chown(&path, Some(user), None).unwrap();
        chown(&folder, Some(65_533), None).unwrap();
        assert!(refused(user).contains("belongs to user 65533"));
        chown(&folder, Some(user), None).unwrap();
        check(&path, user).expect("the gateway's own folder in one of root");
        connect(&path).await.expect("root listens there");
        mode(place.path(), 0o777);
        assert!(refused(user).contains("others than its owner"), "anyone could have made its folder");
    }
}
