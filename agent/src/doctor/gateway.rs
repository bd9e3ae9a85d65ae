//! The paths to the gateways, and their clocks against ours.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

use futures::future::join_all;
use spand_proto::operator::Check;
use spand_proto::query::{Advice, Answer, Query, Question};
use spand_proto::units::{Segments, counted};
use spand_proto::v1;
use tonic::metadata::MetadataMap;

use crate::config::Config;
use crate::control::Status;
use crate::destination;
use crate::subscriber::{Dialer, ask as ask_about, words};

/// An address of the documentation (RFC 5737): any answer about it shows that the gateway works.
const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Clocks further apart than this make hosts leave networks alone at different times, as `[holdout]` has it. The date of an
/// answer is a whole second.
const SKEW: Duration = Duration::from_secs(5);

/// What came with a gateway's answer, or why there is none.
type Look = Result<MetadataMap, String>;

pub(super) async fn look(config: &Config, status: Option<&Status>) -> Vec<Check> {
    let mut checks = match Dialer::new(config) {
        Ok(dialer) => judge(config, &all(&dialer).await),
        Err(error) => vec![Check::fail("gateway", error.to_string(), to_do(config))],
    };
    if let Some(status) = status {
        checks.push(subscription(status));
        if let (true, Ok(dialer)) = (status.gateway.connected, Dialer::new(config)) {
            checks.push(advice(config, &dialer, status).await);
        }
    }
    checks
}

/// Whether the destinations of this host's connections have advice, and where they have none, why.
async fn advice(config: &Config, dialer: &Dialer, status: &Status) -> Check {
    let destinations = destination::open(&status.addresses);
    let questions = Query {
        mode: Some(config.mode),
        initial_window: Segments(config.policy.initial_window_segments.get()),
        questions: destinations.into_iter().map(Question::about).collect(),
    };
    if questions.questions.is_empty() {
        return judge_advice(&[]);
    }
    match ask_about(dialer, &questions).await {
        Ok((answers, _)) => judge_advice(&answers),
        Err(failure) => Check::unknown("advice", failure.to_string(), "see the check `gateway`"),
    }
}

fn judge_advice(answers: &[Answer]) -> Check {
    const NAME: &str = "advice";
    if answers.is_empty() {
        return Check::unknown(
            NAME,
            "this host has no connection from an address that the agent subscribed for",
            "run the doctor while this host sends, or ask `spand-agent explain ADDRESS`",
        );
    }
    let refused = answers.iter().find_map(|answer| match &answer.advice {
        Advice::Refused { message, .. } => Some(format!("for example, {} has none: {message}", answer.address)),
        Advice::Start(_) => None,
    });
    let starts = answers.iter().filter(|answer| matches!(answer.advice, Advice::Start(_))).count();
    let found = format!("the gateway has advice for {starts} of {} destinations of this host", answers.len());
    match refused {
        None => Check::ok(NAME, found),
        Some(example) if starts > 0 => Check::ok(NAME, format!("{found}; {example}")),
        Some(example) => {
            Check::warn(NAME, format!("{found}; {example}"), "run `spand-agent explain ADDRESS` for each of the others")
        }
    }
}

/// Asks all at once.
async fn all(dialer: &Dialer) -> Vec<(String, Look)> {
    let patience = Duration::from_millis(dialer.gateway().timeout_ms.get());
    let one = async |(at, url): (usize, String)| {
        let asked = async {
            let query = Query { mode: None, initial_window: Segments(10), questions: vec![Question::about(NOWHERE)] };
            let answer = dialer.connect_to(at).await?.query(v1::QueryRequest::from(&query)).await;
            answer.map(|answer| answer.metadata().clone()).map_err(|status| format!("it refuses: {}", words(&status)))
        };
        let answer = tokio::time::timeout(patience, asked).await;
        (url, answer.unwrap_or_else(|_| Err(format!("no answer within {patience:?}"))))
    };
    join_all(dialer.urls().iter().cloned().enumerate().map(one)).await
}

fn to_do(config: &Config) -> String {
    format!(
        "check {}, that the gateway runs, that this host reaches its api.grpc_socket or api.grpc_listen, and firewalls between",
        config.gateway.key()
    )
}

