//! Lines on standard error, for people or for collectors, and a limit for lines that repeat.
//!
//! What a stranger can bring about (a connection, a subscription, a packet) must not fill a disk: each place in the source may say
//! [`LINES`] lines in [`WINDOW`]. The first line beyond is announced, the others are counted ([`lines_left_out`]), and how many
//! there were stands before the next line of that place. Lines below `info` are asked for, and not limited.

use std::collections::HashMap;
use std::io::stderr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tracing::callsite::Identifier;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

/// Lines that one place in the source may say in a window.
pub const LINES: u32 = 100;
/// Length of that window.
pub const WINDOW: Duration = Duration::from_secs(10);

/// The client of NATS tells of each connection, and calls the end of one an error: what matters of it is logged by us. A filter may name it.
const QUIET: &str = "async_nats=off";

static LEFT_OUT: AtomicU64 = AtomicU64::new(0);

/// Lines of this process's log that were left out so far.
pub fn lines_left_out() -> u64 {
    LEFT_OUT.load(Ordering::Relaxed)
}

impl Log {
    /// Whether the filter is one; otherwise why not, and the way out.
    pub fn check(&self) -> Result<(), String> {
        let filter = self.filter.trim();
        let parsed = EnvFilter::builder().parse(filter);
        parsed
            .map_err(|error| format!("log.filter `{filter}` is no log filter ({error}): write a level such as info"))?;
        // To the library a lone word is a module whose lines alone are logged.
        let is_word = !filter.is_empty() && filter.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if is_word && filter.parse::<LevelFilter>().is_err() {
            return Err(format!(
                "log.filter `{filter}` is no level: write error, warn, info, debug or trace, or `info,{filter}=debug` for a module"
            ));
        }
        Ok(())
    }

    /// Starts to log. A second start in one process (tests) changes nothing.
    pub fn start(&self) {
        // The filter was checked with the configuration.
        let filter = EnvFilter::builder().parse_lossy(format!("{QUIET},{}", self.filter));
        let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr).with_target(false);
        let started = match self.format {
            LogFormat::Text => lines.with_ansi(false).finish().with(Limit::default()).try_init(),
            LogFormat::Json => lines.json().flatten_event(true).finish().with(Limit::default()).try_init(),
        };
        drop(started);
    }
}

/// Leaves lines out that repeat too often.
#[derive(Debug, Default)]
struct Limit {
    /// At least the number of call sites in the source.
    places: Mutex<HashMap<Identifier, Place>>,
}

/// One place in the source.
#[derive(Debug)]
struct Place {
    since: Instant,
    logged: u32,
    left_out: u64,
}

/// What happens to a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    Logged,
    /// Logged, with the number suppressed before it.
    LoggedAfter(u64),
    /// Suppressed, with a note that messages are.
    FirstLeftOut,
    LeftOut,
}

impl Place {
    const fn new(now: Instant) -> Self {
        Self { since: now, logged: 0, left_out: 0 }
    }

    fn line(&mut self, now: Instant) -> Verdict {
        let mut before = 0;
        if now.duration_since(self.since) >= WINDOW {
            before = self.left_out;
            *self = Self::new(now);
        }
        self.logged = self.logged.saturating_add(1);
        if self.logged > LINES {
            self.left_out += 1;
            return if self.left_out == 1 { Verdict::FirstLeftOut } else { Verdict::LeftOut };
        }
        if before > 0 { Verdict::LoggedAfter(before) } else { Verdict::Logged }
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == module_path!() {
            return true;
        }
        let now = Instant::now();
        let verdict = match self.places.lock() {
            Ok(mut places) => places.entry(metadata.callsite()).or_insert_with(|| Place::new(now)).line(now),
            // A thread panicked in between: better a line too many.
            Err(_) => Verdict::Logged,
        };
        let place = metadata.name();
        match verdict {
            Verdict::Logged => true,
            Verdict::LoggedAfter(lines) => {
                tracing::warn!(lines, place, "lines like the next one were left out");
                true
            }
            Verdict::FirstLeftOut => {
                LEFT_OUT.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(lines = LINES, seconds = WINDOW.as_secs(), place, "this repeats: the rest is left out");
                false
            }
            Verdict::LeftOut => {
                LEFT_OUT.fetch_add(1, Ordering::Relaxed);
                false
            }
        }
    }
}

// The section `[log]` of both configurations.

/// `[log]`: what is logged, always on standard error.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// Level, or a filter by module such as `info,spand_agent::apply=debug`. Default `info`.
    pub filter: String,
    /// Form of a line. Default `text`.
    pub format: LogFormat,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Default for Log {
    fn default() -> Self {
        Self { filter: "info".to_owned(), format: LogFormat::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_place_has_its_lines_in_each_window() {
        let begin = Instant::now();
        let mut place = Place::new(begin);
        let first: Vec<Verdict> = (0..LINES + 3).map(|_| place.line(begin)).collect();
        let logged = first.iter().filter(|verdict| **verdict == Verdict::Logged).count();
        assert_eq!(logged, LINES as usize);
        assert_eq!(first[LINES as usize..], [Verdict::FirstLeftOut, Verdict::LeftOut, Verdict::LeftOut]);
        assert_eq!(place.line(begin + WINDOW), Verdict::LoggedAfter(3));
        assert_eq!(place.line(begin + WINDOW), Verdict::Logged);
    }

    /// A writer that keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_repeats_is_cut_off_and_others_are_not() {
        let kept = Kept::default();
        let writer = kept.clone();
        let lines = tracing_subscriber::fmt().with_max_level(Level::DEBUG).with_writer(move || writer.clone());
        let before = lines_left_out();
        tracing::subscriber::with_default(lines.finish().with(Limit::default()), || {
            for _ in 0..1_000 {
                tracing::info!("a stranger came");
                tracing::debug!("asked for");
            }
            tracing::warn!("something else");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let of = |words: &str| text.lines().filter(|line| line.contains(words)).count();
        assert_eq!((of("a stranger came"), of("asked for"), of("something else")), (LINES as usize, 1_000, 1));
        assert_eq!(lines_left_out() - before, 1_000 - u64::from(LINES));
    }
}
