//! Who was not let in, and why: counted by reason, and logged once for a peer and a reason within ten minutes.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use rustls::{CertificateError, Error as Rustls};
use strum::{IntoStaticStr, VariantArray};

/// Why a peer was not let in, or not allowed what it asked.
#[derive(Clone, Copy, Debug, Eq, Hash, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(super) enum Reason {
    /// It showed no certificate.
    NoCertificate,
    /// Another authority made its certificate.
    UnknownCa,
    /// Its certificate has expired.
    Expired,
    /// Its certificate was revoked.
    Revoked,
    /// Its certificate does not hold for another reason.
    Certificate,
    /// It spoke no TLS, or none that is spoken here.
    Tls,
    /// It was too slow.
    Timeout,
    /// It spoke for an address that is not its own.
    OtherAddress,
    /// It showed no password.
    NoPassword,
    /// Its password is wrong.
    Password,
    /// Too many wrong passwords came from it.
    Attempts,
    /// Too many passwords wait to be checked, its own or all.
    Busy,
    /// It asked by a name that is not the gateway's.
    Host,
    /// A page of another site asked.
    Site,
    /// It asks too often.
    Rate,
    /// It subscribes too often.
    SubscriptionRate,
    /// It reports too many connections.
    Reports,
    /// It began a request and did not send all of it, or too much.
    Body,
    /// It does not read what it asked for.
    Unread,
    /// It has too many live streams.
    LiveStreams,
    /// It has too many connections.
    Connections,
    /// It has too many subscriptions.
    Streams,
}

/// What is logged once of a peer.
type Logged = (&'static str, IpAddr, Reason);

/// Counts and logs refusals.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    counts: Family<RefusedLabels, Counter>,
    logged: Mutex<HashMap<Logged, (Instant, u64)>>,
}

/// Labels of refusals.
#[derive(Clone, Copy, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
pub(super) struct RefusedLabels {
    api: &'static str,
    reason: &'static str,
}

/// Time in which a peer's refusals for one reason are one line.
const QUIET: Duration = Duration::from_secs(600);
/// Peers and reasons that are remembered; with that many at once a line each would be no help.
const MAX_LOGGED: usize = 1_024;

impl Refusals {
    pub(super) fn new() -> Self {
        let refusals = Self::default();
        // There from the start at zero, so that the first one is seen as a rise.
        for api in ["grpc", "http"] {
            for reason in Reason::VARIANTS {
                drop(refusals.counts.get_or_create(&RefusedLabels { api, reason: reason.name() }));
            }
        }
        refusals
    }

    pub(super) const fn counts(&self) -> &Family<RefusedLabels, Counter> {
        &self.counts
    }

    /// All refusals but those of who showed no password: every browser's first request shows none, and is asked for one.
    pub(super) fn worth_an_event(&self) -> u64 {
        let of = |api, reason: Reason| self.counts.get_or_create(&RefusedLabels { api, reason: reason.name() }).get();
        let worth = Reason::VARIANTS.iter().filter(|reason| **reason != Reason::NoPassword);
        worth.map(|reason| of("grpc", *reason) + of("http", *reason)).sum()
    }

    /// Counts a refusal, and logs it unless the same one was logged lately.
    pub(super) fn refuse(&self, api: &'static str, reason: Reason, peer: IpAddr, why: &str) {
        self.counts.get_or_create(&RefusedLabels { api, reason: reason.name() }).inc();
        if let Some(suppressed) = self.is_news((api, peer.to_canonical(), reason), Instant::now()) {
            tracing::warn!(api, %peer, reason = reason.name(), suppressed, "refused: {why}");
        }
    }

    /// Whether to log it now, and how many were suppressed since the last time.
    fn is_news(&self, what: Logged, now: Instant) -> Option<u64> {
        let mut logged = self.logged.lock();
        if let Some((at, suppressed)) = logged.get_mut(&what) {
            if now.duration_since(*at) < QUIET {
                *suppressed += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(suppressed));
        }
        if logged.len() >= MAX_LOGGED {
            logged.retain(|_, (at, _)| now.duration_since(*at) < QUIET);
        }
        // With the table full of fresh ones the counters alone speak.
        (logged.len() < MAX_LOGGED).then(|| {
            logged.insert(what, (now, 0));
            0
        })
    }
}

impl Reason {
    /// Its name as a label.
    pub(super) fn name(self) -> &'static str {
        self.into()
    }

    /// Why a handshake failed, with words for the log.
    pub(super) fn of_handshake(error: &io::Error) -> (Self, String) {
        let words = |reason, words: &str| (reason, words.to_owned());
        let rustls = error.get_ref().and_then(|inner| inner.downcast_ref::<Rustls>());
        match rustls {
            Some(Rustls::NoCertificatesPresented) => words(Self::NoCertificate, "it showed no certificate"),
            Some(Rustls::InvalidCertificate(why)) => match why {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                    words(Self::UnknownCa, "the authority in tls.ca did not make its certificate")
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    words(Self::Expired, "its certificate has expired")
                }
                CertificateError::Revoked => words(Self::Revoked, "its certificate was revoked"),
                other => (Self::Certificate, format!("its certificate does not hold: {other}")),
            },
            Some(other) => (Self::Tls, format!("no TLS handshake: {other}")),
            None => (Self::Tls, format!("no TLS handshake: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(last: u8, reason: Reason) -> Logged {
        ("grpc", IpAddr::from([192, 0, 2, last]), reason)
    }

    #[test]
    fn every_reason_is_counted_from_the_start_and_makes_an_event_but_a_browsers_first_request() {
        let refusals = Refusals::new();
        let mut quiet = Vec::new();
        for reason in Reason::VARIANTS {
            let labels = RefusedLabels { api: "http", reason: reason.name() };
            assert_eq!(refusals.counts.get(&labels).map(|count| count.get()), Some(0), "{labels:?}");
            let before = refusals.worth_an_event();
            refusals.refuse("http", *reason, IpAddr::from([192, 0, 2, 1]), "a test");
            quiet.extend((refusals.worth_an_event() == before).then_some(*reason));
        }
        assert_eq!(quiet, [Reason::NoPassword]);
    }

    #[test]
    fn a_peer_and_a_reason_are_news_once_in_ten_minutes() {
        let refusals = Refusals::new();
        let begin = Instant::now();
        assert_eq!(refusals.is_news(what(1, Reason::Tls), begin), Some(0));
        assert_eq!(refusals.is_news(what(1, Reason::Tls), begin), None);
        assert_eq!(refusals.is_news(what(1, Reason::Tls), begin + QUIET / 2), None);
        assert_eq!(refusals.is_news(what(2, Reason::Tls), begin), Some(0), "another peer");
        assert_eq!(refusals.is_news(what(1, Reason::Expired), begin), Some(0), "another reason");
        assert_eq!(refusals.is_news(what(1, Reason::Tls), begin + QUIET), Some(2), "with how many were suppressed");
    }

    #[test]
    fn a_flood_of_peers_costs_no_memory_and_old_ones_make_room() {
        let refusals = Refusals::new();
        let begin = Instant::now();
        let peer = |n: usize| ("http", IpAddr::from((n as u128).to_be_bytes()), Reason::Tls);
        let news = (0..3 * MAX_LOGGED).filter(|&n| refusals.is_news(peer(n), begin).is_some()).count();
        assert_eq!((news, refusals.logged.lock().len()), (MAX_LOGGED, MAX_LOGGED));
        assert!(refusals.is_news(peer(3 * MAX_LOGGED), begin + QUIET).is_some());
        assert_eq!(refusals.logged.lock().len(), 1);
    }
}
