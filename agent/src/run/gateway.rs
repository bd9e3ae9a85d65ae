//! The subscription as `status` and the log show it.

use std::fmt;

use spand_proto::operator::{rfc3339_ms, rfc3339_unix_s};
use spand_proto::units::{Micros, Timestamp};
use tracing::{info, warn};

use crate::control::{GatewayStanding, GatewayStatus};
use crate::subscriber::{Lasting, News, Outage, Place, Standing, TlsStatus};

/// Follows the subscription.
#[derive(Debug)]
pub(super) struct GatewayWatch {
    status: GatewayStatus,
    /// The gateway in use, or that was last; at first the one that is preferred.
    place: Place,
    /// When it was connected or lost.
    since: Timestamp,
    outage: Outage,
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
    /// Of these, in the order in which this host prefers them.
    pub(super) fn new(places: &[Place], now: Timestamp) -> Self {
        let preferred = places.first().cloned();
        Self {
            status: GatewayStatus::default(),
            place: preferred.unwrap_or_else(|| Place { url: String::new(), group: 1, rank: 1 }),
            since: now,
            outage: Outage::default(),
            next_retry: None,
            whole: false,
        }
    }

    /// A stream from this gateway was opened, perhaps while one from another was open.
    pub(super) fn on_connected(&mut self, place: Place, now: Timestamp) {
        if self.status.connections > 0 && place != self.place {
            self.status.gateway_changes += 1;
            info!(gateway = place.url, group = place.group, from = self.place.url, "changed to another gateway");
        }
        self.place = place;
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
        let gateway = &self.place.url;
        if let Some(Lasting { attempts, time }) = self.outage.end(now) {
            info!(gateway, addresses, networks, "subscribed again after {attempts} failures in {}", seconds(time));
        } else {
            info!(gateway, addresses, networks, "subscribed");
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

    /// The stream ended or could not be opened; what is held expires at `expiry` at the latest.
    pub(super) fn on_lost(
        &mut self,
        gateway: &Place,
        why: String,
        next_retry: Timestamp,
        expiry: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<News> {
        self.on_end(now);
        self.next_retry = Some(next_retry);
        let news = self.outage.on_failure(&format!("{}: {why}", gateway.url), now);
        let gateway = &gateway.url;
        let meanwhile = Meanwhile { expiry, next_retry, now };
        match news {
            Some(News::Lost) if self.status.connections > 0 => warn!(gateway, why, "lost the gateway; {meanwhile}"),
            Some(News::Lost) => warn!(gateway, why, "cannot subscribe yet; {meanwhile}"),
            Some(News::Reason(_)) => warn!(gateway, why, "still not subscribed, for another reason; {meanwhile}"),
            Some(News::Reminder(Lasting { attempts, time })) => {
                warn!(gateway, why, "still not subscribed after {attempts} failures in {}; {meanwhile}", seconds(time));
            }
            None => {}
        }
        self.status.last_error = Some(why);
        news
    }

    /// This host ended the stream and opens another at once.
    pub(super) fn on_restarted(&mut self, why: String, now: Timestamp) {
        self.on_end(now);
        info!(gateway = self.place.url, why, "subscribing again");
        self.status.last_error = Some(why);
    }

    fn on_end(&mut self, now: Timestamp) {
        if std::mem::replace(&mut self.status.connected, false) {
            self.since = now;
        }
    }

    /// As `status` shows it, where the wall clock shows `wall_ns`.
    pub(super) fn shown(&self, tls: TlsStatus, standings: &[Standing], now: Timestamp, wall_ns: u64) -> GatewayStatus {
        let wall = |at: Timestamp| rfc3339_ms(Timestamp(wall_ns.saturating_add(at.0.saturating_sub(now.0))));
        let next_retry = self.next_retry.filter(|at| !self.status.connected && *at > now);
        let standing = |standing: &Standing| GatewayStanding {
            url: standing.place.url.clone(),
            group: standing.place.group,
            rank: standing.place.rank,
            in_use: self.status.connected && standing.place == self.place,
            up_s: standing.up_since.map(|since| now.since(since).0 / 1_000_000),
            last_error: standing.last_error.clone(),
            next_attempt_at: standing.next_attempt.map(wall),
        };
        GatewayStatus {
            url: self.place.url.clone(),
            group: self.place.group,
            rank: self.place.rank,
            gateways: standings.iter().map(standing).collect(),
            since_s: now.since(self.since).0 / 1_000_000,
            certificate_not_after: tls.ends_unix_s.map(|end| rfc3339_unix_s(end.try_into().unwrap_or(0))),
            tls_failures: tls.failures,
            failed_attempts: self.outage.lasting(now).map_or(0, |lasting| lasting.attempts),
            next_retry_at: next_retry.map(wall),
            ..self.status.clone()
        }
    }
}

fn seconds(time: Micros) -> String {
    format!("{} s", time.0 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL_NS: u64 = 1_800_000_000_000_000_000;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + second * 1_000_000)
    }

    fn place(name: &str) -> Place {
        Place { url: format!("http://{name}:7400"), group: 1, rank: 1 }
    }

    fn shown(watch: &GatewayWatch, second: u64) -> (bool, u64, u64, Option<String>) {
        let shown = watch.shown(TlsStatus::default(), &[], at(second), WALL_NS);
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
        let mut watch = GatewayWatch::new(&[place("gateway")], at(0));
        let lost = |watch: &mut GatewayWatch, second, retry| {
            watch.on_lost(&place("gateway"), "refused".to_owned(), at(retry), None, at(second)).is_some()
        };
        assert!(lost(&mut watch, 5, 22));
        let seventeen = Some("2027-01-15T08:00:17.000Z".to_owned());
        assert_eq!(shown(&watch, 5), (false, 5, 1, seventeen));
        assert_eq!(shown(&watch, 22), (false, 22, 1, None), "the attempt is under way");
        assert!(!lost(&mut watch, 23, 53), "nothing new");
        assert_eq!(shown(&watch, 52).2, 2);
        assert_eq!(shown(&watch, 52).3.as_deref(), Some("2027-01-15T08:00:01.000Z"));
        watch.on_connected(place("gateway"), at(53));
        assert_eq!(shown(&watch, 54), (true, 1, 2, None));
        // A stream that ends before its snapshot is whole ends no outage.
        assert!(!lost(&mut watch, 55, 60));
        watch.on_connected(place("gateway"), at(60));
        watch.on_snapshot(1, 1, at(61));
        assert_eq!(shown(&watch, 61), (true, 1, 0, None));
        assert!(lost(&mut watch, 70, 71), "a new outage");
    }
    #[test]
    fn a_change_of_gateway_is_counted_and_what_is_in_use_is_marked() {
        let places = ["a", "b"].map(place);
        let mut watch = GatewayWatch::new(&places, at(0));
        let shown = |watch: &GatewayWatch| {
            let standing = |place: &Place| Standing {
                place: place.clone(),
                last_error: None,
                next_attempt: Some(at(30)),
                up_since: Some(at(5)),
            };
            watch.shown(TlsStatus::default(), &places.each_ref().map(standing), at(20), WALL_NS)
        };
        let url = places[0].url.clone();
        assert_eq!(
            (shown(&watch).url, shown(&watch).gateways[0].in_use),
            (url, false),
            "the preferred one, not yet in use"
        );
        watch.on_lost(&places[0], "refused".to_owned(), at(1), None, at(1));
        watch.on_connected(places[1].clone(), at(1));
        assert_eq!(shown(&watch).gateway_changes, 0, "the first");
        watch.on_connected(places[0].clone(), at(10));
        watch.on_connected(places[0].clone(), at(11));
        let status = shown(&watch);
        assert_eq!((status.gateway_changes, status.connections, status.connected), (1, 3, true));
        assert_eq!(status.gateways.iter().map(|gateway| gateway.in_use).collect::<Vec<_>>(), [true, false]);
        let second = &status.gateways[1];
        assert_eq!((second.up_s, second.next_attempt_at.as_deref()), (Some(15), Some("2027-01-15T08:00:10.000Z")));
    }
}
