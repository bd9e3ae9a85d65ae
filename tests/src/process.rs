//! What a process uses: for benchmarks that tell it.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::{ClockId, clock_gettime};

/// What a process holds in memory: by its number, or `self`.
///
/// # Errors
/// Where `/proc` does not say.
pub fn resident_bytes(process: &str) -> anyhow::Result<u64> {
    const PAGE_BYTES: u64 = 4_096;
    let path = format!("/proc/{process}/statm");
    let statm = fs::read_to_string(&path).with_context(|| format!("{path} cannot be read"))?;
    let pages = statm.split(' ').nth(1).with_context(|| format!("{path} has no second number"))?;
    Ok(pages.parse::<u64>()? * PAGE_BYTES)
}

/// Processor time of this thread.
///
/// # Errors
/// Where the kernel does not say.
pub fn thread_time() -> anyhow::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?.into())
}

/// Processor time of a process's threads by name, those of one name together: of the process by its number, or `self`.
///
/// # Errors
/// Where `/proc` does not say.
pub fn threads_time(process: &str) -> anyhow::Result<BTreeMap<String, Duration>> {
    let mut times = BTreeMap::<String, Duration>::new();
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let folder = thread?.path();
        // One that ended meanwhile has no files.
        let read = |file| fs::read_to_string(folder.join(file)).ok();
        let Some((name, spent)) = read("comm").zip(read("schedstat")) else { continue };
        let nanos: u64 = spent.split(' ').next().context("no time in schedstat")?.parse()?;
        *times.entry(name.trim_end().to_owned()).or_default() += Duration::from_nanos(nanos);
    }
    Ok(times)
}

/// Processor time of all children that were waited for, and the most memory that one of them held.
///
/// # Errors
/// Where the kernel does not say.
pub fn children() -> anyhow::Result<(Duration, u64)> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = duration(usage.user_time())? + duration(usage.system_time())?;
    Ok((time, u64::try_from(usage.max_rss())? * 1_024))
}

fn duration(time: TimeVal) -> anyhow::Result<Duration> {
    Ok(Duration::from_secs(u64::try_from(time.tv_sec())?) + Duration::from_micros(u64::try_from(time.tv_usec())?))
}
