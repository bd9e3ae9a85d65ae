//! Keeps a panic of the database from spreading.
//!
//! sled 0.34 panics on some kinds of damage instead of returning an error. Whatever reads or writes the database runs
//! through here, so that such a panic becomes an error with its message. What unwinding cannot catch (an abort) is not
//! contained.

use std::any::Any;
use std::panic::{set_hook, take_hook};
use std::sync::Once;
use std::thread;

/// Name of the threads whose panics become errors; nothing is printed for them.
const THREAD_NAME: &str = "store";

/// Runs `work` on a thread of its own; its panic is the error.
pub(super) fn contained<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    silence();
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(THREAD_NAME.to_owned()).spawn_scoped(scope, work);
        match thread {
            Ok(thread) => thread.join().map_err(|panic| words(panic.as_ref())),
            Err(error) => Err(format!("no thread could be started: {error}")),
        }
    })
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
