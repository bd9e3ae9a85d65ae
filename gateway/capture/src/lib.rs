//! Packet sources: capture files and live interfaces behind one trait.
//!
//! [`open_file`] reads pcap and pcapng, plain or compressed; [`MergedSource`] reads several files in order of time,
//! [`Ordered`] puts in order what is not within them, [`LiveCapture`] takes packets from an interface. All of them are a [`PacketSource`],
//! so the pipeline that pulls packets does not know where they come from.
//!
//! What this crate does not do: look into a packet, decide which packets matter, or correct time. Timestamps are passed
//! on as recorded; where they run backwards the source counts it ([`SourceStats::backwards`]), and the engine, whose
//! only clock they are, clamps what still comes late.

// Allowed again, each place with its reasons, only where memory is shared with the kernel or a library is called.
#![deny(unsafe_code)]

mod file;
#[cfg(target_os = "linux")]
mod host;
mod link_type;
mod live;
mod merge;
mod order;
mod source;
mod write;

pub use file::{CaptureFile, MAX_PACKET_BYTES, OpenError, open_file};
#[cfg(target_os = "linux")]
pub use host::{Offloads, clock_is_synchronised, mtu_bytes, offloads};
pub use link_type::{LinkType, Next, Packet};
pub use live::{Backend, Cluster, ClusterKind, LiveCapture, LiveError, LiveOptions, PfRingOptions, check_filter};
pub use merge::MergedSource;
pub use order::Ordered;
pub use source::{PacketSource, Progress, SourceError, SourceStats};
pub use write::PcapWriter;
