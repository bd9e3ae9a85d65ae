//! Whose fault an error of the database is: the machine's, and then the store may be sound, or the store's own.

use std::io::{self, ErrorKind};

use nix::libc::EIO;

/// Whether an error is about the machine. So is every system error except those of files that are not as they were
/// written: then, and where sled says it itself, the store is damaged.
pub(super) fn is_environment(error: &io::Error) -> bool {
    // What sled makes up itself of torn files is `Other`.
    !matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData
            | ErrorKind::InvalidInput
            | ErrorKind::NotFound
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::Other
    )
}

/// Whether the disk itself is the reason: it is full, read-only, or fails.
pub(super) fn is_disk(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem)
        // No kind is EIO's own, and sled's copies have lost the number, but in their text.
        || error.to_string().contains(&format!("(os error {EIO})"))
}

/// Whether sled found its file locked. It says so in words only.
pub(super) fn is_lock_held(error: &sled::Error) -> bool {
    matches!(error, sled::Error::Io(error) if error.to_string().contains("could not acquire lock"))
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn what_the_system_refuses_is_no_damage_and_what_is_not_as_it_was_written_is() {
        for errno in [
            Errno::EMFILE,
            Errno::ENFILE,
            Errno::ENOMEM,
            Errno::EIO,
            Errno::EAGAIN,
            Errno::ENOSPC,
            Errno::EDQUOT,
            Errno::EROFS,
            Errno::EACCES,
        ] {
            let error = io::Error::from(errno);
            // sled hands on copies, which have lost the number.
            let copy = io::Error::new(error.kind(), error.to_string());
            assert!(is_environment(&error) && is_environment(&copy), "{errno}");
        }
        for (errno, of_disk) in [
            (Errno::ENOSPC, true),
            (Errno::EDQUOT, true),
            (Errno::EROFS, true),
            (Errno::EIO, true),
            (Errno::EACCES, false),
            (Errno::EMFILE, false),
            (Errno::ENOMEM, false),
        ] {
            let error = io::Error::from(errno);
            let copy = io::Error::new(error.kind(), error.to_string());
            assert_eq!((is_disk(&error), is_disk(&copy)), (of_disk, of_disk), "{errno}");
        }
        for errno in [Errno::EINVAL, Errno::ENOENT, Errno::ENOTDIR, Errno::EISDIR] {
            assert!(!is_environment(&errno.into()), "{errno}");
        }
        for kind in [ErrorKind::UnexpectedEof, ErrorKind::InvalidData] {
            assert!(!is_environment(&kind.into()), "{kind}");
        }
        assert!(!is_environment(&io::Error::other("encountered torn segment")));
    }
}
