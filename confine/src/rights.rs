//! Who else may read or write a file that holds a secret.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
