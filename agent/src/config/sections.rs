//! The sections of the configuration file and their defaults.
//!
//! Every field is one key. Limits are types that cannot be zero, so a zero is refused with its line.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use spand_proto::network::Network;
use spand_proto::start::{DEFAULT_INITIAL_WINDOW, Fraction};
use strum::{Display, IntoStaticStr};
use tonic::transport::Uri;

use super::gateways;
use super::gateways::socket_of;

/// How a start is applied.
#[derive(Clone, Copy, Debug, Default, Deserialize, Display, Eq, IntoStaticStr, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ApplyMethod {
    /// Logs what it would do.
    #[default]
    DryRun,
    /// Sets the initial window of routes.
    Route,
    /// Starts each connection by programs in the kernel.
    Bpf,
}

impl ApplyMethod {
    /// Its name in configuration and output.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// `[gateway]`: the gateway or gateways, and timeouts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gateway {
    /// Where its gRPC service listens. Default `unix:/run/spand/gateway.sock` where `urls` are not given either.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Where those of several gateways listen, in the order in which they are tried. Default none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "gateways::list")]
    pub urls: Option<Vec<String>>,
    /// Speak to gateways on other machines without TLS. Default off.
    pub plain_text: bool,
    /// Longest wait for a connection or an answer, in milliseconds. Default 5000.
    pub timeout_ms: NonZeroU64,
    /// Time without a message after which a stream counts as dead, in seconds. Default 45: two refreshes missed.
    #[serde(alias = "silence_s")]
    pub idle_timeout_s: NonZeroU64,
    /// First pause before a new attempt, in milliseconds; each failure doubles it. Default 200.
    pub retry_min_ms: NonZeroU64,
    /// Longest pause, in milliseconds. Default 30,000.
    pub retry_max_ms: NonZeroU64,
}

/// `[policy]`: the limits of a start. In `paper` mode only the age limit, the minima and the lifetime hold.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Part of the share that one start may take. Default 1.0.
    pub fraction: Fraction,
    /// Largest start whatever the share. Default 100.
    pub cap_segments: NonZeroU32,
    /// Smallest start where connections lost packets; elsewhere the host's default. Default 10: losses lower no start.
    pub floor_segments: NonZeroU32,
    /// Connections with a loss that a start below the host's default needs, where `floor_segments` allows it. Default 3.
    pub floor_loss_connections: NonZeroU32,
    /// Whether short transfers start with up to 20 segments where the share is less since many share the path, and slow start takes
    /// longer ones to 25. Default true.
    pub crowd: bool,
    /// Samples that an estimate needs. Default 3.
    pub min_samples: NonZeroU32,
    /// Connections that they must come from. Default 2.
    pub min_connections: NonZeroU32,
    /// Oldest newest-sample that an estimate may have, in seconds. Default 300.
    pub max_age_s: NonZeroU64,
    /// Smallest ratio of the handshake's round trip to the estimate's. Default 0.5.
    pub rtt_ratio_min: f64,
    /// Largest ratio. Default 2.0.
    pub rtt_ratio_max: f64,
    /// Longest lifetime of advice, even if the gateway gives a longer one, in seconds. Default 60.
    pub lifetime_s: NonZeroU64,
    /// The host's own initial window. Default 10 (RFC 6928).
    pub initial_window_segments: NonZeroU32,
    /// Bytes of a usual answer of this host's service. Default not known: then every transfer counts as long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_bytes: Option<NonZeroU64>,
}

/// `[destinations]`: which networks may be advised.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Destinations {
    /// Only networks inside one of these. Default none: all.
    pub include: Vec<Network>,
    /// No network that overlaps one of these. Default none.
    pub exclude: Vec<Network>,
    /// Largest start in segments for networks that overlap a prefix; the smallest counts, in `paper` mode too.
    #[serde(deserialize_with = "caps")]
    pub caps: BTreeMap<Network, NonZeroU32>,
}

/// One cap a network: two spellings of one are one, and the second would silently replace the first.
fn caps<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<Network, NonZeroU32>, D::Error> {
    struct Caps;

    impl<'de> Visitor<'de> for Caps {
        type Value = BTreeMap<Network, NonZeroU32>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of networks and their largest starts in segments")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
            let mut caps = BTreeMap::new();
            while let Some((network, cap)) = entries.next_entry::<Network, NonZeroU32>()? {
                if caps.insert(network, cap).is_some() {
                    return Err(Error::custom(format!("`{network}` is named twice: leave one out")));
                }
            }
            Ok(caps)
        }
    }

    from.deserialize_map(Caps)
}

/// `[holdout]`: whole networks that are left as plain TCP for a time slot, so that the advised ones can be compared.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Holdout {
    /// Part of all networks and time slots, 0 to 1. Default 0.05.
    #[serde(alias = "share")]
    pub fraction: f64,
    /// Length of a time slot in seconds. Default 3600.
    pub slot_s: NonZeroU64,
    /// Seed of the draw. Default 0. Hosts with the same seed leave the same networks alone at the same time: keep it so.
    pub seed: u64,
}

