//! `TCP_INFO` of the watched sockets, at intervals.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::time::{ClockId, clock_gettime};

use super::record::{CongestionState, FlowId, Record, Row, Source};
use crate::lab::path::real_time_priority;

/// Sockets watched at a time.
const WATCH_LIMIT: usize = 256;
/// Time between two looks where nobody says otherwise.
const PERIOD: Duration = Duration::from_millis(1);

/// `struct tcp_info` of include/uapi/linux/tcp.h up to `tcpi_rcv_wnd` (Linux 6.2); an older kernel fills less of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct TcpInfo {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    window_scales: u8,
    app_limited_and_fastopen: u8,
    rto: u32,
    ato: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt: u32,
    rttvar: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: u32,
    delivered_ce: u32,
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
    rcv_wnd: u32,
    rehash: u32,
}

impl TcpInfo {
    /// The same without what changes by itself while nothing happens.
    fn without_clocks(self) -> Self {
        Self {
            last_data_sent: 0,
            last_ack_sent: 0,
            last_data_recv: 0,
            last_ack_recv: 0,
            busy_time: 0,
            rwnd_limited: 0,
            sndbuf_limited: 0,
            ..self
        }
    }

    fn row(&self, time_ns: u64, flow: FlowId, cookie: Option<u64>) -> Row {
        Row {
            cookie,
            ca_state: CongestionState::from_kernel(self.ca_state),
            cwnd: Some(self.snd_cwnd),
            ssthresh: Some(self.snd_ssthresh),
            mss: Some(self.snd_mss),
            unacked: Some(self.unacked),
            sacked: Some(self.sacked),
            lost: Some(self.lost),
            retrans: Some(self.retrans),
            total_retrans: Some(self.total_retrans),
            srtt_us: (self.rtt > 0).then_some(self.rtt),
            min_rtt_us: (self.min_rtt < u32::MAX).then_some(self.min_rtt),
            snd_wnd: Some(self.snd_wnd),
            notsent_bytes: Some(self.notsent_bytes),
            bytes_acked: Some(self.bytes_acked),
            data_segs_out: Some(self.data_segs_out),
            delivered: Some(self.delivered),
            app_limited: Some(self.app_limited_and_fastopen & 1 == 1),
            busy_us: Some(self.busy_time),
            rwnd_limited_us: Some(self.rwnd_limited),
            sndbuf_limited_us: Some(self.sndbuf_limited),
            delivery_rate: Some(self.delivery_rate),
            pacing_rate: Some(self.pacing_rate),
            ..Row::new(time_ns, Source::Info, flow)
        }
    }
}

fn tcp_info(socket: BorrowedFd<'_>) -> Option<TcpInfo> {
    let mut info = TcpInfo::default();
    let mut length = libc::socklen_t::try_from(size_of::<TcpInfo>()).ok()?;
    // SAFETY: the kernel writes at most `length` bytes into `info`, plain integers for which every pattern is valid.
    let answer = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut length)
    };
    (answer == 0).then_some(info)
}

fn cookie(socket: BorrowedFd<'_>) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut length = libc::socklen_t::try_from(size_of::<u64>()).ok()?;
    // SAFETY: the kernel writes at most eight bytes into a u64.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut length,
        )
    };
    (answer == 0).then_some(cookie)
}

#[derive(Debug)]
struct Watched {
    key: u64,
    socket: OwnedFd,
    flow: FlowId,
    cookie: Option<u64>,
    last: Option<TcpInfo>,
}

impl Watched {
    fn look(&mut self, record: &Record) {
        let Some(info) = tcp_info(self.socket.as_fd()) else { return };
        let seen = info.without_clocks();
        if self.last == Some(seen) {
            return;
        }
        self.last = Some(seen);
        record.add(info.row(wall_clock_ns(), self.flow, self.cookie));
    }
}

#[derive(Debug, Default)]
struct List {
    next_key: u64,
    sockets: Vec<Watched>,
}

/// The thread that looks; it stops when this is dropped.
#[derive(Debug)]
pub struct Poller {
    list: Arc<Mutex<List>>,
    record: Record,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Keeps a socket watched while it lives.
#[derive(Debug)]
pub struct Watch {
    key: u64,
    list: Arc<Mutex<List>>,
    record: Record,
}

impl Poller {
    /// Starts looking; rows go to `record`.
    pub fn start(record: Record) -> Result<Self> {
        Self::start_every(PERIOD, record)
    }

    /// The same with a time between looks of one's own: long where [`super::SegmentTruth`] sees every segment.
    pub fn start_every(period: Duration, record: Record) -> Result<Self> {
        let list = Arc::new(Mutex::new(List::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = thread::Builder::new()
            .name("truth".to_owned())
            .spawn({
                let (list, stop, record) = (Arc::clone(&list), Arc::clone(&stop), record.clone());
                move || {
                    real_time_priority(5);
                    while !stop.load(Ordering::Relaxed) {
                        for watched in &mut list.lock().unwrap_or_else(PoisonError::into_inner).sockets {
                            watched.look(&record);
                        }
                        thread::sleep(period);
                    }
                }
            })
            .context("cannot start the thread that reads TCP_INFO")?;
        Ok(Self { list, record, stop, thread: Some(thread) })
    }

    /// Watches a connected socket until the answer is dropped.
    pub fn watch(&self, socket: BorrowedFd<'_>, flow: FlowId) -> Result<Watch> {
        let socket = socket.try_clone_to_owned().context("cannot watch a socket")?;
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(list.sockets.len() < WATCH_LIMIT, "more than {WATCH_LIMIT} sockets are being watched");
        let key = list.next_key;
        list.next_key += 1;
        let mut watched = Watched { key, cookie: cookie(socket.as_fd()), socket, flow, last: None };
        watched.look(&self.record);
        list.sockets.push(watched);
        drop(list);
        Ok(Watch { key, list: Arc::clone(&self.list), record: self.record.clone() })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = list.sockets.iter().position(|watched| watched.key == self.key) {
            list.sockets.swap_remove(at).look(&self.record);
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn wall_clock_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, crate::lab::path::nanoseconds)
}
