//! Checks across values: contradictions, and values that nothing can work with.

use std::collections::BTreeSet;

use super::{CaptureBackend, Config, Engine, Estimate, Listen};
use crate::api::ApiConfig;
use crate::run;

/// Interfaces one gateway reads; each costs a thread and a kernel buffer.
const MAX_INTERFACES: usize = 16;
/// Readers of one interface; each costs a thread and a kernel buffer.
const MAX_READERS: u16 = 16;
/// Largest snap length libpcap takes.
const MAX_SNAP_LENGTH_BYTES: u32 = 262_144;
/// Shortest one that holds Ethernet, a VLAN tag, IPv6 and TCP with all options.
const MIN_SNAP_LENGTH_BYTES: u32 = 118;
/// Largest kernel buffer that can be asked for, in MiB: libpcap takes a C `int` of bytes.
const MAX_BUFFER_MIB: u32 = 2_047;
/// Smallest queue between capture and engine: packets travel in batches of this many, each taken or dropped as a whole.
const MIN_QUEUE_PACKETS: usize = run::BATCH_PACKETS;
/// Most buckets of a window; each network keeps all of them.
const MAX_BUCKETS: u32 = 1_000;
/// Longest time that is accepted anywhere, one year.
const MAX_SECONDS: u64 = 365 * 24 * 3_600;

/// Files that are open beside connections and interfaces: the store's, the runtime's, those of TLS while they are read.
const OTHER_FILES: usize = 128;
/// Files of one reader of an interface, with those that it opens for a moment.
const READER_FILES: usize = 4;

impl Estimate {
    /// Refuses rules to compare that say nothing new; `compare` and `rule` are the names of the options.
    pub(crate) fn check_compare(&self, compare: &str, rule: &str) -> Result<(), String> {
        for (n, compared) in self.compare.iter().enumerate() {
            if *compared == self.rule || self.compare.iter().take(n).any(|other| other == compared) {
                let place =
                    if *compared == self.rule { format!("it is {rule}") } else { "it is there twice".to_owned() };
                return Err(format!("{compare} names `{compared}`: {place}; name each other rule once at most"));
            }
        }
        Ok(())
    }
}