/// A gateway that does not answer is a fault where none does: else hosts have another one.
fn judge(config: &Config, answers: &[(String, Look)]) -> Vec<Check> {
    let answering = answers.iter().filter(|(_, answer)| answer.is_ok()).count();
    let check = |(url, answer): &(String, Look)| match answer {
        Ok(_) => Check::ok("gateway", format!("{url} answers")),
        Err(why) if answering == 0 => Check::fail("gateway", format!("{url}: {why}"), to_do(config)),
        Err(why) => Check::warn("gateway", format!("{url}: {why}"), to_do(config)),
    };
    let mut checks: Vec<Check> = answers.iter().map(check).collect();
    if answers.len() > 1 {
        checks.push(count(answering, answers.len()));
    }
    if answering > 0 {
        checks.push(clock(answers.iter().filter_map(|(_, answer)| answer.as_ref().ok())));
    }
    checks
}

fn count(answering: usize, all: usize) -> Check {
    const NAME: &str = "gateways";
    let found = format!("{answering} of {all} gateways answer");
    let to_do = "see the checks `gateway`";
    match answering {
        0 => Check::fail(NAME, found, to_do),
        some if some < all => Check::warn(NAME, found, to_do),
        _ => Check::ok(NAME, found),
    }
}

/// The clock that is furthest from ours.
fn clock<'a>(answers: impl Iterator<Item = &'a MetadataMap>) -> Check {
    const NAME: &str = "clock";
    let date = |metadata: &MetadataMap| httpdate::parse_http_date(metadata.get("date")?.to_str().ok()?).ok();
    let ours = SystemTime::now();
    let apart = |theirs| ours.duration_since(theirs).unwrap_or_else(|error| error.duration());
    let Some(apart) = answers.filter_map(date).map(apart).max() else {
        return Check::unknown(NAME, "the gateway does not say its time", "look at timedatectl on both machines");
    };
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
        let held = counted(status.networks_held, "network", "networks");
        return Check::ok(NAME, format!("open for {} s, {held} held", gateway.since_s));
    }
    let why = gateway.last_error.as_deref().unwrap_or("it has not answered yet");
    let found = format!("closed for {} s: {why}; {}", gateway.since_s, gateway.retry(SystemTime::now()));
    Check::fail(NAME, found, "see the check `gateway`; the agent retries automatically")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(answers: &[bool]) -> Vec<(&'static str, spand_proto::operator::Verdict)> {
        let answer = |answers: &bool| {
            let refused = || Err("connection refused".to_owned());
            ("https://a".to_owned(), if *answers { Ok(MetadataMap::new()) } else { refused() })
        };
        let answers: Vec<_> = answers.iter().map(answer).collect();
        judge(&Config::default(), &answers).iter().map(|check| (check.name, check.verdict)).collect()
    }

    #[test]
    fn a_host_without_advice_gets_the_gateways_reason() {
        let refused = Advice::Refused {
            reason: spand_proto::start::RefusalReason::NoEstimate,
            message: "39 transfers seen, 34 losses in slow start: no sample".to_owned(),
        };
        let address = IpAddr::from([198, 51, 100, 7]);
        let answer = Answer { address, estimate: None, lifetime: spand_proto::units::Micros(0), advice: refused };
        let check = judge_advice(&[answer]);
        assert_eq!(check.verdict, spand_proto::operator::Verdict::Warn);
        let example = "198.51.100.7 has none: 39 transfers seen, 34 losses in slow start: no sample";
        assert!(check.found.ends_with(example), "{check:?}");
        assert_eq!(judge_advice(&[]).verdict, spand_proto::operator::Verdict::Unknown);
    }

    #[test]
    fn a_gateway_that_does_not_answer_is_a_fault_where_none_does() {
        use spand_proto::operator::Verdict::{Fail, Ok, Unknown, Warn};
        assert_eq!(verdicts(&[true]), [("gateway", Ok), ("clock", Unknown)]);
        assert_eq!(verdicts(&[false]), [("gateway", Fail)]);
        let some = [("gateway", Ok), ("gateway", Warn), ("gateways", Warn), ("clock", Unknown)];
        assert_eq!(verdicts(&[true, false]), some);
        assert_eq!(verdicts(&[false, false]), [("gateway", Fail), ("gateway", Fail), ("gateways", Fail)]);
    }
}
