//! The tracepoints `tcp_probe` and `tcp_cong_state_set`, read from an own tracing instance.
//!
//! tracefs, where it is not mounted, is mounted in a mount namespace of the reading thread only; the instance is removed at the end, and those of
//! dead runs at the next start.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::time::{ClockId, clock_gettime};

use super::record::{CongestionState, FlowId, Record, Row, Source};
use crate::lab::path::nanoseconds;

const TRACEFS: &str = "/sys/kernel/tracing";
const INSTANCE_PREFIX: &str = "spand-lab-";
/// Per CPU; at 100 Mbit/s a second of ACKs takes about two megabytes.
const BUFFER_KB: &str = "16384";

/// A running trace; [`Trace::finish`] ends it.
#[derive(Debug)]
pub struct Trace {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl Trace {
    /// Starts tracing senders on `port`; rows go to `record`. Fails where the kernel has no tracefs or tracepoints.
    pub fn start(record: Record, port: u16) -> Result<Self> {
        Self::start_events(record, port, &["tcp_probe", "tcp_cong_state_set"])
    }

    /// The same with changes of the congestion state only: the windows come from [`super::SegmentTruth`].
    pub fn start_states(record: Record, port: u16) -> Result<Self> {
        Self::start_events(record, port, &["tcp_cong_state_set"])
    }

    fn start_events(record: Record, port: u16, events: &'static [&'static str]) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = std::sync::mpsc::sync_channel::<Result<()>>(1);
        let stopped = Arc::clone(&stop);
        let thread =
            thread::Builder::new().name("trace".to_owned()).spawn(move || match Instance::create(port, events) {
                Ok(instance) => {
                    // The other side waits for exactly one word; if it is gone there is nobody to read the trace either.
                    ready.send(Ok(())).context("nobody waits for the trace")?;
                    drop(ready);
                    instance.read(&record, &stopped)
                }
                Err(error) => {
                    let text = format!("{error:#}");
                    ready.send(Err(error)).context("nobody waits for the trace")?;
                    Err(anyhow!(text))
                }
            })?;
        started.recv().context("the trace's thread ended before it began")??;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the trace; returns how many events the kernel's buffer lost (zero, or the truth has holes).
    pub fn finish(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the trace has ended already")?;
        thread.join().map_err(|_| anyhow!("the trace's thread panicked"))?
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Whether this kernel has the tracepoint of [`Trace::start_states`]; 5.10 has not.
pub fn has_states() -> Result<bool> {
    let symbols = fs::read_to_string("/proc/kallsyms").context("cannot read /proc/kallsyms")?;
    Ok(symbols.lines().any(|line| line.ends_with(" trace_event_raw_event_tcp_cong_state_set")))
}

/// The congestion states entered, as far as `rows` of segments (by time) show them, in place of [`Trace::start_states`]: a second timeout in
/// a row is not to be seen in them.
pub fn entered(rows: &[Row]) -> Vec<Row> {
    let mut last: BTreeMap<FlowId, &Row> = BTreeMap::new();
    let mut entered = Vec::new();
    for row in rows.iter().filter(|row| matches!(row.source, Source::SegmentIn | Source::SegmentOut)) {
        let before = last.insert(row.flow(), row);
        if let Some(before) = before.filter(|before| before.ca_state != row.ca_state) {
            // What goes out shows the state at once; what comes in shows what the segment before led to.
            let time_ns = if row.source == Source::SegmentOut { row.time_ns } else { before.time_ns + 1_000 };
            entered.push(Row { ca_state: row.ca_state, ..Row::new(time_ns, Source::CongestionState, row.flow()) });
        }
    }
    entered
}

/// A directory under `instances/`, removed when this is dropped. Lives on one thread: its mount is that thread's.
struct Instance {
    directory: PathBuf,
    pipe: Option<File>,
    /// What to take from a `tai` stamp to get the time of day.
    tai_ahead_ns: u64,
}

impl Instance {
    fn create(port: u16, events: &[&str]) -> Result<Self> {
        if !Path::new(TRACEFS).join("instances").is_dir() {
            mount_tracefs()?;
        }
        remove_dead_instances();
        let name = format!("{INSTANCE_PREFIX}{}-{port}", std::process::id());
        let directory = Path::new(TRACEFS).join("instances").join(name);
        fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let mut instance = Self { directory, pipe: None, tai_ahead_ns: tai_ahead_ns()? };
        instance.set("trace_clock", "tai")?;
        instance.set("buffer_size_kb", BUFFER_KB)?;
        for event in events {
            instance.set(&format!("events/tcp/{event}/filter"), &format!("sport == {port}"))?;
            instance.set(&format!("events/tcp/{event}/enable"), "1")?;
        }
        let pipe = instance.directory.join("trace_pipe");
        instance.pipe = Some(
            File::options()
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&pipe)
                .with_context(|| format!("cannot open {}", pipe.display()))?,
        );
        Ok(instance)
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        let path = self.directory.join(file);
        fs::write(&path, value).with_context(|| format!("cannot set {} to {value}", path.display()))
    }

    fn read(mut self, record: &Record, stop: &AtomicBool) -> Result<u64> {
        let mut pipe = self.pipe.take().context("the trace is not open")?;
        let mut buffer = vec![0; 64 * 1024];
        let mut pending = Vec::new();
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => {}
                Ok(length) => {
                    pending.extend_from_slice(buffer.get(..length).unwrap_or_default());
                    self.take_lines(&mut pending, record);
                    continue;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error).context("cannot read the trace"),
            }
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut ready = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
            let wait = PollTimeout::try_from(Duration::from_millis(20)).unwrap_or(PollTimeout::ZERO);
            match poll(&mut ready, wait) {
                // Whether there is something, the next read tells.
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot wait for the trace"),
            }
        }
        self.lost_events()
    }

    fn take_lines(&self, pending: &mut Vec<u8>, record: &Record) {
        let Some(end) = pending.iter().rposition(|byte| *byte == b'\n') else { return };
        for line in pending.get(..end).unwrap_or_default().split(|byte| *byte == b'\n') {
            if let Some(row) = std::str::from_utf8(line).ok().and_then(|line| parse(line, self.tai_ahead_ns)) {
                record.add(row);
            }
        }
        pending.drain(..=end);
    }

    fn lost_events(&self) -> Result<u64> {
        let mut lost = 0;
        for cpu in fs::read_dir(self.directory.join("per_cpu"))? {
            let stats = fs::read_to_string(cpu?.path().join("stats"))?;
            for line in stats.lines() {
                if let Some(number) = line.strip_prefix("overrun: ").or_else(|| line.strip_prefix("dropped events: ")) {
                    lost += number.trim().parse::<u64>().unwrap_or(0);
                }
            }
        }
        Ok(lost)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.pipe = None;
        if let Err(error) = fs::remove_dir(&self.directory) {
            eprintln!("cannot remove {}: {error}; the next run will", self.directory.display());
        }
    }
}

