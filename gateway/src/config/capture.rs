//! The section about where packets come from: `[capture]`.

use std::num::{NonZeroU16, NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use spand_capture::{Backend, Cluster, ClusterKind, PfRingOptions};

/// `[capture]`: where packets come from.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capture {
    /// Interfaces that receive mirrored traffic. Required for `run`.
    pub interfaces: Vec<String>,
    /// What reads them. Default `auto`.
    pub backend: CaptureBackend,
    /// A libpcap filter; empty takes everything. Default empty: `tcp` alone would miss tagged and tunnelled packets.
    pub filter: String,
    /// Bytes kept of each packet. Default 256: every header with tags, a tunnel and all TCP options fits.
    pub snap_length_bytes: NonZeroU32,
    /// Kernel buffer of each reader of an interface, in MiB. Default 64: half a second of 1 Gbit/s in small packets.
    pub buffer_mib: NonZeroU32,
    /// PF_RING's library; only `pf_ring`. Default none: `libpfring.so` where the system's libraries lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pf_ring_library: Option<PathBuf>,
    /// The cluster of programs that share the packets; only `pf_ring`. Default none: all packets come here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pf_ring_cluster: Option<u16>,
    /// How that cluster shares them out. Default `two_tuple`.
    pub pf_ring_cluster_type: PfRingClusterType,
    /// Threads that read each interface, the connections shared out among them; only `af_packet`. Default 1.
    pub readers: NonZeroU16,
    /// Packets between capture and engine before some are dropped (counted). Default 65,536.
    pub queue_packets: NonZeroUsize,
    /// Pause before an interface that vanished is tried again, in seconds. Default 2.
    pub retry_s: NonZeroU64,
}

/// What reads the interfaces.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptureBackend {
    /// The packet ring where it knows the interface's kind, else libpcap.
    #[default]
    Auto,
    /// Linux's packet ring.
    AfPacket,
    /// libpcap.
    Libpcap,
    /// PF_RING.
    PfRing,
}

impl CaptureBackend {
    /// The backend, where one is named.
    pub(crate) const fn named(self) -> Option<Backend> {
        match self {
            Self::Auto => None,
            Self::AfPacket => Some(Backend::AfPacket),
            Self::Libpcap => Some(Backend::Libpcap),
            Self::PfRing => Some(Backend::PfRing),
        }
    }
}

/// How a cluster of PF_RING shares packets out: both directions of a connection to the same program.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PfRingClusterType {
    /// By both addresses.
    #[default]
    TwoTuple,
    /// By addresses, ports and protocol.
    FiveTuple,
}

impl Capture {
    /// What PF_RING alone needs to know.
    pub(crate) fn pf_ring(&self) -> PfRingOptions {
        let default = PfRingOptions::default();
        let kind = match self.pf_ring_cluster_type {
            PfRingClusterType::TwoTuple => ClusterKind::TwoTuple,
            PfRingClusterType::FiveTuple => ClusterKind::FiveTuple,
        };
        PfRingOptions {
            library: self.pf_ring_library.clone().unwrap_or(default.library),
            cluster: self.pf_ring_cluster.map(|id| Cluster { id, kind }),
        }
    }
}

impl Default for Capture {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            backend: CaptureBackend::Auto,
            filter: String::new(),
            snap_length_bytes: const { NonZeroU32::new(256).unwrap() },
            buffer_mib: const { NonZeroU32::new(64).unwrap() },
            pf_ring_library: None,
            pf_ring_cluster: None,
            pf_ring_cluster_type: PfRingClusterType::TwoTuple,
            readers: NonZeroU16::MIN,
            queue_packets: const { NonZeroUsize::new(65_536).unwrap() },
            retry_s: const { NonZeroU64::new(2).unwrap() },
        }
    }
}