/// `[route]`: the applier that sets the initial window of routes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Route {
    /// Part of the share that an unpaced start may take, outside `paper` mode. Default 0.5.
    pub burst_fraction: Fraction,
    /// Largest unpaced start, outside `paper` mode. Default 32.
    pub burst_cap_segments: NonZeroU32,
    /// Shortest time between two batches of changes, in milliseconds. Default 200.
    pub batch_ms: NonZeroU64,
    /// How long the kernel's routes must stand still before ours come back, in milliseconds. Default 2000.
    pub settle_ms: NonZeroU64,
    /// How often all routes are compared with the kernel's, in seconds. Default 10.
    pub verify_s: NonZeroU64,
}

/// `[bpf]`: the applier that starts connections one by one, by programs in the kernel.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bpf {
    /// Version 2 cgroup whose sockets are started. Default empty: the root, which holds every socket of the machine.
    pub cgroup: PathBuf,
    /// Of which network namespaces sockets are started. Default `own`.
    pub namespaces: Namespaces,
    /// How a start reaches a socket. Default `auto`.
    pub variant: Variant,
    /// What the agent does where the kernel takes none of the programs. Default `none`.
    pub fallback: Fallback,
    /// What connections on BBR get. Default `full`.
    pub bbr: Bbr,
    /// First part of the names of the congestion controls, 1 to 9 of `a-z`, `0-9` and `_`. Default `spand`. Several agents
    /// on one machine need one each.
    pub name: String,
    /// Part of the connections that is left alone and compared with, 0 to 1. Default 0.05.
    #[serde(alias = "control_share")]
    pub control_fraction: f64,
    /// Seed of that draw. Default 0.
    pub control_seed: u64,
    /// Whether a connection's first timeout comes from the estimate. Default true.
    pub initial_timeout: bool,
    /// Whether the acknowledgements of its first segments correct a start on CUBIC or Reno, with variant `stay`. Default true.
    pub check: bool,
    /// Whether every segment carries the sender's window and RTT in a TCP option of 12 bytes. Default false.
    pub window_option: bool,
}

/// Whose sockets are started.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Namespaces {
    /// Those of the agent's own network namespace: in others the same addresses may be other machines, behind other paths.
    #[default]
    Own,
    /// Those of every network namespace.
    All,
}

/// What connections on BBR get.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bbr {
    /// An initial window, beyond which BBR goes by its own measurements.
    Window,
    /// The share as BBR's estimate and rate, checked by the first acknowledgements.
    #[default]
    Full,
}

/// How a start reaches a socket.
#[derive(Clone, Copy, Debug, Default, Deserialize, Display, Eq, IntoStaticStr, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Variant {
    /// The first of the others that the kernel takes.
    #[default]
    Auto,
    /// A congestion control of ours, Reno's or CUBIC's but for the start of a transfer, first or after an idle time.
    Stay,
    /// Ours for the start only; then the connection goes on with the host's own.
    HandOver,
    /// Socket options only: no threshold, no second start; whatever the congestion control.
    Sockops,
}

impl Variant {
    /// Its name in configuration and output.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What is tried where this is configured: each needs less of the kernel than the one before.
    pub(crate) const fn candidates(self) -> &'static [Self] {
        match self {
            Self::Auto | Self::Stay => &[Self::Stay, Self::HandOver, Self::Sockops],
            Self::HandOver => &[Self::HandOver, Self::Sockops],
            Self::Sockops => &[Self::Sockops],
        }
    }
}

/// What the agent does where the kernel takes none of the programs of `apply = "bpf"`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// It runs without advice: every connection is plain TCP.
    #[default]
    None,
    /// It sets routes, as with `apply = "route"`.
    Route,
    /// It ends with exit code 1.
    Exit,
}

/// `[metrics]`: a listener for Prometheus.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Address and port of `GET /metrics`. Default none: the host listens nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
}

/// `[limits]`: how large each table may grow. What does not fit is counted.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Networks held from the gateway. Default 65,536.
    pub networks: NonZeroUsize,
    /// Routes of ours at one time. Default 1,024.
    pub applied: NonZeroUsize,
}

/// `[applications]`: a socket for applications with a transport of their own.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Applications {
    /// Where they ask. Default none: then no application is advised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Group whose members may ask. Default empty: the agent's own.
    pub group: String,
    /// Connections of applications at one time; those of one user have at most half of them. Default 64.
    pub connections: NonZeroUsize,
    /// Networks that the applications of one user watch together. Default 16,384.
    pub networks: NonZeroUsize,
}

impl Default for Applications {
    fn default() -> Self {
        Self {
            socket: None,
            group: String::new(),
            connections: const { NonZeroUsize::new(64).unwrap() },
            networks: const { NonZeroUsize::new(16_384).unwrap() },
        }
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            url: Some(gateways::DEFAULT_URL.to_owned()),
            urls: None,
            plain_text: false,
            timeout_ms: const { NonZeroU64::new(5_000).unwrap() },
            idle_timeout_s: const { NonZeroU64::new(45).unwrap() },
            retry_min_ms: const { NonZeroU64::new(200).unwrap() },
            retry_max_ms: const { NonZeroU64::new(30_000).unwrap() },
        }
    }
}

