//! Files, TCP ports and signals, by Landlock (landlock(7)), and files that are read whole.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, PathFd, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::Part;
use super::plan::Plan;

/// The newest interface of which something is used; an older kernel does what it knows.
const NEWEST: ABI = ABI::V6;

/// Restricts the calling thread and those that it starts, and says for each part whether that is in force. What has to stay
/// open for the rules to hold goes to `pinned`.
pub(crate) fn restrict(plan: &Plan, pinned: &mut Vec<OwnedFd>) -> [(Part, Result<(), String>); 3] {
    let abi = match apply(plan, pinned) {
        Ok(status) => match status.landlock {
            LandlockStatus::Available { effective_abi, .. } => Ok(effective_abi),
            LandlockStatus::NotEnabled => {
                Err("Landlock is not among the kernel's modules (boot with lsm=landlock)".to_owned())
            }
            LandlockStatus::NotImplemented => {
                Err("the kernel has no Landlock, or the service may not use it".to_owned())
            }
        },
        Err(error) => Err(error.to_string()),
    };
    let from = |least, linux: &str| match &abi {
        Ok(abi) if *abi >= least => Ok(()),
        Ok(_) => Err(format!("Linux {linux} and later can do that")),
        Err(why) => Err(why.clone()),
    };
    // Before the third version a file that may not be written could still be cut short.
    [(Part::Files, from(ABI::V3, "6.2")), (Part::Tcp, from(ABI::V4, "6.7")), (Part::Signals, from(ABI::V6, "6.12"))]
}

fn apply(plan: &Plan, pinned: &mut Vec<OwnedFd>) -> Result<RestrictionStatus, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let special = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::Execute;
    let change = AccessFs::from_all(NEWEST) & !special;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for (paths, access) in [
        (&plan.read, read),
        (&plan.write, change),
        (&plan.write_to, AccessFs::ReadFile | AccessFs::WriteFile),
        (&plan.start, read | AccessFs::Execute),
    ] {
        for path in paths {
            rules = allow(rules, path, access, pinned)?;
        }
    }
    for port in &plan.connect {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    rules.restrict_self()
}

/// Allows `access` to a path and what lies below. One that is not there stays forbidden.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
    pinned: &mut Vec<OwnedFd>,
) -> Result<RulesetCreated, RulesetError> {
    // A relative path's parent may be nothing at all.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let Ok(opened) = PathFd::new(path) else { return Ok(rules) };
    if path.starts_with("/proc") {
        pinned.extend(opened.as_fd().try_clone_to_owned());
    }
    // What folders alone know is refused for a file.
    let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEWEST) };
    rules.add_rule(PathBeneath::new(opened, access))
}

/// Largest configuration, secret or list of passwords in MiB.
const MOST_MIB: u64 = 16;

/// The bytes of a file, as [`fs::read`], but of no more than `most_mib`: a device has no end.
///
/// # Errors
/// It cannot be read, or is larger.
pub fn read_at_most(path: &Path, most_mib: u64) -> io::Result<Vec<u8>> {
    let (mut bytes, most_bytes) = (Vec::new(), most_mib << 20);
    File::open(path)?.take(most_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most_bytes {
        let message = format!("it has more than {most_mib} MiB, the most that is read");
        return Err(io::Error::new(ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// The bytes of a configuration or a secret.
///
/// # Errors
/// It cannot be read, or has more than 16 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, MOST_MIB)
}

/// The same as text.
///
/// # Errors
/// It cannot be read, is larger, or is no UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    text(read(path)?)
}

/// Bytes that were read as text.
///
/// # Errors
/// They are no UTF-8.
pub fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is no text in UTF-8"))
}

// Who else may read or write a file that holds a secret.

/// A sentence about a file of a secret that others than its owner have rights to, as `ssh` looks at its keys; `None` where they have none,
/// or where it cannot be looked at.
/// The group may read root's files: that is how root gives one to a program's user.
pub fn exposed(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let mode = metadata.mode() & 0o777;
    let (closed, way_out) = if metadata.uid() == 0 { (0o027, "640") } else { (0o077, "600") };
    if mode & closed == 0 {
        return None;
    }
    let path = path.display();
    Some(format!("{path} holds a secret, and its mode {mode:04o} gives others rights to it: `chmod {way_out} {path}`"))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let error = read_to_string(Path::new("/dev/zero")).unwrap_err();
        assert_eq!((error.kind(), error.to_string().contains("16 MiB")), (ErrorKind::FileTooLarge, true));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        fs::write(&path, "a = 1\n").unwrap();
        assert_eq!(read_to_string(&path).unwrap(), "a = 1\n");
        fs::write(&path, b"\xff").unwrap();
        assert_eq!(read_to_string(&path).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_secret_is_its_owners_and_roots_may_be_a_group_s_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.key");
        fs::write(&path, "").unwrap();
        let is_root = fs::metadata(&path).unwrap().uid() == 0;
        for (mode, exposing) in
            [(0o600, false), (0o400, false), (0o640, !is_root), (0o660, true), (0o604, true), (0o666, true)]
        {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let sentence = exposed(&path);
            assert_eq!(sentence.is_some(), exposing, "{mode:o}: {sentence:?}");
            if let Some(sentence) = sentence {
                let (mode, way_out) =
                    (format!("mode {mode:04o} "), if is_root { "`chmod 640 " } else { "`chmod 600 " });
                assert!(sentence.contains(&mode) && sentence.contains(way_out), "{sentence}");
            }
        }
    }
}
