//! The way back to a gateway that this host prefers to the one in use. Make before break: the stream that is open goes on
//! until the other gateway has given a whole snapshot.

use std::net::IpAddr;
use std::time::Duration;

use spand_proto::push::UpdateEvent;
use spand_proto::query::{Query, Question};
use spand_proto::start::TransferSize;
use spand_proto::units::Segments;
use spand_proto::v1;
use spand_proto::v1::spand_client::SpandClient;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tracing::debug;

use super::stream::{Heard, Stream, StreamError};
use super::{Dialer, Origin, Signal, Speaker, words};
use crate::clock::Clock;

/// An address of the documentation (RFC 5737): whatever is answered about it, an answer came.
const NOWHERE: [u8; 4] = [192, 0, 2, 1];

/// Updates of the new stream that wait for the end of its snapshot. With more of them this host changes over before it ends: what
/// was held stays until then.
const MOST_WAITING: usize = 65_536;

/// A stream of a preferred gateway, and what it has sent so far.
#[derive(Debug)]
pub(super) struct Returned {
    pub(super) stream: Stream,
    pub(super) heard: Vec<Signal>,
}

/// Waits until a gateway that is preferred to the one in use has been up for long enough, and subscribes there. For ever where
/// none is preferred.
pub(super) async fn way_back(dialer: &Dialer, clock: Clock, speaker: &Speaker, own: &[IpAddr]) -> Returned {
    // One draw for all of them, so that the most preferred of those that came back together is due first.
    let patience = patience(dialer);
    let mut clients = vec![None; dialer.places().len()];
    loop {
        let next = dialer.candidates().next_look(clock.now());
        let Some((at, when)) = next else { return std::future::pending().await };
        tokio::time::sleep(when.since(clock.now()).into()).await;
        let is_due = match look_at(dialer, at, &mut clients).await {
            Ok(()) => dialer.candidates().on_up(at, clock.now(), patience, rand::random()),
            Err(why) => {
                debug!(%why, "a preferred gateway does not answer yet");
                dialer.candidates().on_failed(at, why, clock.now(), rand::random());
                false
            }
        };
        if !is_due {
            continue;
        }
        match subscribe(dialer, at, clock, speaker, own).await {
            Ok(returned) => return returned,
            Err(error) => dialer.candidates().on_failed(at, error.to_string(), clock.now(), rand::random()),
        }
    }
}

fn patience(dialer: &Dialer) -> Duration {
    let [least, more] = dialer.timing().up;
    least + more.mul_f64(rand::random())
}

/// Whether the gateway answers. The connection is kept while it does: with TLS one costs both sides a handshake.
async fn look_at(dialer: &Dialer, at: usize, clients: &mut [Option<SpandClient<Channel>>]) -> Result<(), String> {
    let timeout = Duration::from_millis(dialer.gateway().timeout_ms.get());
    let kept = clients.get_mut(at).and_then(Option::take);
    let looked = tokio::time::timeout(timeout, async {
        let mut client = match kept {
            Some(client) => client,
            None => dialer.connect_to(at).await?,
        };
        match look(&mut client).await {
            // One that has too many hosts to answer for the moment is there.
            Err(status) if status.code() != Code::ResourceExhausted => Err(words(&status)),
            _ => Ok(client),
        }
    });
    let client = looked.await.map_err(|_| format!("no answer within {timeout:?}"))??;
    if let Some(kept) = clients.get_mut(at) {
        *kept = Some(client);
    }
    Ok(())
}

/// Asks for as little as can be asked for; what came with the answer.
pub(crate) async fn look(client: &mut SpandClient<Channel>) -> Result<MetadataMap, Status> {
    let question = Question {
        address: NOWHERE.into(),
        size: TransferSize::Unknown,
        mss: None,
        snd_wnd: None,
        handshake_rtt: None,
        service: None,
    };
    let query = Query { mode: None, initial_window: Segments(10), questions: vec![question] };
    Ok(client.query(v1::QueryRequest::from(&query)).await?.metadata().clone())
}

/// Subscribes, and waits for the end of the snapshot.
async fn subscribe(
    dialer: &Dialer,
    at: usize,
    clock: Clock,
    speaker: &Speaker,
    own: &[IpAddr],
) -> Result<Returned, StreamError> {
    // Nothing is to be adopted: the stream that is open renews what is held.
    let mut stream = Stream::open(dialer, at, &speaker.subscription(own, &Origin::default(), clock)).await?;
    let mut heard = Vec::new();
    while heard.len() < MOST_WAITING {
        let Heard { gap, signal } = stream.next(clock).await?;
        heard.extend(gap.then_some(Signal::Gap));
        let is_whole = is_snapshot_end(&signal);
        heard.push(late(signal));
        if is_whole {
            dialer.candidates().on_whole(at);
            break;
        }
    }
    Ok(Returned { stream, heard })
}

pub(super) fn is_snapshot_end(signal: &Signal) -> bool {
    matches!(signal, Signal::Event(event, _) if matches!(**event, UpdateEvent::SnapshotEnd { .. }))
}

/// What is left of a signal that waits: the connection that a start announces has begun by then, on what the gateway in use
/// sent about it.
fn late(signal: Signal) -> Signal {
    match signal {
        Signal::Event(event, arrived) => match *event {
            UpdateEvent::ImminentStart(start) => {
                Signal::Event(Box::new(UpdateEvent::Estimate(start.estimate)), arrived)
            }
            event => Signal::Event(Box::new(event), arrived),
        },
        signal => signal,
    }
}
