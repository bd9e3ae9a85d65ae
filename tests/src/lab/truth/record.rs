//! One line of truth, and the bounded list of them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

/// Rows kept in one run; beyond, rows are counted and dropped.
const ROWS_LIMIT: usize = 2_000_000;

/// A sender's connection.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FlowId {
    /// The sender's end.
    pub local: SocketAddr,
    /// The receiver's end.
    pub remote: SocketAddr,
}

/// Which of the kernel's interfaces reported it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// `getsockopt(TCP_INFO)`, polled; a row only where something but a clock changed.
    Info,
    /// Tracepoint `tcp:tcp_probe`: the values *before* the segment is processed.
    Probe,
    /// Tracepoint `tcp:tcp_cong_state_set`: the state being entered.
    CongestionState,
    /// A segment for the socket, in any state of it: the values *before* it is processed.
    SegmentIn,
    /// A segment of the socket: the values before it counts as sent.
    SegmentOut,
}

impl Source {
    /// Whether it gives the window, the congestion state and what is outstanding together.
    pub const fn is_full(self) -> bool {
        matches!(self, Self::Info | Self::SegmentIn | Self::SegmentOut)
    }
}

/// What the kernel's clocks count at the moment (`enum tcp_chrono`, include/linux/tcp.h).
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Nothing outstanding.
    Idle,
    /// Data outstanding, and neither of the next two.
    Busy,
    /// The receiver's window holds it back.
    Receiver,
    /// The send buffer does.
    SendBuffer,
}

impl Limit {
    /// From the kernel's number; `None` where it has no such clock.
    pub fn from_kernel(number: u8) -> Option<Self> {
        [Self::Idle, Self::Busy, Self::Receiver, Self::SendBuffer].get(usize::from(number)).copied()
    }
}

/// The kernel's `enum tcp_ca_state` (include/uapi/linux/tcp.h), in its order.
#[derive(Clone, Copy, Debug, Deserialize, Eq, IntoStaticStr, PartialEq, Serialize, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum CongestionState {
    /// Nothing unusual.
    Open,
    /// Duplicate ACKs or SACKs, no loss declared yet.
    Disorder,
    /// Window reduced after a mark or local congestion.
    #[serde(rename = "cwr")]
    #[strum(serialize = "cwr")]
    Reduced,
    /// Fast recovery.
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

impl CongestionState {
    /// From the kernel's number; `None` where it has no such state.
    pub fn from_kernel(number: u8) -> Option<Self> {
        Self::VARIANTS.get(usize::from(number)).copied()
    }

    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One observation. What a source does not give is empty.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// Nanoseconds since 1970, the clock of capture files.
    pub time_ns: u64,
    /// Which interface reported it.
    pub source: Source,
    /// The sender's end.
    pub local: SocketAddr,
    /// The receiver's end.
    pub remote: SocketAddr,
    /// The socket's cookie, unique in a run of the machine; not given by `CongestionState`.
    pub cookie: Option<u64>,
    /// Congestion state.
    pub ca_state: Option<CongestionState>,
    /// Congestion window in segments.
    pub cwnd: Option<u32>,
    /// Slow-start threshold in segments; by `Probe` it is the *current* one, max(ssthresh, 3/4 cwnd) in `Open`.
    pub ssthresh: Option<u32>,
    /// Segment size in use, options not counted.
    pub mss: Option<u32>,
    /// Segments sent and not cumulatively acknowledged.
    pub unacked: Option<u32>,
    /// Segments of those that are selectively acknowledged.
    pub sacked: Option<u32>,
    /// Segments of those deemed lost.
    pub lost: Option<u32>,
    /// Retransmitted segments in flight.
    pub retrans: Option<u32>,
    /// Retransmissions ever.
    pub total_retrans: Option<u32>,
    /// Smoothed round trip in microseconds.
    pub srtt_us: Option<u32>,
    /// Smallest round trip in microseconds.
    pub min_rtt_us: Option<u32>,
    /// The receiver's window in bytes.
    pub snd_wnd: Option<u32>,
    /// Bytes in the socket that were never sent.
    pub notsent_bytes: Option<u32>,
    /// Bytes acknowledged ever.
    pub bytes_acked: Option<u64>,
    /// Data segments sent ever, retransmissions included.
    pub data_segs_out: Option<u32>,
    /// Segments delivered ever.
    pub delivered: Option<u32>,
    /// The last delivery-rate sample was limited by the application.
    pub app_limited: Option<bool>,
    /// Microseconds with data outstanding.
    pub busy_us: Option<u64>,
    /// Microseconds of those limited by the receiver's window.
    pub rwnd_limited_us: Option<u64>,
    /// Microseconds of those limited by the send buffer.
    pub sndbuf_limited_us: Option<u64>,
    /// The clock that runs.
    pub limit: Option<Limit>,
    /// The window was found full when the kernel last looked (`tcp_cwnd_validate`).
    pub cwnd_limited: Option<bool>,
    /// Last delivery-rate sample in bytes per second.
    pub delivery_rate: Option<u64>,
    /// Pacing rate in bytes per second.
    pub pacing_rate: Option<u64>,
    /// Next sequence number to send.
    pub snd_nxt: Option<u32>,
    /// First sequence number not acknowledged.
    pub snd_una: Option<u32>,
}

