//! Packets lost before any capture buffer, as the host counts them.
//!
//! A backend's own drop counter begins where the kernel offers it a packet. Before that a packet can be lost in the
//! interface (its ring or FIFO was full, `Documentation/networking/statistics.rst`) or in a CPU's backlog, where it waits
//! when receive packet steering or a virtual interface moves it to another CPU (`enqueue_to_backlog` in
//! `net/core/dev.c`). Those counters belong to the host: another program's packets count too.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use spand_proto::units::Timestamp;

use crate::SourceStats;

/// How often the counters are read: a second, by packet time while packets come.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_NANOS: u64 = 1_000_000_000;

/// A line per CPU in hexadecimal; the second number counts packets dropped at a full backlog (`softnet_seq_show`).
/// By way of the process: a service that sees only processes in `/proc` (`ProcSubset=pid`) has no `/proc/net`.
const SOFTNET: &str = "/proc/self/net/softnet_stat";

/// Counters of host and interface since the capture was opened.
#[derive(Debug)]
pub(super) struct HostLosses {
    /// The interface's folder of counters. `None` where `/sys` shows another namespace's interfaces.
    statistics: Option<PathBuf>,
    read_at: Instant,
    packet_time: Timestamp,
    backlog: Since,
    rx_dropped: Since,
    rx_missed: Since,
    rx_fifo: Since,
}

impl HostLosses {
    pub(super) fn new(device: &str) -> Self {
        let mut losses = Self {
            statistics: statistics_of(interface_of(device)),
            read_at: Instant::now(),
            packet_time: Timestamp(0),
            backlog: Since::default(),
            rx_dropped: Since::default(),
            rx_missed: Since::default(),
            rx_fifo: Since::default(),
        };
        losses.read();
        losses
    }

    /// A packet of this time was read.
    #[inline]
    pub(super) fn passed(&mut self, at: Timestamp) {
        // Unsigned, so that time running backwards reads the counters too and restarts.
        if at.0.wrapping_sub(self.packet_time.0) >= EVERY_NANOS {
            self.packet_time = at;
            self.read();
        }
    }

    /// Nothing was there.
    pub(super) fn idle(&mut self) {
        if self.read_at.elapsed() >= EVERY {
            self.read();
        }
    }

    /// A backend's numbers with these beside them.
    pub(super) fn beside(&self, mut stats: SourceStats) -> SourceStats {
        stats.dropped_by_backlog = self.backlog.sum;
        stats.interface_rx_dropped = self.rx_dropped.sum;
        stats.interface_rx_missed = self.rx_missed.sum;
        stats.interface_rx_fifo = self.rx_fifo.sum;
        if stats.dropped_by_interface.is_none() {
            // What libpcap takes for it (`linux_if_drops`).
            stats.dropped_by_interface = self.rx_missed.sum.zip(self.rx_fifo.sum).map(|(missed, fifo)| missed + fifo);
        }
        stats
    }

    fn read(&mut self) {
        self.read_at = Instant::now();
        // 32 bits per CPU, which wrap; so does their sum.
        let backlog = fs::read_to_string(SOFTNET).ok().and_then(|text| backlog_dropped(&text));
        self.backlog.add(backlog.map(u64::from), u64::from(u32::MAX));
        let Some(folder) = &self.statistics else { return };
        let counter = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok();
        self.rx_dropped.add(counter("rx_dropped"), u64::MAX);
        self.rx_missed.add(counter("rx_missed_errors"), u64::MAX);
        self.rx_fifo.add(counter("rx_fifo_errors"), u64::MAX);
    }
}

/// A counter's rise since it was first read.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    last: Option<u64>,
    sum: Option<u64>,
}

impl Since {
    /// Takes a reading of a counter that wraps after `largest`. A decrease is an interface or CPU that was re-added, unless it is
    /// that wrap.
    fn add(&mut self, now: Option<u64>, largest: u64) {
        let Some(now) = now else { return };
        let rise = now.wrapping_sub(self.last.unwrap_or(now)) & largest;
        let rise = if rise > largest / 2 { 0 } else { rise };
        self.sum = Some(self.sum.unwrap_or(0) + rise);
        self.last = Some(now);
    }
}

/// The kernel's name of the interface behind a device: `zc:eth1@2` is a queue of `eth1`.
pub(crate) fn interface_of(device: &str) -> &str {
    let name = device.rsplit_once(':').map_or(device, |(_, name)| name);
    name.split('@').next().unwrap_or(name)
}

/// Where the interface's counters lie, if it is the one that this process calls so: `/sys` shows the interfaces of the
/// namespace in which it was mounted.
fn statistics_of(interface: &str) -> Option<PathBuf> {
    let folder = PathBuf::from("/sys/class/net").join(interface);
    let index: u32 = fs::read_to_string(folder.join("ifindex")).ok()?.trim().parse().ok()?;
    (if_nametoindex(interface).ok()? == index).then(|| folder.join("statistics"))
}

fn backlog_dropped(softnet: &str) -> Option<u32> {
    softnet.lines().try_fold(0_u32, |sum, line| {
        let dropped = u32::from_str_radix(line.split_whitespace().nth(1)?, 16).ok()?;
        Some(sum.wrapping_add(dropped))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backlog_is_the_sum_of_all_cpus() {
        let two = "00f1 0000000a 00000003 00000000\n00f2 fffffffe 00000000 00000000\n";
        assert_eq!(backlog_dropped(two), Some(8), "modulo 2^32");
        assert_eq!(backlog_dropped("00f1 what\n"), None);
    }

    #[test]
    fn counters_count_from_the_first_reading() {
        let mut counter = Since::default();
        counter.add(None, u64::MAX);
        assert_eq!(counter.sum, None);
        counter.add(Some(u64::from(u32::MAX) - 1), u64::from(u32::MAX));
        assert_eq!(counter.sum, Some(0));
        counter.add(Some(3), u64::from(u32::MAX));
        assert_eq!(counter.sum, Some(5), "over the wrap");
        let mut readded = Since::default();
        for reading in [7, 9, 0, 4] {
            readded.add(Some(reading), u64::MAX);
        }
        assert_eq!(readded.sum, Some(6), "an interface that came back starts at 0");
    }

    #[test]
    fn a_device_of_pf_ring_is_an_interface_of_the_kernels() {
        for (device, interface) in
            [("eth1", "eth1"), ("eth1.5", "eth1.5"), ("zc:eth1@2", "eth1"), ("pcap:eth1", "eth1")]
        {
            assert_eq!(interface_of(device), interface);
        }
    }

    #[test]
    fn the_hosts_counters_are_read_where_they_are() {
        let stats = HostLosses::new("lo").beside(SourceStats::default());
        assert_eq!(stats.dropped_by_backlog, Some(0));
        assert_eq!(stats.interface_rx_dropped, Some(0));
        assert_eq!((stats.interface_rx_missed, stats.interface_rx_fifo), (Some(0), Some(0)));
        assert_eq!(stats.dropped_by_interface, Some(0));
        let unknown = HostLosses::new("no-such-if0").beside(SourceStats::default());
        assert_eq!((unknown.interface_rx_dropped, unknown.dropped_by_interface), (None, None));
    }
}
