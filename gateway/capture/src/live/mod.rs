//! Live packets from an interface.
//!
//! A mirror port can fall silent for hours. So every backend is non-blocking and waits for its descriptor itself: the
//! thread that pulls packets gets [`Next::Idle`] at least every read time-out and can look at its clock or be stopped then.
//!
//! What the backend does not see being lost (before the packet reaches its buffer) is read beside it, see `losses`.

mod error;
mod filter;
mod libpcap;
mod losses;
mod options;
// Layouts are those of 64-bit machines, and only Linux has it.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod pf_ring;
#[cfg(target_os = "linux")]
mod ring;

pub use error::LiveError;
pub use filter::check_filter;
pub(crate) use losses::interface_of;
pub use options::{Backend, Cluster, ClusterKind, LiveOptions, PfRingOptions};

use self::libpcap::PcapCapture;
use self::losses::HostLosses;
use crate::{LinkType, Next, PacketSource, Progress, SourceError, SourceStats};

/// An interface that is being captured from.
#[derive(Debug)]
pub struct LiveCapture {
    reader: Reader,
    losses: HostLosses,
}

#[derive(Debug)]
enum Reader {
    Libpcap(PcapCapture),
    #[cfg(target_os = "linux")]
    Ring(ring::RingCapture),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    PfRing(Box<pf_ring::PfRingCapture>),
}

/// Calls the same method of whatever backend there is.
macro_rules! each {
    ($reader:expr, $backend:ident => $call:expr) => {
        match $reader {
            Reader::Libpcap($backend) => $call,
            #[cfg(target_os = "linux")]
            Reader::Ring($backend) => $call,
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Reader::PfRing($backend) => $call,
        }
    };
}

impl LiveCapture {
    /// Opens an interface. Packets are captured from here on, filtered from the first one.
    pub fn open(options: &LiveOptions) -> Result<Self, LiveError> {
        if options.group.is_some()
            && let Some(backend @ (Backend::Libpcap | Backend::PfRing)) = options.backend
        {
            let what = "it cannot be shared out among several readers".to_owned();
            let (interface, way_out) = (options.interface.clone(), "the backend af_packet can");
            return Err(LiveError::Unsupported { interface, backend, what, way_out });
        }
        let reader = match options.backend {
            Some(Backend::Libpcap) => Reader::Libpcap(PcapCapture::open(options)?),
            Some(Backend::AfPacket) => open_ring(options)?,
            Some(Backend::PfRing) => open_pf_ring(options)?,
            None => match open_ring(options) {
                Err(LiveError::Unsupported { .. }) if options.group.is_none() => {
                    Reader::Libpcap(PcapCapture::open(options)?)
                }
                opened => opened?,
            },
        };
        Ok(Self { reader, losses: HostLosses::new(&options.interface) })
    }

    /// What the first byte of each packet belongs to.
    pub fn link_type(&self) -> LinkType {
        each!(&self.reader, backend => backend.link_type())
    }

    /// What reads the interface.
    pub fn backend(&self) -> Backend {
        match self.reader {
            Reader::Libpcap(_) => Backend::Libpcap,
            #[cfg(target_os = "linux")]
            Reader::Ring(_) => Backend::AfPacket,
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Reader::PfRing(_) => Backend::PfRing,
        }
    }
}

#[cfg(target_os = "linux")]
fn open_ring(options: &LiveOptions) -> Result<Reader, LiveError> {
    ring::RingCapture::open(options).map(Reader::Ring)
}

#[cfg(not(target_os = "linux"))]
fn open_ring(options: &LiveOptions) -> Result<Reader, LiveError> {
    Err(LiveError::Unsupported {
        interface: options.interface.clone(),
        backend: Backend::AfPacket,
        what: "it is a part of Linux".to_owned(),
        way_out: "the backend libpcap can",
    })
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn open_pf_ring(options: &LiveOptions) -> Result<Reader, LiveError> {
    pf_ring::PfRingCapture::open(options).map(|capture| Reader::PfRing(Box::new(capture)))
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn open_pf_ring(options: &LiveOptions) -> Result<Reader, LiveError> {
    Err(LiveError::Unsupported {
        interface: options.interface.clone(),
        backend: Backend::PfRing,
        what: "it is called on 64-bit Linux only".to_owned(),
        way_out: "the backend libpcap can",
    })
}

impl PacketSource for LiveCapture {
    fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
        let next = each!(&mut self.reader, backend => backend.next_packet())?;
        match &next {
            Next::Packet(packet) => self.losses.passed(packet.timestamp),
            Next::Idle | Next::End => self.losses.idle(),
        }
        Ok(next)
    }

    fn stats(&self) -> SourceStats {
        self.losses.beside(each!(&self.reader, backend => backend.stats()))
    }

    fn name(&self) -> &str {
        each!(&self.reader, backend => backend.name())
    }

    fn progress(&self) -> Option<Progress> {
        None
    }
}
