//! Keeps a panic of the database from spreading.
//!
//! sled 0.34 panics on some kinds of damage instead of returning an error. Whatever reads or writes the database runs
//! through here, so that such a panic becomes an error with its message. What unwinding cannot catch (an abort) is not
//! contained.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::thread;

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