impl Default for Policy {
    /// The contract's own, so that a query and an applied start cannot drift apart (a test compares them).
    fn default() -> Self {
        Self {
            fraction: part(1.0),
            cap_segments: const { NonZeroU32::new(100).unwrap() },
            floor_segments: const { NonZeroU32::new(DEFAULT_INITIAL_WINDOW.0).unwrap() },
            floor_loss_connections: const { NonZeroU32::new(3).unwrap() },
            crowd: true,
            min_samples: const { NonZeroU32::new(3).unwrap() },
            min_connections: const { NonZeroU32::new(2).unwrap() },
            max_age_s: const { NonZeroU64::new(300).unwrap() },
            rtt_ratio_min: 0.5,
            rtt_ratio_max: 2.0,
            lifetime_s: const { NonZeroU64::new(60).unwrap() },
            initial_window_segments: const { NonZeroU32::new(10).unwrap() },
            service_bytes: None,
        }
    }
}

impl Default for Holdout {
    fn default() -> Self {
        Self { fraction: 0.05, slot_s: const { NonZeroU64::new(3_600).unwrap() }, seed: 0 }
    }
}

impl Default for Route {
    fn default() -> Self {
        Self {
            burst_fraction: part(0.5),
            burst_cap_segments: const { NonZeroU32::new(32).unwrap() },
            batch_ms: const { NonZeroU64::new(200).unwrap() },
            settle_ms: const { NonZeroU64::new(2_000).unwrap() },
            verify_s: const { NonZeroU64::new(10).unwrap() },
        }
    }
}

impl Default for Bpf {
    fn default() -> Self {
        Self {
            cgroup: PathBuf::new(),
            namespaces: Namespaces::default(),
            variant: Variant::default(),
            fallback: Fallback::default(),
            bbr: Bbr::default(),
            name: "spand".to_owned(),
            control_fraction: 0.05,
            control_seed: 0,
            initial_timeout: true,
            check: true,
            window_option: false,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            networks: const { NonZeroUsize::new(65_536).unwrap() },
            applied: const { NonZeroUsize::new(1_024).unwrap() },
        }
    }
}

/// A fraction written here in the source.
fn part(value: f64) -> Fraction {
    Fraction::try_from(value).expect("a number above 0 and at most 1")
}

// The section `[tls]`: what the agent shows, and by what it proves the gateway.

/// `[tls]`: for gateways at `https://`. The files are read again when they change.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// This host's certificate and its chain, in PEM: it names the addresses that the agent may claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// Its private key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// The authority of the gateways' certificates, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Name or address that the certificates of all gateways must hold. Default none: each the one in its URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Tls {
    /// Makes relative paths start at `folder`.
    pub(super) fn anchor(&mut self, folder: &Path) {
        for path in [&mut self.certificate, &mut self.key, &mut self.ca].into_iter().flatten() {
            *path = folder.join(&*path);
        }
    }

    /// Gives the first contradiction in the URLs of the gateways, as a sentence.
    pub(super) fn check(&self, gateway: &Gateway) -> Result<(), String> {
        gateway.list().into_iter().try_for_each(|url| self.check_one(gateway, url))
    }

    fn check_one(&self, gateway: &Gateway, url: &str) -> Result<(), String> {
        let key = gateway.key();
        if let Some(socket) = socket_of(url) {
            return if socket.is_absolute() {
                Ok(())
            } else {
                Err(format!("{key} `{url}` names no socket from the root: write unix:/run/spand/gateway.sock"))
            };
        }
        let uri: Option<Uri> = url.parse().ok();
        let host = uri.as_ref().and_then(Uri::host);
        let (Some(host), Some(scheme)) = (host, uri.as_ref().and_then(Uri::scheme_str)) else {
            return Err(format!(
                "{key} `{url}` is no address of a gateway: write https://HOST:PORT, or unix:/PATH on this machine"
            ));
        };
        match scheme {
            "https" if self.certificate.is_none() || self.key.is_none() || self.ca.is_none() => Err(format!(
                "{key} begins with https: name tls.certificate and tls.key, which the gateway asks for, and tls.ca, which \
                 proves the gateway"
            )),
            "https" => Ok(()),
            "http" if is_this_machine(host) || gateway.plain_text => Ok(()),
            "http" => Err(format!(
                "{key} `{url}` is another machine without TLS: write https, or say gateway.plain_text = true where the \
                 network to it is trusted"
            )),
            _ => Err(format!(
                "{key} `{url}` is no address of a gateway: write https://HOST:PORT, or unix:/PATH on this machine"
            )),
        }
    }
}

/// Whether a host as a URL names it is loopback.
fn is_this_machine(host: &str) -> bool {
    let address: Option<std::net::IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    host.eq_ignore_ascii_case("localhost") || address.is_some_and(|address| address.is_loopback())
}
