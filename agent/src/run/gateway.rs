//! The subscription as `status` and the log show it.

use std::fmt;

use spand_proto::operator::{rfc3339_ms, rfc3339_unix_s};
use spand_proto::units::Timestamp;
use tracing::{info, warn};

use crate::control::{GatewayStanding, GatewayStatus};
use crate::subscriber::TlsStatus;

/// Lines of the log about the reasons of one outage, at most.
const LOGGED_MOST: usize = 16;

/// Follows the subscription.
#[derive(Debug)]
pub(super) struct GatewayWatch {
    status: GatewayStatus,
    /// All of the list, and why each failed last.
    errors: Vec<(String, Option<String>)>,
    /// The gateway in use, or that was last; at first the first.
    url: String,
    /// When it was connected or lost.
    since: Timestamp,
    /// Failures since the last whole snapshot, and the time of the first.
    failures: u64,
    failing_since: Timestamp,
    /// Gateways and reasons that the log has of the outage.
    logged: Vec<(String, String)>,
    next_retry: Option<Timestamp>,
    /// Whether the stream that is open has given a whole snapshot.
    whole: bool,
}

/// What hosts have until the gateway is back.
struct Meanwhile {
    expiry: Option<Timestamp>,
    next_retry: Timestamp,
    now: Timestamp,
}

impl fmt::Display for Meanwhile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let retry = self.next_retry.since(self.now);
        match self.expiry.map(|expiry| expiry.since(self.now).0.div_ceil(1_000_000)) {
            None | Some(0) => f.write_str("no advice is held")?,
            Some(rest_s) => write!(f, "advice expires in at most {rest_s} s")?,
        }
        match retry.0 / 1_000 {
            ms @ ..1_000 => write!(f, "; retrying in {ms} ms"),
            ms => write!(f, "; retrying in {} s", ms / 1_000),
        }
    }
}

impl GatewayWatch {
    /// Of these, in the order in which they are tried.
    pub(super) fn new(urls: &[String], now: Timestamp) -> Self {
        Self {
            status: GatewayStatus::default(),
            errors: urls.iter().map(|url| (url.clone(), None)).collect(),
            url: urls.first().cloned().unwrap_or_default(),
            since: now,
            failures: 0,
            failing_since: now,
            logged: Vec::new(),
            next_retry: None,
            whole: false,
        }
    }

    /// A stream from this gateway was opened, perhaps while one from another was open.
    pub(super) fn on_connected(&mut self, url: String, now: Timestamp) {
        if self.status.connections > 0 && url != self.url {
            self.status.gateway_changes += 1;
            info!(gateway = url, from = self.url, "changed to another gateway");
        }
        self.url = url;
        self.status.connections += 1;
        self.status.connected = true;
        self.since = now;
        self.next_retry = None;
        self.whole = false;
    }

    /// A snapshot ended. A gateway counts as back only with a whole one, not one that
    /// ends every stream at once.
    pub(super) fn on_snapshot(&mut self, networks: usize, addresses: usize, now: Timestamp) {
        if std::mem::replace(&mut self.whole, true) {
            return;
        }
        let gateway = &self.url;
        for (_, error) in self.errors.iter_mut().filter(|(url, _)| url == gateway) {
            *error = None;
        }
        self.logged.clear();
        match std::mem::take(&mut self.failures) {
            0 => info!(gateway, addresses, networks, "subscribed"),
            failures => {
                let seconds = now.since(self.failing_since).0 / 1_000_000;
                info!(gateway, addresses, networks, "subscribed again after {failures} failures in {seconds} s");
            }
        }
    }

    /// Updates are missing; the gateway resynchronises.
    pub(super) const fn on_gap(&mut self) {
        self.status.gaps += 1;
    }

    /// An update could not be read.
    pub(super) const fn on_unreadable(&mut self) {
        self.status.unreadable += 1;
    }

    /// This gateway did not take this host.
    pub(super) fn on_failed(&mut self, gateway: &str, why: &str) {
        for (_, error) in self.errors.iter_mut().filter(|(url, _)| url == gateway) {
            *error = Some(why.to_owned());
        }
    }

    /// The stream ended or could not be opened; what is held expires at `expiry` at the latest. The log has a line for the first failure
    /// and for each new reason of a gateway, up to [`LOGGED_MOST`] of an outage.
    pub(super) fn on_lost(
        &mut self,
        gateway: &str,
        why: String,
        next_retry: Timestamp,
        expiry: Option<Timestamp>,
        now: Timestamp,
    ) {
        self.on_end(now);
        self.next_retry = Some(next_retry);
        if self.failures == 0 {
            self.failing_since = now;
        }
        self.failures += 1;
        self.on_failed(gateway, &why);
        let line = (gateway.to_owned(), why.clone());
        let is_new = self.logged.len() < LOGGED_MOST && !self.logged.contains(&line);
        if is_new {
            self.logged.push(line);
        }
        let meanwhile = Meanwhile { expiry, next_retry, now };
        match self.failures {
            1 if self.status.connections > 0 => warn!(gateway, why, "lost the gateway; {meanwhile}"),
            1 => warn!(gateway, why, "cannot subscribe yet; {meanwhile}"),
            _ if is_new => warn!(gateway, why, "still not subscribed; {meanwhile}"),
            _ => {}
        }
        self.status.last_error = Some(why);
    }

