//! Turns a panic of the database into an error with its message. sled 0.34 panics on some kinds of damage instead of returning an
//! error. An abort is not contained.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::{io, thread};

/// Name of the threads whose panics become errors; nothing is printed for them.
const THREAD_NAME: &str = "store";

/// Runs `work` on a thread of its own. The inner error is the message of its panic; the outer one is that no thread started.
pub(super) fn contained<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<Result<T, String>> {
    silence();
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(THREAD_NAME.to_owned()).spawn_scoped(scope, work);
        let thread = thread.map_err(|error| {
            io::Error::new(error.kind(), format!("no thread could be started (ulimit -u, TasksMax=): {error}"))
        })?;
        Ok(thread.join().map_err(|panic| message(panic.as_ref())))
    })
}

/// Drops what flushes as it is dropped. Nobody needs its panic: the next opening finds out.
pub(super) fn discard(what: impl Send) {
    let mut what = Some(what);
    if contained(|| drop(what.take())).is_err() {
        // Here then: what is not dropped holds its lock, and nobody could open the database again.
        drop(catch_unwind(AssertUnwindSafe(|| drop(what.take()))));
    }
}

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

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
}
