//! From root to an ordinary user, keeping the capabilities for the moment (prctl(2), `PR_SET_KEEPCAPS`).

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{User, chown, geteuid, initgroups, setgid, setuid};
use spand_proto::operator::Failure;

/// Why the process cannot run as the configured user.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// Nobody is called so.
    #[error("process.user `{0}` is no user of this machine: make it (`useradd --system {0}`) or name another")]
    Unknown(String),
    /// Only root becomes another.
    #[error(
        "process.user is `{0}`, but the program was started as another user than root: start it as root, or remove it"
    )]
    NotRoot(String),
    /// The system refuses.
    #[error("cannot become process.user `{name}`: {why}")]
    Refused {
        /// The user.
        name: String,
        /// What the system says.
        why: io::Error,
    },
}

impl From<UserError> for Failure {
    fn from(error: UserError) -> Self {
        match error {
            UserError::Unknown(_) => Self::Usage(error.to_string()),
            UserError::NotRoot(_) | UserError::Refused { .. } => Self::environment(error),
        }
    }
}

/// Makes the folders that are missing, and becomes their owner: the user `name` with its groups. Gives whether it was another
/// before; then all capabilities of root are still permitted, and none is in force. A folder that cannot be made is reported by the code that uses it.
pub(crate) fn become_user(name: Option<&str>, folders: &[PathBuf]) -> Result<bool, UserError> {
    let user = name.map(find).transpose()?;
    for folder in folders {
        drop(make(folder, user.as_ref()));
    }
    let Some(user) = user else { return Ok(false) };
    if geteuid() == user.uid {
        return Ok(false);
    }
    if !geteuid().is_root() {
        return Err(UserError::NotRoot(user.name));
    }
    change(&user).map_err(|why| UserError::Refused { name: user.name, why })?;
    Ok(true)
}

fn find(name: &str) -> Result<User, UserError> {
    let found = User::from_name(name).map_err(|why| UserError::Refused { name: name.to_owned(), why: why.into() })?;
    found.ok_or_else(|| UserError::Unknown(name.to_owned()))
}

/// A folder that is there stays whose it is: to give it away is for who made it.
fn make(folder: &Path, user: Option<&User>) -> io::Result<()> {
    if folder.as_os_str().is_empty() || folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    match user.filter(|_| geteuid().is_root()) {
        Some(user) => Ok(chown(folder, Some(user.uid), Some(user.gid))?),
        None => Ok(()),
    }
}

fn change(user: &User) -> io::Result<()> {
    let name = CString::new(user.name.as_bytes())?;
    nix::sys::prctl::set_keepcaps(true)?;
    initgroups(&name, user.gid)?;
    setgid(user.gid)?;
    setuid(user.uid)?;
    nix::sys::prctl::set_keepcaps(false)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_is_not_there_is_a_fault_of_the_configuration() {
        let error = become_user(Some("nobody-of-this-name"), &[]).unwrap_err();
        assert!(error.to_string().contains("process.user `nobody-of-this-name`"), "{error}");
        assert!(matches!(Failure::from(error), Failure::Usage(_)));
    }

    #[test]
    fn folders_are_made() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("a/b");
        assert!(!become_user(None, std::slice::from_ref(&folder)).unwrap());
        assert!(folder.is_dir());
    }
}
