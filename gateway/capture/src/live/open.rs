//! Opening a live capture, and what stands in its way.

use std::num::NonZeroU32;

use nix::poll::PollTimeout;
use pcap::{Capture, Precision};
use spand_proto::units::{Bytes, Micros};

use super::LiveCapture;

/// How to capture from an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LiveOptions {
    /// The interface's name; `any` is all of them, never promiscuous, as Linux cooked packets.
    pub interface: String,
    /// A filter in the language of pcap-filter(7), applied in the kernel; `None` takes everything.
    ///
    /// `inbound` and `outbound` lose the first block: libpcap repeats the filter on what may be older than it, and
    /// cannot tell directions there.
    pub filter: Option<String>,
    /// Bytes captured of each packet: the headers are enough.
    pub snap_len: NonZeroU32,
    /// The kernel's buffer, which bridges the moments in which nobody reads. At most 2 GiB.
    pub buffer: Bytes,
    /// Hands packets over one by one instead of in blocks: less delay, more work per packet.
    pub immediate: bool,
    /// Takes packets that are not addressed to this host, as a mirror port needs.
    pub promiscuous: bool,
    /// How long packets may gather in a block that is not full, and how long a call may find nothing. Whole
    /// milliseconds, at least one, at most a minute.
    pub read_timeout: Micros,
}

impl LiveOptions {
    /// Promiscuous capture of 256 bytes per packet (tunnel headers and full TCP options included) without a filter,
    /// in blocks of at most 10 ms, through a buffer of 64 MiB.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            filter: None,
            snap_len: const { NonZeroU32::new(256).expect("not zero") },
            buffer: Bytes(64 << 20),
            immediate: false,
            promiscuous: true,
            read_timeout: Micros::from_millis(10),
        }
    }
}

/// Why an interface cannot be captured from.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// There is none of that name.
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
        /// What libpcap said.
        message: String,
    },
    /// The filter does not compile for this interface.
    #[error("the capture filter `{filter}` does not work on {interface}: {message}; see pcap-filter(7)")]
    BadFilter {
        /// The interface's name.
        interface: String,
        /// The filter.
        filter: String,
        /// What libpcap said.
        message: String,
    },
    /// An option is out of the range libpcap takes.
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
    /// Anything else libpcap or the kernel refused for.
    #[error("cannot capture on {interface}: {message}")]
    Refused {
        /// The interface's name.
        interface: String,
        /// What libpcap said.
        message: String,
    },
}

/// Asked for on top of the snap length and cut off again: in immediate mode libpcap 1.10 makes the frames of its ring two
/// bytes too small for the snap length.
const SNAP_SLACK_BYTES: i32 = 16;
/// Interface names listed in an error.
const NAMES_SHOWN: usize = 12;

impl LiveCapture {
    /// Opens an interface. Packets are captured from here on, filtered from the first one.
    pub fn open(options: &LiveOptions) -> Result<Self, LiveError> {
        let interface = options.interface.as_str();
        let bad = |option, value: String, range| LiveError::BadOption {
            interface: interface.to_owned(),
            option,
            value,
            range,
        };
        let snap_len = i32::try_from(options.snap_len.get())
            .map_err(|_| bad("snap_len", format!("{} bytes", options.snap_len), "at most 2 GiB"))?;
        let buffer =
            i32::try_from(options.buffer.0).map_err(|_| bad("buffer", options.buffer.to_string(), "below 2 GiB"))?;
        let timeout_ms = u16::try_from(options.read_timeout.0 / 1_000)
            .ok()
            .filter(|&ms| (1..=60_000).contains(&ms))
            .ok_or_else(|| bad("read_timeout", options.read_timeout.to_string(), "1 ms to 60 s"))?;

        let inactive = Capture::from_device(interface).map_err(|error| explain(interface, message(error)))?;
        let active = inactive
            .snaplen(snap_len.saturating_add(SNAP_SLACK_BYTES))
            .buffer_size(buffer)
            .immediate_mode(options.immediate)
            // libpcap only warns that `any` cannot be promiscuous, but the binding takes the warning for an error.
            .promisc(options.promiscuous && interface != "any")
            .timeout(i32::from(timeout_ms))
            .precision(Precision::Nano)
            .open()
            .map_err(|error| explain(interface, message(error)))?;
        let mut capture = active.setnonblock().map_err(|error| explain(interface, message(error)))?;
        if let Some(filter) = &options.filter {
            capture.filter(filter, true).map_err(|error| LiveError::BadFilter {
                interface: interface.to_owned(),
                filter: filter.clone(),
                message: message(error),
            })?;
        }
        Ok(Self::new(interface.to_owned(), capture, options.snap_len, PollTimeout::from(timeout_ms)))
    }
}

/// libpcap tells its reasons only in words.
fn explain(interface: &str, message: String) -> LiveError {
    let interface = interface.to_owned();
    let says = |words: &[&str]| words.iter().any(|word| message.to_lowercase().contains(word));
    if says(&["no such device"]) {
        LiveError::NoSuchInterface { interface, present: interfaces() }
    } else if says(&["permission", "not permitted"]) {
        LiveError::NoPrivilege { interface, message }
    } else if says(&["not up", "is down"]) {
        LiveError::Down { interface }
    } else {
        LiveError::Refused { interface, message }
    }
}

fn interfaces() -> String {
    let listed = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names: Vec<String> = listed.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    if names.len() > NAMES_SHOWN {
        names.truncate(NAMES_SHOWN);
        names.push("more".to_owned());
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The words of an error, on one line and without the binding's own preamble.
pub(super) fn message(error: pcap::Error) -> String {
    let words = match error {
        pcap::Error::PcapError(words) => words,
        other => other.to_string(),
    };
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