/// Mounts tracefs for this thread only.
fn mount_tracefs() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("cannot make a mount namespace for tracefs")?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("cannot make mounts private")?;
    mount(Some("tracefs"), TRACEFS, Some("tracefs"), MsFlags::empty(), none)
        .context("cannot mount tracefs (no per-ACK truth on this kernel)")
}

fn remove_dead_instances() {
    let Ok(instances) = fs::read_dir(Path::new(TRACEFS).join("instances")) else { return };
    for instance in instances.flatten() {
        let name = instance.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(INSTANCE_PREFIX)?.split('-').next());
        if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // If it cannot be removed it is in use after all.
            drop(fs::remove_dir(instance.path()));
        }
    }
}

fn tai_ahead_ns() -> Result<u64> {
    let tai = nanoseconds(clock_gettime(ClockId::CLOCK_TAI).context("cannot read CLOCK_TAI")?);
    let day = nanoseconds(clock_gettime(ClockId::CLOCK_REALTIME).context("cannot read CLOCK_REALTIME")?);
    // The offset is a whole number of leap seconds; the two readings are microseconds apart.
    Ok(tai.saturating_sub(day).saturating_add(500_000_000) / 1_000_000_000 * 1_000_000_000)
}

/// Reads one line of `trace_pipe`; `None` where it is no event of ours.
fn parse(line: &str, tai_ahead_ns: u64) -> Option<Row> {
    let (head, rest) = line.split_once(": tcp_")?;
    let time_ns = seconds_to_ns(head.rsplit(' ').next()?)?.checked_sub(tai_ahead_ns)?;
    let (event, text) = rest.split_once(": ")?;
    let field = |name: &str| text.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    match event {
        "probe" => {
            let flow = FlowId { local: field("src")?.parse().ok()?, remote: field("dest")?.parse().ok()? };
            let number = |name| field(name)?.parse::<u32>().ok();
            let sequence = |name| u32::from_str_radix(field(name)?.strip_prefix("0x")?, 16).ok();
            Some(Row {
                cookie: field("sock_cookie").and_then(|hex| u64::from_str_radix(hex, 16).ok()),
                cwnd: number("snd_cwnd"),
                ssthresh: number("ssthresh"),
                snd_wnd: number("snd_wnd"),
                srtt_us: number("srtt"),
                snd_nxt: sequence("snd_nxt"),
                snd_una: sequence("snd_una"),
                ..Row::new(time_ns, Source::Probe, flow)
            })
        }
        "cong_state_set" => {
            let (from, to) = if field("family")? == "AF_INET" { ("saddr", "daddr") } else { ("saddrv6", "daddrv6") };
            let end = |address: &str, port: &str| {
                Some(SocketAddr::new(field(address)?.parse::<IpAddr>().ok()?, field(port)?.parse().ok()?))
            };
            let flow = FlowId { local: end(from, "sport")?, remote: end(to, "dport")? };
            let ca_state = field("cong_state")?.parse().ok().and_then(CongestionState::from_kernel);
            Some(Row { ca_state, ..Row::new(time_ns, Source::CongestionState, flow) })
        }
        _ => None,
    }
}

