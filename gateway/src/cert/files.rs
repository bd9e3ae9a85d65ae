//! The files: a key is its owner's alone from its first byte on, and no key or certificate replaces another.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rcgen::KeyPair;
use spand_proto::operator::Failure;
use spand_proto::tls::PemFile;

const FOLDER: u32 = 0o700;
const KEY: u32 = 0o600;
const CERTIFICATE: u32 = 0o644;

/// A new key: ECDSA over P-256.
pub(super) fn generate() -> Result<KeyPair, Failure> {
    KeyPair::generate().map_err(|error| Failure::Environment(format!("cannot make a key: {error}")))
}

/// Fails where one of the files of `name` is there.
pub(super) fn check_free(folder: &Path, name: &str) -> Result<(), Failure> {
    for path in paths(folder, name) {
        match fs::symlink_metadata(&path) {
            Ok(_) => return Err(is_there(&path)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(cannot("look for", &path, &error)),
        }
    }
    Ok(())
}

/// Writes `NAME.key` and `NAME.pem`, both or none.
pub(super) fn write_pair(
    folder: &Path,
    name: &str,
    key: &KeyPair,
    certificate: &str,
) -> Result<(PathBuf, PathBuf), Failure> {
    check_free(folder, name)?;
    DirBuilder::new().recursive(true).mode(FOLDER).create(folder).map_err(|error| cannot("make", folder, &error))?;
    let [key_path, path] = paths(folder, name);
    write_new(&key_path, KEY, &key.serialize_pem())?;
    if let Err(failure) = write_new(&path, CERTIFICATE, certificate) {
        // A key without its certificate would only be in the way.
        _ = fs::remove_file(&key_path);
        return Err(failure);
    }
    Ok((key_path, path))
}

/// The list that is there, if any.
pub(super) fn read_list(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    match File::open(path) {
        Ok(file) => {
            let read = PemFile::read("tls.revoked", path, file).map_err(|error| cannot("read", path, &error))?;
            let lists = read.revocation_lists().map_err(Failure::environment)?;
            match lists.as_slice() {
                [list] => Ok(Some(list.to_vec())),
                _ => Err(Failure::Environment(format!(
                    "{} holds {} lists: leave that of this authority alone in it",
                    path.display(),
                    lists.len()
                ))),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(cannot("read", path, &error)),
    }
}

/// Replaces a list atomically: a reader gets the previous one or this one.
pub(super) fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let next = path.with_extension("pem.new");
    // Of a run that was interrupted; two at a time are kept apart by the lock on the authority.
    match fs::remove_file(&next) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot("remove", &next, &error)),
        _ => {}
    }
    write_new(&next, CERTIFICATE, text)?;
    fs::rename(&next, path).map_err(|error| cannot("replace", path, &error))
}

fn paths(folder: &Path, name: &str) -> [PathBuf; 2] {
    [folder.join(format!("{name}.key")), folder.join(format!("{name}.pem"))]
}

/// Writes a file that is not there yet; removes it where that fails.
fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => is_there(path),
        _ => cannot("make", path, &error),
    })?;
    let written = file
        .write_all(text.as_bytes())
        // Whatever the umask took away.
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all());
    written.map_err(|error| {
        _ = fs::remove_file(path);
        cannot("write", path, &error)
    })
}

fn is_there(path: &Path) -> Failure {
    Failure::Environment(format!(
        "{} is there already and stays as it is: move it away, or choose another folder",
        path.display()
    ))
}

/// What cannot be done, and the way out where it is a right that is missing.
pub(super) fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    let way_out =
        if error.kind() == ErrorKind::PermissionDenied { "; run this as root, or choose another folder" } else { "" };
    Failure::Environment(format!("cannot {what} {}: {error}{way_out}", path.display()))
}
