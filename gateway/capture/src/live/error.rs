//! What stands in the way of a live capture, each in one sentence with the way out.

use std::path::PathBuf;

use nix::net::if_::if_nameindex;

/// Why an interface cannot be captured from.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// There is no interface of that name.
    #[error("there is no interface {interface} here; there are {present}")]
    NoSuchInterface {
        /// The name asked for.
        interface: String,
        /// The names there are.
        present: String,
    },
    /// The interface is there but is not up.
    #[error("interface {interface} is down; `ip link set {interface} up` turns it on")]
    Down {
        /// The interface's name.
        interface: String,
    },
    /// The process may not capture.
    #[error(
        "capturing on {interface} needs the capability CAP_NET_RAW: \
         run as root or with AmbientCapabilities= in the systemd unit ({message})"
    )]
    NoPrivilege {
        /// The interface's name.
        interface: String,
        /// The error of libpcap or the system.
        message: String,
    },
    /// The filter does not compile for this interface.
    #[error("the capture filter `{filter}` does not work on {interface}: {message}; see pcap-filter(7)")]
    BadFilter {
        /// The interface's name.
        interface: String,
        /// The filter.
        filter: String,
        /// libpcap's error.
        message: String,
    },
    /// An option is out of the range the backend takes.
    #[error("capture option {option} on {interface} is {value}; it must be {range}")]
    BadOption {
        /// The interface's name.
        interface: String,
        /// The option.
        option: &'static str,
        /// Its value with its unit.
        value: String,
        /// What would do.
        range: &'static str,
    },
    /// The backend does not read this kind of interface.
    #[error("the capture backend {backend} cannot read {interface}: {what}; {way_out}")]
    Unsupported {
        /// The interface's name.
        interface: String,
        /// The backend's name.
        backend: super::Backend,
        /// What it cannot do.
        what: String,
        /// What can.
        way_out: &'static str,
    },
    /// PF_RING's library cannot be used.
    #[error(
        "capturing on {interface} with PF_RING needs its library {library:?}, which cannot be used ({message}); \
         install it, or choose the backend af_packet"
    )]
    NoLibrary {
        /// The interface's name.
        interface: String,
        /// The library.
        library: PathBuf,
        /// The system's error.
        message: String,
    },
    /// Anything else the backend or the kernel refused for.
    #[error("cannot capture on {interface}: {message}")]
    Refused {
        /// The interface's name.
        interface: String,
        /// The error of libpcap or the system.
        message: String,
    },
}

/// Interface names listed in an error.
const NAMES_SHOWN: usize = 12;

/// Names of the interfaces of this network namespace, for an error; `/sys` may show those of another.
pub(super) fn interfaces() -> String {
    let listed = if_nameindex();
    let listed = listed.iter().flatten().map(|interface| interface.name().to_string_lossy().into_owned());
    let mut names: Vec<String> = listed.collect();
    names.sort_unstable();
    if names.len() > NAMES_SHOWN {
        names.truncate(NAMES_SHOWN);
        names.push("more".to_owned());
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
