//! What the kernel knows of its senders at every segment, in and out: all states, every congestion control.
//!
//! Two programs at the root of the version 2 cgroups, gone with this process, however that ends. They see the segments of
//! all senders on one port; see `bpf/sender.bpf.c`.

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, RingBufferBuilder};
use nix::time::{ClockId, clock_gettime};

use super::record::{CongestionState, FlowId, Limit, Record, Row, Source};
use crate::lab::namespace;
use crate::lab::path::nanoseconds;

static PROGRAMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sender.bpf.o"));

/// Socket states in which a sender may have data outstanding (`include/net/tcp_states.h`): established, both waits for the
/// other's FIN, close-wait, last-ack, closing. A listening socket that answers SYNs has no window.
const SENDING: [u8; 6] = [1, 4, 5, 8, 9, 11];
/// `AF_INET`.
const FAMILY_V4: u8 = 2;

/// The running observation; [`SegmentTruth::finish`] ends it.
#[derive(Debug)]
pub struct SegmentTruth {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<u64>>>,
}

impl SegmentTruth {
    /// Starts observing senders on `port`; rows go to `record`. Fails where the kernel lacks version 2 cgroups, type
    /// information, or the right to load programs.
    pub fn start(record: Record, port: u16) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let (ready, started) = std::sync::mpsc::sync_channel::<Result<()>>(1);
        let thread = thread::Builder::new().name("segments".to_owned()).spawn(move || {
            // Loaded here, since the library's handles stay on one thread.
            let attached = Attached::attach(port);
            let (attached, outcome) = match attached {
                Ok(attached) => (Some(attached), Ok(())),
                Err(error) => (None, Err(error)),
            };
            ready.send(outcome).context("nobody waits for the observation")?;
            attached.map_or(Ok(0), |attached| attached.read(&record, &stopped))
        })?;
        started.recv().context("the observation's thread ended before it began")??;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it; returns how many segments found no room (zero, or the truth has holes).
    pub fn finish(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the observation has ended already")?;
        thread.join().map_err(|_| anyhow!("the observation's thread panicked"))?
    }
}

impl Drop for SegmentTruth {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

struct Attached {
    object: Object,
    _links: Vec<Link>,
    /// What to add to a stamp of the kernel's monotonic clock to get the time of day.
    day_ahead_ns: u64,
}

impl Attached {
    fn attach(port: u16) -> Result<Self> {
        let root = namespace::root()?;
        let mut open = ObjectBuilder::default().name("spand_lab")?.open_memory(PROGRAMS)?;
        let mut constants = open
            .maps_mut()
            .find(|map| map.name().to_string_lossy().ends_with(".rodata"))
            .context("the lab's programs lack their constants")?;
        let value = constants.initial_value_mut().context("the lab's programs lack their port")?;
        value.get_mut(..2).context("the lab's programs lack their port")?.copy_from_slice(&port.to_ne_bytes());
        let object = open.load().context("the kernel refused the lab's programs (per-segment truth)")?;
        let directory = std::fs::File::open(&root).with_context(|| format!("cannot open {}", root.display()))?;
        let links = object
            .progs_mut()
            .map(|program| program.attach_cgroup(directory.as_raw_fd()))
            .collect::<Result<Vec<_>, _>>()
            .with_context(|| format!("cannot attach the lab's programs to {}", root.display()))?;
        let now = |clock| clock_gettime(clock).map(nanoseconds).context("cannot read a clock");
        let day_ahead_ns = now(ClockId::CLOCK_REALTIME)?.saturating_sub(now(ClockId::CLOCK_MONOTONIC)?);
        Ok(Self { object, _links: links, day_ahead_ns })
    }

    fn read(self, record: &Record, stop: &AtomicBool) -> Result<u64> {
        let map = |name: &str| {
            let found = self.object.maps().find(|map| map.name().to_string_lossy() == name);
            found.with_context(|| format!("the lab's programs lack the map {name}"))
        };
        let (events, lost) = (map("events")?, map("lost")?);
        let mut builder = RingBufferBuilder::new();
        builder.add(&events, |bytes| {
            if let Some(row) = Event::from_bytes(bytes).and_then(|event| event.row(self.day_ahead_ns)) {
                record.add(row);
            }
            0
        })?;
        let ring = builder.build()?;
        while !stop.load(Ordering::Relaxed) {
            // Not woken by each event: that would cost more than the event.
            thread::sleep(Duration::from_millis(5));
            ring.consume()?;
        }
        ring.consume()?;
        let count = lost.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?.context("the counter of lost events is gone")?;
        Ok(count.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)))
    }
}

