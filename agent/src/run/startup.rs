//! A start that takes long: the kernel verifies programs for minutes on a busy machine. The service manager and the log learn that it goes on.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use sd_notify::NotifyState;
use tracing::info;

use super::supervise;

/// Time between two signs.
const EVERY: Duration = Duration::from_secs(10);
/// What each gives the start, at least.
const EXTENSION_US: u32 = 60_000_000;

/// Loads the kernel programs, which this thread waits for, with a sign every ten seconds.
pub(super) fn loading<T>(load: impl FnOnce() -> T) -> T {
    with_signs(EVERY, sign, load)
}

fn sign(passed: Duration) {
    supervise(NotifyState::ExtendTimeoutUsec(EXTENSION_US));
    if passed >= EVERY {
        info!(seconds = passed.as_secs(), "still loading: the kernel verifies the programs");
    }
}

/// Does something with a sign at its beginning and after each interval, by another thread.
fn with_signs<T>(every: Duration, sign: impl Fn(Duration) + Sync, act: impl FnOnce() -> T) -> T {
    let (done, waits) = channel::<()>();
    let begun = Instant::now();
    sign(Duration::ZERO);
    thread::scope(|scope| {
        let sign = &sign;
        let signs = move || {
            while waits.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                sign(begun.elapsed());
            }
        };
        // Without a thread there are no signs.
        drop(thread::Builder::new().name("startup".to_owned()).spawn_scoped(scope, signs));
        let result = act();
        drop(done);
        result
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_come_while_it_lasts_and_end_with_it() {
        let (tell, signs_seen) = std::sync::mpsc::sync_channel(0);
        let tell = std::sync::Mutex::new(Some(tell));
        let sign = |passed: Duration| {
            if !passed.is_zero()
                && let Some(tell) = &*tell.lock().unwrap()
            {
                _ = tell.send(passed);
            }
        };
        let signs = with_signs(Duration::from_millis(1), sign, || {
            let signs: Vec<Duration> = signs_seen.iter().take(3).collect();
            drop(signs_seen);
            signs
        });
        assert!(signs.len() == 3 && signs.is_sorted(), "{signs:?}");
    }
}
