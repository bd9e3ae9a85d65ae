//! The stream of a site: made where it is missing, used as it is where it is there.

use std::time::Duration;

use async_nats::jetstream::context::{
    CreateStreamErrorKind, GetStreamError, GetStreamErrorKind, RequestError, RequestErrorKind,
};
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use async_nats::jetstream::{Context, ErrorCode};

use tokio::time::timeout;

use super::config::NatsConfig;
use super::fault::Fault;
use super::subjects::Subjects;

/// While there is no leader a question is lost: it is asked again soon, to be up soon after an election.
const LEADER_WITHIN: Duration = Duration::from_secs(1);

/// The stream as it is made here.
pub(super) fn wanted(config: &NatsConfig, subjects: &Subjects) -> Config {
    Config {
        name: subjects.stream(),
        subjects: vec![subjects.kept()],
        storage: StorageType::Memory,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        max_age: config.window,
        max_bytes: i64::try_from(config.stream_bytes).unwrap_or(i64::MAX),
        num_replicas: config.replicas,
        allow_direct: true,
        // Nothing is sent under one name twice; NATS would remember every message for as long as this.
        duplicate_window: Duration::from_secs(1).min(config.window),
        ..Config::default()
    }
}

/// The command that makes it.
pub(super) fn how_to_make(wanted: &Config) -> String {
    format!(
        "nats stream add {} --subjects '{}' --storage memory --retention limits --discard old --replicas {} --max-age {}s \
         --max-bytes {} --allow-direct --defaults",
        wanted.name,
        wanted.subjects.join(","),
        wanted.num_replicas,
        wanted.max_age.as_secs(),
        wanted.max_bytes,
    )
}

/// Makes it if it is missing. Tells what is different where it is there; one that is of no use, or not for gateways alone, is refused.
pub(super) async fn ensure(context: &Context, wanted: &Config) -> Result<Option<String>, Fault> {
    if let Some(found) = config_of(context, &wanted.name).await? {
        return usable(&found).map(|()| difference(wanted, &found));
    }
    match context.create_stream(wanted.clone()).await {
        Ok(_) => Ok(None),
        Err(error) => match error.kind() {
            // Another gateway was faster, with other settings.
            CreateStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NAME_EXIST => {
                let found = config_of(context, &wanted.name).await?;
                found.map_or(Ok(None), |found| usable(&found).map(|()| difference(wanted, &found)))
            }
            CreateStreamErrorKind::JetStream(answer) if is_off(answer.error_code()) => Err(jetstream_is_off()),
            CreateStreamErrorKind::JetStreamUnavailable => Err(jetstream_is_off()),
            CreateStreamErrorKind::JetStream(answer) => Err(Fault::of(format!(
                "NATS cannot make the stream {} with {} replicas and {} bytes of memory: {answer}",
                wanted.name, wanted.num_replicas, wanted.max_bytes
            ))),
            _ => Err(no_answer(&wanted.name, &error)),
        },
    }
}

async fn config_of(context: &Context, name: &str) -> Result<Option<Config>, Fault> {
    Ok(info(context, name).await?.map(|info| info.config))
}

/// What the leader of a stream says of it; nothing where there is no such stream.
pub(super) async fn info(context: &Context, name: &str) -> Result<Option<Info>, Fault> {
    let answer = timeout(LEADER_WITHIN, context.get_stream(name)).await;
    match answer.map_err(|_| no_answer(name, &"timed out"))? {
        Ok(stream) => Ok(Some(stream.cached_info().clone())),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(answer) if answer.error_code() == ErrorCode::STREAM_NOT_FOUND => Ok(None),
            GetStreamErrorKind::JetStream(answer) if is_off(answer.error_code()) => Err(jetstream_is_off()),
            GetStreamErrorKind::Request if has_no_responders(&error) => Err(jetstream_is_off()),
            _ => Err(no_answer(name, &error)),
        },
    }
}

/// Nobody takes requests to `JetStream`.
fn has_no_responders(error: &GetStreamError) -> bool {
    let request = std::error::Error::source(error).and_then(|source| source.downcast_ref::<RequestError>());
    request.is_some_and(|request| request.kind() == RequestErrorKind::NoResponders)
}

fn is_off(code: ErrorCode) -> bool {
    [ErrorCode::JETSTREAM_NOT_ENABLED, ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT].contains(&code)
}

fn jetstream_is_off() -> Fault {
    Fault::of("JetStream is off in NATS, or for the user's account: add `jetstream { }` to the servers' configuration")
}

fn no_answer(name: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::absence(format!("NATS does not answer about its stream {name}, as while it elects a leader: {error}"))
}

/// Whether a stream that somebody made keeps what gateways send, and lets them read it. Who made it first may have it say something else.
fn usable(found: &Config) -> Result<(), Fault> {
    let name = &found.name;
    let changes = [
        ("a subject transform", found.subject_transform.is_some()),
        ("a republish", found.republish.is_some()),
        ("a mirror", found.mirror.is_some()),
        ("sources", found.sources.as_ref().is_some_and(|sources| !sources.is_empty())),
    ];
    if let Some((what, _)) = changes.iter().find(|(_, has)| *has) {
        return Err(Fault::of(format!(
            "the NATS stream {name} has {what}, so it holds something else than gateways send: remove it (`nats stream rm {name}`) and make it again"
        )));
    }
    if !found.allow_direct {
        return Err(Fault::of(format!(
            "the NATS stream {name} has no direct gets, by which gateways read it: `nats stream edit {name} --allow-direct`"
        )));
    }
    Ok(())
}

/// What matters and is different, in words.
fn difference(wanted: &Config, found: &Config) -> Option<String> {
    let mut different = Vec::new();
    let mut compare = |what: &str, wanted: String, found: String| {
        if wanted != found {
            different.push(format!("{what} {found} in place of {wanted}"));
        }
    };
    compare("subjects", wanted.subjects.join(" "), found.subjects.join(" "));
    compare("age", format!("{:?}", wanted.max_age), format!("{:?}", found.max_age));
    compare("replicas", wanted.num_replicas.to_string(), found.num_replicas.to_string());
    compare("bytes", wanted.max_bytes.to_string(), found.max_bytes.to_string());
    compare("storage", format!("{:?}", wanted.storage), format!("{:?}", found.storage));
    (!different.is_empty())
        .then(|| format!("the NATS stream {} is used as it is: {}", wanted.name, different.join(", ")))
}