/// `1234.567890` as nanoseconds, without the rounding of floating point.
fn seconds_to_ns(text: &str) -> Option<u64> {
    let (seconds, micros) = text.split_once('.')?;
    let micros = (micros.len() == 6).then(|| micros.parse::<u64>().ok()).flatten()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(micros * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_line_becomes_a_row() {
        let line = "          <idle>-0       [001] ..s3.  1763717037.000123: tcp_probe: family=AF_INET \
                    src=192.0.2.2:8080 dest=198.51.100.11:40000 mark=0x0 data_len=0 snd_nxt=0xfffffff0 snd_una=0x10 \
                    snd_cwnd=17 ssthresh=2147483647 snd_wnd=65535 srtt=100400 rcv_wnd=64256 sock_cookie=1f \
                    skbaddr=00000000 skaddr=00000000";
        let row = parse(line, 37_000_000_000).unwrap();
        assert_eq!(row.time_ns, 1_763_717_000_000_123_000);
        assert_eq!(row.flow().remote, "198.51.100.11:40000".parse().unwrap());
        assert_eq!(
            (row.cwnd, row.srtt_us, row.snd_nxt, row.cookie),
            (Some(17), Some(100_400), Some(0xffff_fff0), Some(31))
        );
    }

    #[test]
    fn a_state_line_becomes_a_row() {
        let line = "  kworker/0:1-9  [000] b.s4.    12.000001: tcp_cong_state_set: family=AF_INET6 sport=8080 dport=5 \
                    saddr=127.0.0.6 daddr=127.0.0.6 saddrv6=2001:db8:ffff::2 daddrv6=2001:db8:1::b cong_state=3";
        let row = parse(line, 0).unwrap();
        assert_eq!(row.ca_state, Some(CongestionState::Recovery));
        assert_eq!(row.flow().local, "[2001:db8:ffff::2]:8080".parse().unwrap());
    }

    #[test]
    fn states_are_entered_where_segments_first_show_them() {
        use CongestionState::{Disorder, Open, Recovery};
        let flow = FlowId { local: "192.0.2.2:80".parse().unwrap(), remote: "198.51.100.11:5".parse().unwrap() };
        let row = |ms: u64, source, state| Row { ca_state: Some(state), ..Row::new(ms * 1_000_000, source, flow) };
        let rows = [
            row(1, Source::SegmentIn, Open),
            row(2, Source::SegmentIn, Disorder),
            row(3, Source::Info, Recovery),
            row(4, Source::SegmentOut, Recovery),
            row(9, Source::SegmentIn, Recovery),
        ];
        let entered: Vec<_> = entered(&rows).iter().map(|row| (row.time_ns / 1_000, row.ca_state)).collect();
        assert_eq!(entered, [(1_001, Some(Disorder)), (4_000, Some(Recovery))]);
    }

    #[test]
    fn other_lines_are_none() {
        for line in ["", "# tracer: nop", "CPU:0 [LOST 5 EVENTS]", "x: tcp_probe: src=1", "1.0: tcp_other: a=b"] {
            assert!(parse(line, 0).is_none(), "{line}");
        }
    }
}
