//! Asks the servers for the streams with closed cells, the site's own and the copies of other sites' streams, and for their states. It reads
//! no message of them (`catch_up`) and makes none (`stream`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Info;
use futures::TryStreamExt;
use futures::future::join_all;

use super::stream;
use super::subjects::Subjects;
use crate::exchange::{MirrorLag, SiteStream, StreamFault, StreamState};

/// The names of the streams that exist, and the state of each of this site, of sites whose gateways are heard, and of sites that the servers list.
pub(super) async fn look(
    context: Context,
    subjects: Arc<Subjects>,
    mut sites: BTreeSet<String>,
) -> (Vec<String>, Vec<SiteStream>) {
    let prefix = subjects.stream_prefix();
    let names: Result<Vec<String>, _> = context.stream_names().try_collect().await;
    let names = names.map(|names| names.into_iter().filter(|name| name.starts_with(&prefix)).collect());
    let there: Option<Vec<String>> =
        names.inspect_err(|error| tracing::debug!(%error, "cannot list NATS streams")).ok();
    sites.insert(subjects.site().to_owned());
    let wanted = sites.clone();
    sites.extend(there.iter().flatten().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned));
    let found = sites.into_iter().map(async |site| {
        let name = subjects.stream_of(&site);
        let is_there = there.as_ref().is_none_or(|there| there.contains(&name));
        let info = if is_there { stream::info(&context, &name).await } else { Ok(None) };
        let is_wanted = wanted.contains(&site);
        let keeping = |info: Info| keeping(&info, is_wanted, SystemTime::now());
        let found =
            info.map_err(|_| StreamFault::NoAnswer).and_then(|info| info.map(keeping).ok_or(StreamFault::Missing));
        // A stream without an answer may belong to a cluster whose name begins like this one's.
        (found.is_ok() || is_wanted).then_some(SiteStream { site, found })
    });
    let kept = join_all(found).await.into_iter().flatten().collect();
    (there.unwrap_or_default(), kept)
}

/// The state of a stream. Gateways write every few seconds, so a copy of a site that `is_heard` is as old as its newest message: after all
/// servers of that site restarted, it takes nothing more, since their messages have lower numbers, and its own servers report no lag.
fn keeping(info: &Info, is_heard: bool, now: SystemTime) -> StreamState {
    let current = info.cluster.as_ref().map_or(1, |cluster| {
        let others = cluster.replicas.iter().filter(|replica| replica.current && !replica.offline);
        usize::from(cluster.leader.is_some()) + others.count()
    });
    let age = || now.duration_since(info.state.last_timestamp.into()).unwrap_or_default();
    let newest = (info.state.last_sequence > 0).then(age);
    let copy = info.mirror.as_ref().map(|mirror| MirrorLag {
        messages: mirror.lag,
        heard: if is_heard {
            mirror.active.zip(newest).map(|(active, newest)| active.max(newest))
        } else {
            mirror.active
        },
    });
    StreamState { current, replicas: info.config.num_replicas, copy }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_is_as_old_as_its_newest_message_where_the_site_is_heard() {
        let now = humantime::parse_rfc3339("2027-01-15T08:00:40Z").unwrap();
        let of = |last_seq: u64, active: i64, is_heard| {
            let info = json!({
                "config": { "name": "spand-c-b", "retention": "limits", "storage": "memory", "discard": "old", "num_replicas": 3,
                    "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "max_msgs_per_subject": -1 },
                "created": "2027-01-15T08:00:00Z",
                "state": { "messages": 1, "bytes": 9, "first_seq": 1, "first_ts": "2027-01-15T08:00:00Z",
                    "last_seq": last_seq, "last_ts": "2027-01-15T08:00:00Z", "consumer_count": 0 },
                "cluster": { "leader": "n1", "replicas": [
                    { "name": "n2", "current": true, "active": 1 }, { "name": "n3", "current": false, "active": 1 },
                ] },
                "mirror": { "name": "spand-c-b", "lag": 4, "active": active },
                "total": 0, "offset": 0, "limit": 0,
            });
            keeping(&serde_json::from_value(info).unwrap(), is_heard, now)
        };
        let second = Duration::from_secs(1);
        let lag = |heard| Some(MirrorLag { messages: 4, heard });
        assert_eq!(of(7, 1_000_000_000, false), StreamState { current: 2, replicas: 3, copy: lag(Some(second)) });
        assert_eq!(of(7, 1_000_000_000, true).copy, lag(Some(40 * second)));
        assert_eq!(of(7, 60_000_000_000, true).copy, lag(Some(60 * second)));
        assert_eq!([of(0, 1_000_000_000, true).copy, of(7, -1, true).copy], [lag(None), lag(None)]);
    }
}
