//! What the gateways answered about their network meanwhile.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use super::arm::Stand;
use crate::product::interrupt;

const PERIOD: Duration = Duration::from_secs(2);

/// The answers, by the arm's number.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<BTreeMap<u8, Answers>>);

#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    asked: u32,
    shares: Sum,
    openings: Sum,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u32,
    segments: f64,
}

impl Sum {
    fn add(&mut self, segments: Option<f64>) {
        if let Some(segments) = segments {
            self.count += 1;
            self.segments += segments;
        }
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0).then(|| self.segments / f64::from(self.count))
    }
}

impl Watched {
    /// Asks an arm's gateway, where it has one, now and again until `end`.
    pub(super) fn look_at<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        stand: &'scope Stand,
        end: Instant,
    ) -> Result<()> {
        if stand.arm.advice.is_none() {
            return Ok(());
        }
        let look = move || {
            while Instant::now() < end && !interrupt::came() {
                if let Ok(document) = stand.network() {
                    self.take(stand.number, &document);
                }
                thread::sleep(PERIOD);
            }
        };
        thread::Builder::new().name("watch".to_owned()).spawn_scoped(scope, look).context("cannot start a thread")?;
        Ok(())
    }

    fn take(&self, number: u8, network: &Value) {
        let segments = |place: &str| network.pointer(place).and_then(Value::as_f64);
        if let Ok(mut all) = self.0.lock() {
            let answers = all.entry(number).or_default();
            answers.asked += 1;
            answers.shares.add(segments("/wc_segments"));
            answers.openings.add(segments("/opening/ssthresh_segments"));
        }
    }

    /// Means, by figure.
    pub(super) fn figures(&self, number: u8) -> BTreeMap<String, f64> {
        let answers = self.0.lock().ok().and_then(|all| all.get(&number).copied()).unwrap_or_default();
        let mut figures = BTreeMap::new();
        if answers.asked > 0 {
            let part = f64::from(answers.openings.count) / f64::from(answers.asked);
            figures.insert("opening_known_part".to_owned(), part);
        }
        figures.extend(answers.shares.mean().map(|mean| ("share_segments".to_owned(), mean)));
        figures.extend(answers.openings.mean().map(|mean| ("opening_segments".to_owned(), mean)));
        figures
    }
}