impl Config {
    /// The first contradiction, as a sentence.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_capture()?;
        self.traffic.check_tunnels()?;
        self.check_estimate()?;
        let threads = self.engine.threads.get();
        if threads > Engine::MAX_THREADS {
            return Err(format!(
                "engine.threads is {threads}: at most {} engines run side by side",
                Engine::MAX_THREADS
            ));
        }
        self.check_times()?;
        self.check_access()?;
        self.check_share()?;
        let http = self.api.http_listen.0;
        if let Some(Listen(grpc)) = self.api.grpc_listen
            && grpc.port() == http.port()
            && grpc.port() != 0
            && overlap(grpc.ip(), http.ip())
        {
            return Err(format!(
                "api.grpc_listen {grpc} and api.http_listen {http} are the same port: give one of them another"
            ));
        }
        if self.api.grpc_socket.as_ref().is_some_and(|socket| socket.as_os_str().is_empty()) {
            return Err("api.grpc_socket is empty: name a file, or leave it out".to_owned());
        }
        self.log.check()?;
        if self.store.enabled && self.store.directory.as_os_str().is_empty() {
            return Err("store.directory is empty: name a folder, or set store.enabled = false".to_owned());
        }
        Ok(())
    }

    /// What `run` needs beyond a valid file.
    pub fn check_runnable(&self) -> Result<(), String> {
        if self.capture.interfaces.is_empty() {
            return Err("capture.interfaces names no interface: add the one that receives the mirrored traffic, such as [\"eth1\"]"
                .to_owned());
        }
        Ok(())
    }

    /// Files that may be open at a time, with every limit of connections reached.
    pub fn files(&self) -> u64 {
        let (api, capture) = (&self.api, &self.capture);
        let readers = capture.interfaces.len() * usize::from(capture.readers.get());
        let connections = api.grpc_connections.get().saturating_add(self.api().http_connections.get());
        let connections = connections.saturating_add(ApiConfig::RESERVED_CONNECTIONS);
        connections.saturating_add(READER_FILES * readers + OTHER_FILES) as u64
    }

    fn check_capture(&self) -> Result<(), String> {
        let capture = &self.capture;
        if capture.interfaces.len() > MAX_INTERFACES {
            let count = capture.interfaces.len();
            return Err(format!("capture.interfaces names {count} interfaces: at most {MAX_INTERFACES} are read"));
        }
        let mut seen = BTreeSet::new();
        for name in &capture.interfaces {
            if name.is_empty() || name.contains('\0') {
                return Err("capture.interfaces holds an empty name: remove it".to_owned());
            }
            if !seen.insert(name) {
                return Err(format!("capture.interfaces names {name} twice: each packet would count double"));
            }
        }
        let readers = capture.readers.get();
        if readers > MAX_READERS {
            return Err(format!("capture.readers is {readers}: at most {MAX_READERS} threads read an interface"));
        }
        if readers > 1 && matches!(capture.backend, CaptureBackend::Libpcap | CaptureBackend::PfRing) {
            return Err(format!(
                "capture.readers is {readers} and only the backend af_packet shares an interface out: choose it, or one reader"
            ));
        }
        let snap = capture.snap_length_bytes.get();
        if !(MIN_SNAP_LENGTH_BYTES..=MAX_SNAP_LENGTH_BYTES).contains(&snap) {
            return Err(format!(
                "capture.snap_length_bytes is {snap}: choose {MIN_SNAP_LENGTH_BYTES} (all headers) to {MAX_SNAP_LENGTH_BYTES}"
            ));
        }
        let buffer = capture.buffer_mib.get();
        if buffer > MAX_BUFFER_MIB {
            return Err(format!("capture.buffer_mib is {buffer}: the kernel takes at most {MAX_BUFFER_MIB}"));
        }
        let queue = capture.queue_packets.get();
        if queue < MIN_QUEUE_PACKETS {
            return Err(format!(
                "capture.queue_packets is {queue}: choose at least {MIN_QUEUE_PACKETS}, as many as travel together"
            ));
        }
        Ok(())
    }

    fn check_estimate(&self) -> Result<(), String> {
        let estimate = &self.estimate;
        if estimate.buckets.get() > MAX_BUCKETS {
            return Err(format!("estimate.buckets is {}: at most {MAX_BUCKETS}", estimate.buckets));
        }
        estimate.check_compare("estimate.compare", "estimate.rule")?;
        if !(estimate.change > 0.0 && estimate.change <= 10.0) {
            return Err(format!(
                "estimate.change is {}: choose more than 0 and at most 10 (0.1 is 10 %)",
                estimate.change
            ));
        }
        let publish = &self.publish;
        if publish.renewal_s >= publish.lifetime_s {
            return Err(format!(
                "publish.renewal_s {} is not shorter than publish.lifetime_s {}: advice would run out between renewals",
                publish.renewal_s, publish.lifetime_s
            ));
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), String> {
        let times = [
            ("capture.retry_s", self.capture.retry_s.get()),
            ("estimate.bucket_s", self.estimate.bucket_s.get()),
            ("estimate.max_age_s", self.estimate.max_age_s.get()),
            ("limits.idle_established_s", self.limits.idle_established_s.get()),
            ("limits.idle_other_s", self.limits.idle_other_s.get()),
            ("publish.destination_idle_s", self.publish.destination_idle_s.get()),
            ("publish.lifetime_s", self.publish.lifetime_s.get()),
            ("publish.renewal_s", self.publish.renewal_s.get()),
        ];
        match times.into_iter().find(|&(_, seconds)| seconds > MAX_SECONDS) {
            Some((key, _)) => Err(format!("{key} is longer than a year: choose at most {MAX_SECONDS} s")),
            None => Ok(()),
        }
    }
}

/// Whether two listening addresses take the same packets: equal, or one of them all addresses of the machine.
fn overlap(a: std::net::IpAddr, b: std::net::IpAddr) -> bool {
    a == b || a.is_unspecified() || b.is_unspecified()
}
