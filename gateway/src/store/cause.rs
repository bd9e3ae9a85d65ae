//! Whose fault an error of the database is: the machine's, and then the store may be sound, or the store's own.

use std::any::Any;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::{io, thread};

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

// Keeps a panic of the database from spreading.
//
// sled 0.34 panics on some kinds of damage instead of returning an error. Whatever reads or writes the database runs
// through here, so that such a panic becomes an error with its message. What unwinding cannot catch (an abort) is not
// contained.

/// Name of the threads whose panics become errors; nothing is printed for them.
const THREAD_NAME: &str = "store";

/// Why work gave nothing.
#[derive(Debug)]
pub(super) enum Failed {
    /// It did not begin, since there was no thread for it: nothing is known of the database.
    NoThread(io::Error),
    /// It panicked, with these words.
    Panicked(String),
}

/// Runs `work` on a thread of its own, from which a panic does not spread.
pub(super) fn contained<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Failed> {
    silence();
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(THREAD_NAME.to_owned()).spawn_scoped(scope, work);
        let thread = thread.map_err(Failed::NoThread)?;
        thread.join().map_err(|panic| Failed::Panicked(words(panic.as_ref())))
    })
}

/// Drops what flushes as it is dropped. A panic has nowhere to go from here; the next opening finds out.
pub(super) fn discard(what: impl Send) {
    let mut what = Some(what);
    if let Err(Failed::NoThread(_)) = contained(|| drop(what.take())) {
        // Here then: what is not dropped holds its lock, and nobody could open the database again.
        drop(catch_unwind(AssertUnwindSafe(|| drop(what.take()))));
    }
}

/// The panic hook says nothing about panics that become errors here; every other panic goes on to the hook before.
fn silence() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if thread::current().name() != Some(THREAD_NAME) {
                before(info);
            }
        }));
    });
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
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
