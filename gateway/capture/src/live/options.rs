//! How to capture from an interface.

use std::num::NonZeroU32;
use std::path::PathBuf;

use nix::poll::PollTimeout;
use spand_proto::units::{Bytes, Micros};
use strum::{Display, IntoStaticStr};

use super::LiveError;

/// What reads the interface.
#[derive(Clone, Copy, Debug, Display, Eq, Hash, IntoStaticStr, Ord, PartialEq, PartialOrd)]
#[strum(serialize_all = "snake_case")]
pub enum Backend {
    /// A ring of blocks that the Linux kernel fills and this process maps (packet(7), `TPACKET_V3`).
    AfPacket,
    /// libpcap: every system, every kind of interface.
    Libpcap,
    /// PF_RING, through its vendor's library. Never chosen by itself.
    PfRing,
}

impl Backend {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What PF_RING alone needs to know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PfRingOptions {
    /// The library; a bare name is looked for where the system's libraries lie.
    pub library: PathBuf,
    /// The cluster whose members share the packets; `None` takes all of them.
    pub cluster: Option<Cluster>,
}

impl Default for PfRingOptions {
    fn default() -> Self {
        Self { library: PathBuf::from("libpfring.so"), cluster: None }
    }
}

/// A cluster of PF_RING: programs that share a device's packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cluster {
    /// Its number.
    pub id: u16,
    /// How packets are shared out.
    pub kind: ClusterKind,
}

/// How a cluster's packets are shared out: both directions of a connection to the same member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClusterKind {
    /// By both addresses.
    TwoTuple,
    /// By addresses, ports and protocol.
    FiveTuple,
}

/// How to capture from an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LiveOptions {
    /// The interface's name. With libpcap `any` is all of them, never promiscuous, as Linux cooked packets. PF_RING takes
    /// its own names too: `zc:eth1`, `pcap:eth1`, `pcap:FILE`.
    pub interface: String,
    /// What reads it; `None` is the packet ring where it knows the interface's kind (Linux; Ethernet, loopback, raw IP),
    /// and libpcap elsewhere.
    pub backend: Option<Backend>,
    /// A filter in the language of pcap-filter(7), applied in the kernel; `None` takes everything.
    ///
    /// With libpcap, `inbound` and `outbound` lose the first block: it repeats the filter on what may be older than it,
    /// and cannot distinguish directions there.
    pub filter: Option<String>,
    /// Bytes captured of each packet: the headers are enough.
    pub snap_len: NonZeroU32,
    /// The kernel's buffer, which bridges the moments in which nobody reads. Below 2 GiB.
    pub buffer: Bytes,
    /// The pieces in which the packet ring changes hands: a power of two from 4 KiB to 16 MiB, made larger where a packet
    /// of `snap_len` would not fit. A piece is handed over when it is full or its time is over, so with little traffic the
    /// number of pieces is what bridges a moment in which nobody reads. libpcap chooses its own.
    pub block: Bytes,
    /// Hands packets over at once, with less delay and more work: the packet ring after a millisecond (the least the
    /// kernel's timer takes; before Linux 6.18 a tick or two), libpcap one by one.
    pub immediate: bool,
    /// Takes packets that are not addressed to this host, as a mirror port needs.
    pub promiscuous: bool,
    /// How long packets may gather in a block that is not full, and how long a call may find nothing. Whole
    /// milliseconds, at least one, at most a minute.
    pub read_timeout: Micros,
    /// Shares the interface's packets out among all captures of one number in this network namespace, every packet of a
    /// connection to the same (packet(7), `PACKET_FANOUT_HASH`); only the packet ring can. `None`: all of them come here.
    pub group: Option<u16>,
    /// What PF_RING alone needs to know.
    pub pf_ring: PfRingOptions,
}

impl LiveOptions {
    /// Promiscuous capture of 256 bytes per packet (tunnel headers and full TCP options included) without a filter,
    /// in blocks of at most 10 ms, through a buffer of 64 MiB in pieces of 128 KiB.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            backend: None,
            filter: None,
            snap_len: const { NonZeroU32::new(256).expect("not zero") },
            buffer: Bytes(64 << 20),
            block: Bytes(128 << 10),
            immediate: false,
            promiscuous: true,
            read_timeout: Micros::from_millis(10),
            group: None,
            pf_ring: PfRingOptions::default(),
        }
    }

    /// The options as numbers of the width that backends take.
    pub(super) fn checked(&self) -> Result<Checked, LiveError> {
        let snap_len = i32::try_from(self.snap_len.get())
            .map_err(|_| self.bad("snap_len", format!("{} bytes", self.snap_len), "at most 2 GiB"))?;
        let buffer =
            i32::try_from(self.buffer.0).map_err(|_| self.bad("buffer", self.buffer.to_string(), "below 2 GiB"))?;
        let timeout_ms = u16::try_from(self.read_timeout.0 / 1_000)
            .ok()
            .filter(|&ms| (1..=60_000).contains(&ms))
            .ok_or_else(|| self.bad("read_timeout", self.read_timeout.to_string(), "1 ms to 60 s"))?;
        if !self.block.0.is_power_of_two() || !(4 << 10..=16 << 20).contains(&self.block.0) {
            return Err(self.bad("block", self.block.to_string(), "a power of two from 4 KiB to 16 MiB"));
        }
        Ok(Checked { snap_len, buffer, timeout_ms })
    }

    /// The error for an option out of its range.
    pub(super) fn bad(&self, option: &'static str, value: String, range: &'static str) -> LiveError {
        LiveError::BadOption { interface: self.interface.clone(), option, value, range }
    }
}

/// Options that are in range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Checked {
    pub(super) snap_len: i32,
    pub(super) buffer: i32,
    pub(super) timeout_ms: u16,
}

impl Checked {
    pub(super) fn poll_timeout(self) -> PollTimeout {
        PollTimeout::from(self.timeout_ms)
    }
}
