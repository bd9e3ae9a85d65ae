//! Servers that die, stop or stand still under traffic.

use std::time::Duration;

use anyhow::Result;

use super::standing::{Silence, Standing, seconds};
use super::{Programs, Row, Size};
use crate::cluster::traffic::by_connection;

/// How a leader of the stream goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    Killed,
    Stopped,
    Paused,
}

impl Fault {
    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped",
            Self::Paused => "paused",
        }
    }

    const fn most(self) -> Duration {
        Duration::from_secs(match self {
            Self::Killed => 10,
            Self::Stopped => 2,
            Self::Paused => 5,
        })
    }
}

/// Runs it.
///
/// # Errors
/// Where a gateway or a server fails otherwise.
pub fn run(programs: &Programs, size: Size) -> Result<Vec<Row>> {
    let faults: &[(Fault, usize)] = match size {
        Size::Full => &[(Fault::Killed, 10), (Fault::Stopped, 3), (Fault::Paused, 3)],
        Size::Quick => &[(Fault::Killed, 1)],
    };
    let Some(mut standing) = Standing::start(programs, size, "[log]\nfilter = \"warn\"\n", by_connection)? else {
        return Ok(Vec::new());
    };
    let before = standing.watch("without a fault", Duration::from_secs(11))?;
    let mut rows = vec![Row::stated(
        "without a fault: longest time without a cell of another gateway; a closed cell after its bucket's end",
        format!("{:.1} s; {:.1} s", before.longest.as_secs_f64(), before.closed_lag.as_secs_f64()),
    )];
    for (fault, times) in faults {
        let mut all = Vec::new();
        for time in 1..=*times {
            all.push(once(&mut standing, *fault, &format!("leader {}, {time} of {times}", fault.name()))?);
        }
        rows.push(gap_row(size, *fault, &all, before.closed_lag));
    }
    let (withdrawn, ended) = standing.lost();
    rows.push(Row::judged(
        "withdrawals to hosts; streams to hosts that ended",
        "0; 0",
        format!("{withdrawn}; {ended}"),
        withdrawn + ended == 0,
    ));
    standing.end_traffic()?;
    standing.look_at_all()?;
    rows.push(match standing.agree(Duration::from_secs(15))? {
        Ok((after, networks)) => Row::judged(
            "closed cells missing afterwards: all gateways know the same to the last bit",
            "0",
            format!("{networks} networks equal, {:.1} s after the last bucket", after.as_secs_f64()),
            true,
        ),
        Err(differ) => Row::judged("closed cells missing afterwards", "0", differ, false),
    });
    Ok(rows)
}

/// The leader goes, and comes back.
fn once(standing: &mut Standing, fault: Fault, what: &str) -> Result<Silence> {
    let leader = standing.site.leader()?;
    let name = leader.name.clone();
    match fault {
        Fault::Killed => leader.kill()?,
        Fault::Stopped => leader.stop()?,
        Fault::Paused => leader.pause()?,
    }
    let silence = standing.watch(what, Duration::from_secs(22))?;
    match fault {
        Fault::Paused => standing.site.server(&name)?.resume()?,
        Fault::Killed | Fault::Stopped => standing.site.start_server(&name)?,
    }
    // It catches up before the next one goes.
    standing.watch(&format!("{what}: back"), Duration::from_secs(12))?;
    Ok(silence)
}

/// A gap is how much longer than without a fault closed cells were under way, or the longest time without any cell.
fn gap_row(size: Size, fault: Fault, all: &[Silence], lag_before: Duration) -> Row {
    let gaps: Vec<Duration> =
        all.iter().map(|one| one.longest.max(one.closed_lag.saturating_sub(lag_before))).collect();
    let in_time = gaps.iter().filter(|gap| **gap <= fault.most()).count();
    let worst = gaps.iter().max().copied().unwrap_or_default();
    let of = |part: fn(&Silence) -> Duration| seconds(&all.iter().map(part).collect::<Vec<_>>());
    let figure = format!(
        "{in_time} of {} within {} s, worst {:.1} s ({}); without any cell of another gateway {}; closed cells after their buckets' ends {}",
        gaps.len(),
        fault.most().as_secs(),
        worst.as_secs_f64(),
        seconds(&gaps),
        of(|one| one.longest),
        of(|one| one.closed_lag)
    );
    let target = match fault {
        Fault::Killed => "9 of 10 gaps <= 10 s",
        Fault::Stopped => "gap <= 2 s",
        Fault::Paused => "gap <= 5 s",
    };
    let needed = if fault == Fault::Killed { gaps.len() - gaps.len() / 10 } else { gaps.len() };
    Row::timed(size, format!("stream leader {}", fault.name()), target, figure, in_time >= needed)
}
