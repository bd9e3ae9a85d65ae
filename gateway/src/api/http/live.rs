//! `/v1/live`: the present again and again, as server-sent events (WHATWG HTML section 9.2).
//!
//! Every message stands alone, and is made only when the last one has left. So a reader that is too slow costs no memory: it
//! misses messages, and the next one says so.

use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::http::{StatusCode, Uri};
use axum::response::Sse;
use axum::response::sse::Event;
use futures::Stream;
use futures::stream::unfold;
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::events::EventsDocument;
use super::parameters::Parameters;
use super::problem::Problem;
use super::traffic::TrafficDocument;
use crate::api::Api;
use crate::api::connection::Peer;
use crate::api::places::{NoPlace, Place, Request};
use crate::api::refusals::Reason;

/// Longest life of a stream: it ends in order before its connection is closed for its age, and the reader comes back.
const LONGEST: Duration = Duration::from_secs(240);
/// A reader that comes back waits this long.
const RETRY: Duration = Duration::from_secs(1);
/// Entries of the log in one message; more are left to `/v1/events`.
const ENTRIES: usize = 50;

type Messages = Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>>;

/// One message.
#[derive(Debug, Serialize)]
struct LiveDocument {
    traffic: TrafficDocument,
    #[serde(flatten)]
    log: EventsDocument,
    /// Messages or entries were left out: the reader has to request the state again.
    resync: bool,
}

struct Live {
    api: Api,
    ends: Instant,
    /// When the next message is due.
    due: Instant,
    /// The next entry of the log.
    entry: u64,
    place: Place,
    _works: Request,
}

pub(super) async fn live(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    uri: Uri,
) -> Result<([(HeaderName, &'static str); 1], Sse<Messages>), Problem> {
    Parameters::parse(&uri, &[])?;
    let place = match api.shared.live.take(peer.address) {
        Ok((place, _)) => place,
        Err(NoPlace::AtAll) => {
            api.shared.measures.live_refused.inc();
            let most = api.shared.config.live_streams;
            let detail = format!("{most} live streams are open already: close one");
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
        }
        Err(NoPlace::OfPeer) => {
            let most = api.shared.config.live_streams_per_peer;
            let why = format!(
                "{most} live streams of this address are open already: close one, or raise api.connections_per_peer"
            );
            api.shared.refusals.refuse("http", Reason::LiveStreams, peer.address, &why);
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, why));
        }
    };
    let works = place.mark().request();
    let now = Instant::now();
    let entry = api.shared.published.log_next();
    let live = Live { api, ends: now + LONGEST, due: now, entry, place, _works: works };
    let messages: Messages = Box::pin(unfold(live, |mut live| async move {
        let message = live.next().await?;
        Some((Ok(message), live))
    }));
    Ok(([(CACHE_CONTROL, "no-store")], Sse::new(messages)))
}

impl Live {
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            () = sleep_until(self.due) => {}
            // The reader comes back, and is refused where it has too many.
            () = self.place.displaced() => return None,
        }
        let (now, interval) = (Instant::now(), self.api.shared.config.live_interval);
        let published = &self.api.shared.published;
        if now >= self.ends || published.is_closed() {
            return None;
        }
        let log = EventsDocument::new(published, self.entry, ENTRIES);
        let resync = log.missing > 0 || now.duration_since(self.due) > interval;
        if resync {
            self.api.shared.measures.live_resyncs.inc();
        }
        self.entry = log.next;
        self.due = now + interval;
        let document = LiveDocument { traffic: TrafficDocument::new(published), log, resync };
        Event::default().event("now").retry(RETRY).json_data(&document).ok()
    }
}
