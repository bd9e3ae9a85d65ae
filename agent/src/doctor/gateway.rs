//! The path to the gateway, and its clock against ours.

use std::time::{Duration, SystemTime};

use spand_proto::operator::Check;
use spand_proto::query::{Query, Question};
use spand_proto::start::TransferSize;
use spand_proto::units::Segments;
use spand_proto::v1;
use tonic::metadata::MetadataMap;

use crate::config::Config;
use crate::control::Status;
use crate::subscriber::{Dialer, words};

/// An address of the documentation (RFC 5737): whatever is answered about it, an answer came.
const NOWHERE: [u8; 4] = [192, 0, 2, 1];
/// Clocks further apart than this make hosts leave networks alone at different times, as `[holdout]` has it. The date of an
/// answer is a whole second.
const SKEW: Duration = Duration::from_secs(5);

pub(super) async fn look(config: &Config, status: Option<&Status>) -> Vec<Check> {
    let url = &config.gateway.url;
    let patience = Duration::from_millis(config.gateway.timeout_ms.get());
    let to_do = "check gateway.url, that the gateway runs, that its api.grpc_listen is an address which this host reaches, and \
                 firewalls between";
    let mut checks = match tokio::time::timeout(patience, ask(config)).await {
        Err(_) => vec![Check::fail("gateway", format!("{url} does not answer within {patience:?}"), to_do)],
        Ok(Err(why)) => vec![Check::fail("gateway", format!("{url}: {why}"), to_do)],
        Ok(Ok(metadata)) => vec![Check::ok("gateway", format!("{url} answers")), clock(&metadata)],
    };
    if let Some(status) = status {
        checks.push(subscription(status));
    }
    checks
}

async fn ask(config: &Config) -> Result<MetadataMap, String> {
    let mut client = Dialer::new(config).map_err(|error| error.to_string())?.connect().await?;
    let question = Question {
        address: NOWHERE.into(),
        size: TransferSize::Unknown,
        mss: None,
        snd_wnd: None,
        handshake_rtt: None,
        service: None,
    };
    let initial_window = Segments(config.policy.initial_window_segments.get());
    let query = Query { mode: Some(config.mode), initial_window, questions: vec![question] };
    let answer = client.query(v1::QueryRequest::from(&query)).await;
    answer.map(|answer| answer.metadata().clone()).map_err(|status| format!("it refuses: {}", words(&status)))
}

fn clock(metadata: &MetadataMap) -> Check {
    const NAME: &str = "clock";
    let date = metadata.get("date").and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    let Some(theirs) = date else {
        return Check::unknown(NAME, "the gateway does not say its time", "look at timedatectl on both machines");
    };
    let ours = SystemTime::now();
    let apart = ours.duration_since(theirs).unwrap_or_else(|error| error.duration());
    let found = format!("this host's clock and the gateway's are {} s apart", apart.as_secs());
    if apart <= SKEW {
        return Check::ok(NAME, found);
    }
    let found = format!("{found}: networks are held out at other times than on other hosts");
    Check::warn(NAME, found, "run a time service (systemd-timesyncd, chrony) on both")
}

fn subscription(status: &Status) -> Check {
    const NAME: &str = "subscription";
    let gateway = &status.gateway;
    if gateway.connected {
        let held = status.networks_held;
        return Check::ok(NAME, format!("open for {} s, {held} networks held", gateway.since_s));
    }
    let why = gateway.last_error.as_deref().unwrap_or("it has not answered yet");
    let found = format!("closed for {} s: {why}; {}", gateway.since_s, gateway.retry(SystemTime::now()));
    Check::fail(NAME, found, "see the check `gateway`; the agent retries automatically")
}
