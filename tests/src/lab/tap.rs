//! Records what passes an interface into a capture file (libpcap, nanosecond stamps, immediate mode).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use pcap::{Capture, Precision};

use super::namespace::Namespace;

/// What a tap has recorded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TapCounts {
    /// Packets written.
    pub packets: u64,
    /// Packets the kernel dropped for want of buffer: zero, or the capture has holes.
    pub dropped: u64,
}

/// A running recording; [`Tap::finish`] ends it.
#[derive(Debug)]
pub struct Tap {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<TapCounts>>>,
}

/// Bytes kept of each packet: link, IP and TCP headers with all options.
const SNAP_LENGTH: i32 = 128;
/// Room in the kernel for packets not yet read.
const BUFFER_BYTES: i32 = 32 * 1024 * 1024;

impl Tap {
    /// Starts recording TCP on `device` of `namespace` into `file`; returns when the capture is open.
    pub fn start(namespace: &Namespace, device: &str, file: &Path) -> Result<Self> {
        Self::start_with(namespace, device, file, true)
    }

    /// The same with only what is for the host itself or from it. A device that takes everything is a change of the link,
    /// to which a host's own programs may listen.
    pub fn start_at_host(namespace: &Namespace, device: &str, file: &Path) -> Result<Self> {
        Self::start_with(namespace, device, file, false)
    }

    fn start_with(namespace: &Namespace, device: &str, file: &Path, promiscuous: bool) -> Result<Self> {
        let device = device.to_owned();
        let mut capture = namespace.enter(|| {
            let mut capture = Capture::from_device(device.as_str())?
                .promisc(promiscuous)
                .snaplen(SNAP_LENGTH)
                .buffer_size(BUFFER_BYTES)
                .immediate_mode(true)
                .precision(Precision::Nano)
                .open()
                .with_context(|| format!("cannot capture on {device}"))?
                .setnonblock()?;
            capture.filter("tcp or (ip6 and ip6 proto 6)", true)?;
            Ok(capture)
        })?;
        let mut save = capture.savefile(file).with_context(|| format!("cannot write {}", file.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        // The socket was opened inside; reading it works from any namespace.
        let thread = std::thread::Builder::new().name("tap".to_owned()).spawn(move || {
            let mut packets = 0;
            loop {
                match capture.next_packet() {
                    Ok(packet) => {
                        save.write(&packet);
                        packets += 1;
                    }
                    Err(pcap::Error::TimeoutExpired | pcap::Error::NoMorePackets) => {
                        if stopped.load(Ordering::Relaxed) {
                            break;
                        }
                        std::thread::sleep(std::time::Duration::from_millis(2));
                    }
                    Err(error) => return Err(anyhow!("the capture stopped: {error}")),
                }
            }
            save.flush()?;
            let dropped = u64::from(capture.stats()?.dropped);
            Ok(TapCounts { packets, dropped })
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the recording once what has arrived is written.
    pub fn finish(mut self) -> Result<TapCounts> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("the tap has ended already")?;
        thread.join().map_err(|_| anyhow!("the tap's thread panicked"))?
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