    /// This host ended the stream and opens another at once.
    pub(super) fn on_restarted(&mut self, why: String, now: Timestamp) {
        self.on_end(now);
        info!(gateway = self.url, why, "subscribing again");
        self.status.last_error = Some(why);
    }

    fn on_end(&mut self, now: Timestamp) {
        if std::mem::replace(&mut self.status.connected, false) {
            self.since = now;
        }
    }

    /// As `status` shows it, where the wall clock shows `wall_ns`.
    pub(super) fn shown(&self, tls: TlsStatus, now: Timestamp, wall_ns: u64) -> GatewayStatus {
        let wall = |at: Timestamp| rfc3339_ms(Timestamp(wall_ns.saturating_add(at.0.saturating_sub(now.0))));
        let next_retry = self.next_retry.filter(|at| !self.status.connected && *at > now);
        let standing = |(url, last_error): &(String, Option<String>)| GatewayStanding {
            url: url.clone(),
            in_use: self.status.connected && *url == self.url,
            last_error: last_error.clone(),
        };
        GatewayStatus {
            url: self.url.clone(),
            gateways: self.errors.iter().map(standing).collect(),
            since_s: now.since(self.since).0 / 1_000_000,
            certificate_not_after: tls.ends_unix_s.map(|end| rfc3339_unix_s(end.try_into().unwrap_or(0))),
            tls_failures: tls.failures,
            failed_attempts: self.failures,
            next_retry_at: next_retry.map(wall),
            ..self.status.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL_NS: u64 = 1_800_000_000_000_000_000;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + second * 1_000_000)
    }

    fn url(name: &str) -> String {
        format!("http://{name}:7400")
    }

    fn shown(watch: &GatewayWatch, second: u64) -> (bool, u64, u64, Option<String>) {
        let shown = watch.shown(TlsStatus::default(), at(second), WALL_NS);
        (shown.connected, shown.since_s, shown.failed_attempts, shown.next_retry_at)
    }

    #[test]
    fn the_line_says_what_is_left_of_advice_and_when_the_next_attempt_is() {
        let line =
            |expiry: Option<u64>, next_retry| Meanwhile { expiry: expiry.map(at), next_retry, now: at(10) }.to_string();
        assert_eq!(line(Some(70), at(27)), "advice expires in at most 60 s; retrying in 17 s");
        assert_eq!(line(Some(10), at(27)), "no advice is held; retrying in 17 s");
        assert_eq!(line(None, Timestamp(at(10).0 + 170_000_000)), "no advice is held; retrying in 170 ms");
    }

    #[test]
    fn status_says_when_the_next_attempt_is_until_it_begins() {
        let mut watch = GatewayWatch::new(&[url("gateway")], at(0));
        let lost = |watch: &mut GatewayWatch, second, retry| {
            watch.on_lost(&url("gateway"), "refused".to_owned(), at(retry), None, at(second));
        };
        lost(&mut watch, 5, 22);
        let seventeen = Some("2027-01-15T08:00:17.000Z".to_owned());
        assert_eq!(shown(&watch, 5), (false, 5, 1, seventeen));
        assert_eq!(shown(&watch, 22), (false, 22, 1, None), "the attempt is under way");
        lost(&mut watch, 23, 53);
        assert_eq!(shown(&watch, 52).2, 2);
        assert_eq!(shown(&watch, 52).3.as_deref(), Some("2027-01-15T08:00:01.000Z"));
        watch.on_connected(url("gateway"), at(53));
        assert_eq!(shown(&watch, 54), (true, 1, 2, None));
        // A stream that ends before its snapshot is whole ends no outage.
        lost(&mut watch, 55, 60);
        watch.on_connected(url("gateway"), at(60));
        watch.on_snapshot(1, 1, at(61));
        assert_eq!(shown(&watch, 61), (true, 1, 0, None));
        lost(&mut watch, 70, 71);
        assert_eq!(shown(&watch, 70).2, 1, "a new outage");
    }

    #[test]
    fn a_change_of_gateway_is_counted_and_each_has_its_error_until_a_whole_snapshot() {
        let urls = ["a", "b"].map(url);
        let mut watch = GatewayWatch::new(&urls, at(0));
        let status = |watch: &GatewayWatch| watch.shown(TlsStatus::default(), at(20), WALL_NS);
        assert_eq!((status(&watch).url.as_str(), status(&watch).gateways[0].in_use), (urls[0].as_str(), false));
        watch.on_lost(&urls[0], "refused".to_owned(), at(1), None, at(1));
        watch.on_connected(urls[1].clone(), at(1));
        assert_eq!(status(&watch).gateway_changes, 0, "the first");
        watch.on_connected(urls[0].clone(), at(10));
        watch.on_connected(urls[0].clone(), at(11));
        assert_eq!(status(&watch).gateways[0].last_error.as_deref(), Some("refused"));
        watch.on_snapshot(1, 1, at(12));
        let status = status(&watch);
        assert_eq!((status.gateway_changes, status.connections, status.connected), (1, 3, true));
        let each: Vec<_> = status.gateways.iter().map(|one| (one.in_use, one.last_error.as_deref())).collect();
        assert_eq!(each, [(true, None), (false, None)]);
    }
}
