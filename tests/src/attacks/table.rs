//! What was seen, as lines of a table.

use std::fmt;
use std::time::Duration;

use super::Attack;

/// What honest ones saw in one turn, or in several.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// From the connection to the end of the snapshot.
    pub snapshots: Vec<Duration>,
    /// From the packet to the agent, of each start.
    pub pushes: Vec<Duration>,
    /// Times that health was asked for.
    pub asked: u32,
    /// Times that it was answered.
    pub answered: u32,
    /// The longest that it took.
    pub slowest: Duration,
}

/// What the gateway counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Connections accepted.
    pub connections: u64,
    /// Requests answered, refusals among them.
    pub requests: u64,
    /// What was refused, and connections that lost their place.
    pub refused: u64,
}

/// One attack.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which.
    pub attack: Attack,
    /// Without it, in turns before each of its own.
    pub undisturbed: Look,
    /// Beside it.
    pub disturbed: Look,
    /// What came of it, honest ones' requests among it.
    pub came: Counts,
}

impl Look {
    pub(super) fn add(&mut self, other: Self) {
        self.snapshots.extend(other.snapshots);
        self.pushes.extend(other.pushes);
        self.asked += other.asked;
        self.answered += other.answered;
        self.slowest = self.slowest.max(other.slowest);
    }

    /// The longest time to a snapshot.
    pub fn snapshot(&self) -> Duration {
        self.snapshots.iter().copied().max().unwrap_or_default()
    }

    /// What N of a thousand pushes took no longer than.
    pub fn push(&self, per_mille: usize) -> Duration {
        let mut pushes = self.pushes.clone();
        pushes.sort_unstable();
        let at = (pushes.len() * per_mille / 1_000).min(pushes.len().saturating_sub(1));
        pushes.get(at).copied().unwrap_or_default()
    }
}

impl Counts {
    pub(super) fn add(&mut self, before: &Self, after: &Self) {
        self.connections += after.connections.saturating_sub(before.connections);
        self.requests += after.requests.saturating_sub(before.requests);
        self.refused += after.refused.saturating_sub(before.refused);
    }
}

impl Row {
    /// The heads of all columns.
    pub const HEAD: &str = "| attack | connections | requests | refused | snapshot (ms): undisturbed, beside it | push p50 (ms) | push p99 (ms) | \
                            p99 ratio | pushes | health answered | slowest (ms): undisturbed, beside it |\n\
                            | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

    pub(super) fn new(attack: Attack) -> Self {
        Self { attack, undisturbed: Look::default(), disturbed: Look::default(), came: Counts::default() }
    }

    /// How many times longer the slowest hundredth of pushes took beside the attack.
    pub fn ratio(&self) -> f64 {
        self.disturbed.push(990).as_secs_f64() / self.undisturbed.push(990).as_secs_f64()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attack, undisturbed, disturbed, came } = self;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "| {} | {} | {} | {} | {:.0}, {:.0} | {:.2}, {:.2} | {:.2}, {:.2} | {:.2} | {}, {} | {} of {} | {:.0}, {:.0} |",
            attack.words(),
            came.connections,
            came.requests,
            came.refused,
            ms(undisturbed.snapshot()),
            ms(disturbed.snapshot()),
            ms(undisturbed.push(500)),
            ms(disturbed.push(500)),
            ms(undisturbed.push(990)),
            ms(disturbed.push(990)),
            self.ratio(),
            undisturbed.pushes.len(),
            disturbed.pushes.len(),
            disturbed.answered,
            disturbed.asked,
            ms(undisturbed.slowest),
            ms(disturbed.slowest),
        )
    }
}
