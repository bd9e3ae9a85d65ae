//! What a server is asked to send.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Longest request line.
pub(super) const LINE_MAX_BYTES: u64 = 4_096;
/// Most steps of one request.
const STEPS_MAX: usize = 256;
/// Most bytes of one step.
const BYTES_MAX: u64 = 1 << 30;
/// Longest pause or streaming time.
const TIME_MAX: Duration = Duration::from_secs(4_000);

/// One thing the server's application does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Write this many bytes.
    Send(u64),
    /// Do nothing for this long.
    Pause(Duration),
    /// Write as much as the connection takes for this long.
    Stream(Duration),
}

/// A congestion control and what to send under it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Linux name: `reno`, `cubic`, `bbr`; [`Plan::AS_THE_HOST`] leaves the choice to the host.
    pub congestion_control: String,
    /// In order.
    pub steps: Vec<Step>,
    /// Most bytes that the application writes at a time.
    pub write_bytes: u32,
}

/// Bytes of one write where a plan does not say.
pub const WRITE_BYTES: u32 = 64 * 1024;

impl Plan {
    /// In place of a congestion control: whatever the host gives its connections.
    pub const AS_THE_HOST: &str = "as-the-host";

    /// These steps, in writes of the usual size.
    pub fn new(congestion_control: &str, steps: Vec<Step>) -> Self {
        Self { congestion_control: congestion_control.to_owned(), steps, write_bytes: WRITE_BYTES }
    }

    /// One answer of `bytes`.
    pub fn transfer(congestion_control: &str, bytes: u64) -> Self {
        Self::new(congestion_control, vec![Step::Send(bytes)])
    }

    /// Bytes it sends in all; `None` where that depends on time.
    pub fn bytes(&self) -> Option<u64> {
        self.steps.iter().try_fold(0_u64, |sum, step| match step {
            Step::Send(bytes) => sum.checked_add(*bytes),
            Step::Pause(_) => Some(sum),
            Step::Stream(_) => None,
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.congestion_control)?;
        if self.write_bytes != WRITE_BYTES {
            write!(f, " %{}", self.write_bytes)?;
        }
        for step in &self.steps {
            match step {
                Step::Send(bytes) => write!(f, " {bytes}")?,
                Step::Pause(time) => write!(f, " @{}", time.as_millis())?,
                Step::Stream(time) => write!(f, " ~{}", time.as_millis())?,
            }
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut words = line.split_whitespace().peekable();
        let congestion_control = words.next().context("an empty request")?.to_owned();
        ensure!(congestion_control.len() < 16, "`{congestion_control}` is no congestion control");
        let time = |word: &str| -> Result<Duration> {
            let time = Duration::from_millis(word.parse()?);
            ensure!(time <= TIME_MAX, "a step of {time:?} is longer than {TIME_MAX:?}");
            Ok(time)
        };
        let write_bytes = match words.next_if(|word| word.starts_with('%')) {
            Some(word) => word.trim_start_matches('%').parse().with_context(|| format!("`{word}` is no size"))?,
            None => WRITE_BYTES,
        };
        ensure!(
            (1..=WRITE_BYTES).contains(&write_bytes),
            "a write of {write_bytes} bytes is outside 1 to {WRITE_BYTES}"
        );
        let steps = words
            .take(STEPS_MAX + 1)
            .map(|word| match word.split_at_checked(1) {
                Some(("@", ms)) => Ok(Step::Pause(time(ms)?)),
                Some(("~", ms)) => Ok(Step::Stream(time(ms)?)),
                _ => {
                    let bytes = word.parse().with_context(|| format!("`{word}` is no step"))?;
                    ensure!(bytes <= BYTES_MAX, "a step of {bytes} bytes is above {BYTES_MAX}");
                    Ok(Step::Send(bytes))
                }
            })
            .collect::<Result<Vec<_>>>()?;
        if steps.is_empty() || steps.len() > STEPS_MAX {
            bail!("a request has 1 to {STEPS_MAX} steps");
        }
        Ok(Self { congestion_control, steps, write_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_the_wire() {
        let line = "cubic 65536 @200 1000000 ~3000";
        let plan: Plan = line.parse().unwrap();
        assert_eq!(plan.to_string(), line);
        assert_eq!(plan.bytes(), None);
        assert_eq!(Plan::transfer("reno", 7).to_string().parse::<Plan>().unwrap().bytes(), Some(7));
    }

    #[test]
    fn the_size_of_writes_travels_with_it() {
        let line = "reno %1448 30000";
        let plan: Plan = line.parse().unwrap();
        assert_eq!((plan.write_bytes, plan.to_string().as_str()), (1_448, line));
        assert!("reno %0 1".parse::<Plan>().is_err());
    }

    #[test]
    fn what_would_never_end_is_refused() {
        let long = format!("cubic{}", " 1".repeat(257));
        for line in ["", "cubic", "cubic x", "cubic -1", "cubic @4000001", "cubic 1073741825", long.as_str()] {
            assert!(line.parse::<Plan>().is_err(), "{line}");
        }
    }
}