impl Row {
    /// A row that says nothing yet.
    pub fn new(time_ns: u64, source: Source, flow: FlowId) -> Self {
        Self {
            time_ns,
            source,
            local: flow.local,
            remote: flow.remote,
            cookie: None,
            ca_state: None,
            cwnd: None,
            ssthresh: None,
            mss: None,
            unacked: None,
            sacked: None,
            lost: None,
            retrans: None,
            total_retrans: None,
            srtt_us: None,
            min_rtt_us: None,
            snd_wnd: None,
            notsent_bytes: None,
            bytes_acked: None,
            data_segs_out: None,
            delivered: None,
            app_limited: None,
            busy_us: None,
            rwnd_limited_us: None,
            sndbuf_limited_us: None,
            limit: None,
            cwnd_limited: None,
            delivery_rate: None,
            pacing_rate: None,
            snd_nxt: None,
            snd_una: None,
        }
    }

    /// The connection it is about.
    pub fn flow(&self) -> FlowId {
        FlowId { local: self.local, remote: self.remote }
    }

    /// Segments believed to be in the network (the kernel's `tcp_packets_in_flight`).
    pub fn in_flight(&self) -> Option<u32> {
        let left_out = self.sacked?.saturating_add(self.lost?);
        Some(self.unacked?.saturating_sub(left_out).saturating_add(self.retrans?))
    }
}

/// Rows shared between those who observe and those who read.
#[derive(Clone, Debug, Default)]
pub struct Record {
    rows: Arc<Mutex<Rows>>,
    /// Which rows are kept; `None`: all.
    wanted: Option<fn(&Row) -> bool>,
}

#[derive(Debug, Default)]
struct Rows {
    kept: Vec<Row>,
    dropped: u64,
}

impl Record {
    /// One that keeps only the rows that are `wanted`: for runs that are too long to keep all.
    pub fn only(wanted: fn(&Row) -> bool) -> Self {
        Self { wanted: Some(wanted), ..Self::default() }
    }

    /// Adds a row.
    pub fn add(&self, row: Row) {
        if self.wanted.is_some_and(|wanted| !wanted(&row)) {
            return;
        }
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if rows.kept.len() < ROWS_LIMIT {
            rows.kept.push(row);
        } else {
            rows.dropped += 1;
        }
    }

    /// All rows so far, by time.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).kept.clone();
        rows.sort_by_key(|row| row.time_ns);
        rows
    }

    /// Rows that found no room: zero, or the truth has holes.
    pub fn dropped(&self) -> u64 {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).dropped
    }

    /// Writes all rows as CSV, by time; returns how many.
    pub fn write_csv(&self, file: &Path) -> Result<usize> {
        let rows = self.rows();
        let mut csv = csv::Writer::from_path(file).with_context(|| format!("cannot write {}", file.display()))?;
        for row in &rows {
            csv.serialize(row)?;
        }
        csv.flush().with_context(|| format!("cannot write {}", file.display()))?;
        Ok(rows.len())
    }
}

/// Reads what [`Record::write_csv`] wrote.
pub fn read_csv(file: &Path) -> Result<Vec<Row>> {
    let mut csv = csv::Reader::from_path(file).with_context(|| format!("cannot read {}", file.display()))?;
    csv.deserialize().collect::<Result<_, _>>().with_context(|| format!("{} is no record of truth", file.display()))
}
