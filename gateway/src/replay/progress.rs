//! How far a long replay has come, for a person at a terminal.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spand_capture::Progress;

/// A replay shorter than this shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// A bar on standard error; nothing where that is not a terminal.
#[derive(Debug)]
pub(super) struct Bar {
    started: Instant,
    /// `None` until the patience is over.
    shown: Option<ProgressBar>,
    terminal: bool,
}

impl Bar {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), shown: None, terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn update(&mut self, progress: Progress) {
        if !self.terminal || self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.shown.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(Some(progress.total_bytes), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:40} {bytes} of {total_bytes}, {eta} left");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_position(progress.done_bytes);
    }

    /// Removes the bar, so that nothing of it stays between the lines of the result.
    pub(super) fn clear(&mut self) {
        if let Some(bar) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}
