//! Messages of the contract from any bytes, on both sides: what is taken comes back the same from the wire, and an agent
//! that holds it keeps its limits and gives no start beyond them.

#![no_main]

use std::num::NonZeroUsize;

use libfuzzer_sys::fuzz_target;
use prost::Message;
use spand_agent::config::Config;
use spand_agent::policy::{Connection, Question, Verdict, decide};
use spand_agent::subscriber::Holdings;
use spand_proto::convert::{WireError, answers_from_wire, answers_to_wire};
use spand_proto::push::{Subscription, Update};
use spand_proto::query::Query;
use spand_proto::report::{Report, ReportReceipt};
use spand_proto::units::{Micros, Segments, Timestamp};
use spand_proto::v1;

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);
const NETWORKS: usize = 4;

fuzz_target!(|data: &[u8]| {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 6 {
        0 => both_ways(bytes, |message: v1::QueryRequest| Query::try_from(message), |query| query.into()),
        1 => both_ways(bytes, |message: v1::SubscribeRequest| Subscription::try_from(message), |value| value.into()),
        2 => both_ways(bytes, |message: v1::ReportRequest| Report::try_from(message), |report| report.into()),
        3 => both_ways(bytes, |message| answers_from_wire(message, NOW), |answers| answers_to_wire(answers, NOW)),
        4 => both_ways(
            bytes,
            |message: v1::ReportResponse| ReportReceipt::try_from(message),
            |receipt| (*receipt).into(),
        ),
        _ => pushes(bytes),
    }
});

/// A message that is read and written again is the same.
fn both_ways<M: Message + Default, T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    read: impl Fn(M) -> Result<T, WireError>,
    write: impl Fn(&T) -> M,
) {
    let Ok(message) = M::decode(bytes) else { return };
    match read(message) {
        Ok(value) => {
            let again = M::decode(&write(&value).encode_to_vec()[..]).expect("what we encode");
            assert_eq!(read(again).as_ref(), Ok(&value));
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(sentence.len() < 1_000 && !sentence.chars().any(char::is_control), "{sentence}");
        }
    }
}

/// A stream of updates, each with its length before it, as an agent takes them.
fn pushes(mut bytes: &[u8]) {
    let limit = NonZeroUsize::new(NETWORKS).unwrap_or(NonZeroUsize::MIN);
    let mut holdings = Holdings::new(limit, Micros::from_secs(60));
    let policy = Config::default().policy();
    let mut now = NOW;
    while let Ok(message) = v1::Update::decode_length_delimited(&mut bytes) {
        now = now.after(Micros::from_millis(700));
        let Ok(update) = Update::from_wire(message, now) else { continue };
        let again = v1::Update::decode(&update.to_wire(now).encode_to_vec()[..]).expect("what we encode");
        assert_eq!(Update::from_wire(again, now).as_ref(), Ok(&update));
        holdings.on_event(&update.event, now);
        holdings.expire(now);
        holdings.expire_sizes(now);
        assert!(holdings.len() <= NETWORKS);
        for (network, advice) in holdings.iter() {
            assert!(advice.expires > now && advice.expires <= now.after(Micros::from_secs(60)));
            assert!(holdings.lookup(network.prefix().addr()).is_some());
            let question = Question {
                network,
                within: holdings.around_client(network),
                advice: Some(advice),
                now,
                wall_unix_s: 1_700_000_000,
                paused: false,
                connection: Connection::default(),
            };
            let decision = decide(&question, &policy);
            if let Verdict::Apply(window) = decision.verdict {
                assert!((Segments(2)..=Segments(100)).contains(&window), "{decision:?}");
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
}
