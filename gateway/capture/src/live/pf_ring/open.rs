//! How a device is opened, and what the library says where that fails.

use std::ffi::{CString, c_uint};
use std::fs;
use std::path::Path;

use nix::errno::Errno;

use super::library::{self, Device, Library, NOT_SUPPORTED};
use crate::live::losses::interface_of;
use crate::live::{Backend, ClusterKind, LiveError, LiveOptions};
use crate::{LinkType, Next, PacketSource};

/// Most bytes the library captures of a packet (`MAX_CAPLEN`).
const MAX_CAPLEN: u32 = 65_600;

/// Opens a device, sets what the options say and begins.
pub(super) fn start(options: &LiveOptions, library: Library, more_flags: u32) -> Result<Device, LiveError> {
    let mut device = open_device(options, library, more_flags)?;
    device.name_application();
    if let Some(cluster) = options.pf_ring.cluster {
        match device.set_cluster(cluster.id, cluster.kind.number()) {
            0 => {}
            NOT_SUPPORTED => return Err(unsupported(options, "its module knows no clusters", "leave the cluster out")),
            answer => return Err(refused(options, &format!("the cluster {} ({answer})", cluster.id))),
        }
    }
    if let Some(filter) = &options.filter {
        let bad_filter = |message: &str| LiveError::BadFilter {
            interface: options.interface.clone(),
            filter: filter.clone(),
            message: message.to_owned(),
        };
        let text = CString::new(filter.as_str()).map_err(|_| bad_filter("it holds a zero byte"))?;
        if device.set_filter(&text) != 0 {
            return Err(bad_filter("PF_RING does not take it and says no more"));
        }
    }
    match device.enable() {
        0 => Ok(device),
        answer => Err(refused(options, &format!("to begin ({answer})"))),
    }
}

fn open_device(options: &LiveOptions, library: Library, more_flags: u32) -> Result<Device, LiveError> {
    let name = CString::new(options.interface.as_str()).map_err(|_| refused(options, "a name with a zero byte"))?;
    let promiscuous = if options.promiscuous { library::PROMISC } else { 0 };
    let flags = promiscuous | library::TIMESTAMP | library::DO_NOT_PARSE | more_flags;
    let caplen = options.snap_len.get().min(MAX_CAPLEN);
    Device::open(library, &name, caplen, flags).map_err(|(error, _)| match error {
        Errno::EAFNOSUPPORT => unsupported(
            options,
            "the kernel module pf_ring.ko is not loaded",
            "load it (`modprobe pf_ring`), or choose the backend af_packet",
        ),
        Errno::EPERM | Errno::EACCES => {
            LiveError::NoPrivilege { interface: options.interface.clone(), message: error.to_string() }
        }
        error => refused(options, &format!("to open it ({error})")),
    })
}

/// What this device or module cannot do, and what can be done about it.
pub(super) fn unsupported(options: &LiveOptions, what: &str, way_out: &'static str) -> LiveError {
    let (interface, what) = (options.interface.clone(), what.to_owned());
    LiveError::Unsupported { interface, backend: Backend::PfRing, what, way_out }
}

fn refused(options: &LiveOptions, what: &str) -> LiveError {
    LiveError::Refused { interface: options.interface.clone(), message: format!("PF_RING refuses {what}") }
}

/// What a device's packets begin with: for a file what it says, for an interface by its hardware type.
pub(super) fn link_type(device: &str) -> Result<LinkType, LiveError> {
    let file = device.strip_prefix("pcap:").map(Path::new).filter(|path| path.is_file());
    if let Some(file) = file {
        let refuse = |message: String| LiveError::Refused { interface: device.to_owned(), message };
        let mut file = crate::open_file(file).map_err(|error| refuse(error.to_string()))?;
        return match file.next_packet().map_err(|error| refuse(error.to_string()))? {
            Next::Packet(packet) => Ok(packet.link_type),
            Next::Idle | Next::End => Ok(LinkType::ETHERNET),
        };
    }
    // A device of another namespace, or not of the kernel, is not there; all of those are Ethernet.
    let hardware = fs::read_to_string(format!("/sys/class/net/{}/type", interface_of(device))).ok();
    match hardware.as_deref().map(str::trim) {
        None | Some("1" | "772") => Ok(LinkType::ETHERNET),
        Some(other) => Err(LiveError::Unsupported {
            interface: device.to_owned(),
            backend: Backend::PfRing,
            what: format!("its hardware type {other} is not Ethernet"),
            way_out: "the backends af_packet and libpcap can",
        }),
    }
}

/// `cluster_type` of `pf_ring.h`. Both directions of a connection have to come to the same reader, so only the two kinds that
/// see to that are offered.
impl ClusterKind {
    const fn number(self) -> c_uint {
        match self {
            Self::TwoTuple => 2,
            Self::FiveTuple => 4,
        }
    }
}