/// `struct event` of `bpf/sender.bpf.c`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Event {
    time_ns: u64,
    pacing_rate: u64,
    bytes_acked: u64,
    cwnd: u32,
    ssthresh: u32,
    srtt_eighth_us: u32,
    packets_out: u32,
    sacked_out: u32,
    lost_out: u32,
    retrans_out: u32,
    total_retrans: u32,
    app_limited: u32,
    delivered: u32,
    snd_wnd: u32,
    snd_nxt: u32,
    snd_una: u32,
    write_seq: u32,
    mss: u32,
    data_segs_out: u32,
    local_port: u16,
    remote_port_be: u16,
    family: u8,
    ca_state: u8,
    state: u8,
    outwards: u8,
    chrono_type: u8,
    cwnd_limited: u8,
    unused: [u8; 6],
    local: [u8; 16],
    remote: [u8; 16],
}

impl Event {
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != size_of::<Self>() {
            return None;
        }
        let mut event = MaybeUninit::<Self>::uninit();
        // SAFETY: the lengths are equal, the regions do not overlap, and every pattern of bits is a valid event.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), event.as_mut_ptr().cast(), size_of::<Self>());
            Some(event.assume_init())
        }
    }

    fn row(&self, day_ahead_ns: u64) -> Option<Row> {
        if self.mss == 0 || !SENDING.contains(&self.state) {
            return None;
        }
        let end = |address: &[u8; 16], port| Some(SocketAddr::new(ip(self.family, address)?, port));
        let flow = FlowId {
            local: end(&self.local, self.local_port)?,
            remote: end(&self.remote, u16::from_be(self.remote_port_be))?,
        };
        let source = if self.outwards == 1 { Source::SegmentOut } else { Source::SegmentIn };
        Some(Row {
            ca_state: CongestionState::from_kernel(self.ca_state),
            cwnd: Some(self.cwnd),
            ssthresh: Some(self.ssthresh),
            mss: Some(self.mss),
            unacked: Some(self.packets_out),
            sacked: Some(self.sacked_out),
            lost: Some(self.lost_out),
            retrans: Some(self.retrans_out),
            total_retrans: Some(self.total_retrans),
            srtt_us: (self.srtt_eighth_us > 0).then_some(self.srtt_eighth_us >> 3),
            snd_wnd: Some(self.snd_wnd),
            notsent_bytes: Some(self.write_seq.wrapping_sub(self.snd_nxt)),
            bytes_acked: Some(self.bytes_acked),
            data_segs_out: Some(self.data_segs_out),
            delivered: Some(self.delivered),
            app_limited: Some(self.app_limited != 0),
            limit: Limit::from_kernel(self.chrono_type),
            cwnd_limited: Some(self.cwnd_limited != 0),
            pacing_rate: Some(self.pacing_rate),
            snd_nxt: Some(self.snd_nxt),
            snd_una: Some(self.snd_una),
            ..Row::new(self.time_ns.saturating_add(day_ahead_ns), source, flow)
        })
    }
}

fn ip(family: u8, address: &[u8; 16]) -> Option<IpAddr> {
    if family == FAMILY_V4 {
        return address.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes));
    }
    // An IPv6 socket may talk to an IPv4 address.
    Some(IpAddr::from(*address).to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_size_of_the_programs() {
        // Its fields end on eight bytes, so that neither compiler pads.
        assert_eq!(size_of::<Event>(), 3 * 8 + 16 * 4 + 2 * 2 + 12 + 32);
    }

    #[test]
    fn what_is_no_event_is_none() {
        assert!(Event::from_bytes(&[0; 3]).is_none());
        // A closed socket.
        assert!(Event::from_bytes(&[0; size_of::<Event>()]).unwrap().row(0).is_none());
    }
}
