//! What `explain` shows: the same decision as for the network, step by step.

use std::iter;
use std::net::IpAddr;
use std::time::Duration;

use spand_proto::estimate::Estimate;
use spand_proto::growth::Growth;
use spand_proto::network::Network;
use spand_proto::query::{self as question, Answer};
use spand_proto::report::Arm;
use spand_proto::start::{Limit, Mode, NO_THRESHOLD, Refusal, RttCheck, Shape, Start};
use spand_proto::units::{Bytes, Segments, Timestamp, counted};
use tokio::time::timeout;

use super::agent::Agent;
use crate::apply::{Applier, Limitation, Outcome};
use crate::clock;
use crate::config::ApplyMethod;
use crate::control::{Explained, Step};
use crate::policy::{
    Advice, Connection, Decision, GrowthSource, Growths, Question, Reason, ScopeVerdict, Verdict, decide, growth_words,
};
use crate::subscriber::{Dialer, ask};

impl<A: Applier> Agent<A> {
    pub(super) fn explain(&self, destination: IpAddr, bytes: Option<u64>, mss: Option<u64>) -> Explained {
        let now = self.clock.now();
        let destination = destination.to_canonical();
        let held = self.holdings.lookup(destination);
        let network = held.map_or_else(|| Network::of(destination), |(network, _)| network);
        let kernels = held.map(|(network, advice)| self.kernels_advice(network, advice));
        let advice = kernels.as_ref();
        let limitations = self.applier.limitations();
        // What a method cannot see does not decide, so that there is one number: the one that connections get.
        let sees_transfers = !limitations.contains(&Limitation::TransferSize);
        let asked = bytes.is_some() || mss.is_some();
        let connection = if sees_transfers {
            Connection { size: bytes.map(Bytes), mss: mss.map(Bytes), ..Connection::default() }
        } else {
            Connection::default()
        };
        let (wall_unix_s, paused) = (clock::wall_unix_s(), self.pause.pausing().is_paused());
        let within = self.holdings.around_client(network);
        let question = Question { network, within, advice, now, wall_unix_s, paused, connection };
        let decision = decide(&question, &self.policy);
        let mut outcome = self.applier.outcome(network);
        if let (true, Some(Outcome::InForce { window, .. }), Verdict::Apply(own)) =
            (asked && sees_transfers, &mut outcome, decision.verdict)
        {
            // What is in force is for a transfer of which nothing is known; the programs decide for each alike.
            *window = own;
        }

        let mut steps = vec![scope(&decision), estimate(advice, within, now), arm(&decision)];
        if asked && !sees_transfers {
            let text =
                format!("ignored: apply {} sets one window for all transfers of a network", self.applier.method());
            steps.push(Step::new("size", text));
        }
        let mut start = start_steps(&decision.start, limitations);
        start.extend(growth(&self.policy.growths, destination, limitations));
        if !is_start(&decision) {
            // Computed, and not what decides.
            start.iter_mut().filter(|step| !step.stopped).for_each(|step| step.no_effect = true);
        }
        steps.extend(start);
        steps.push(mode(self.config.mode, &decision));
        steps.push(applied(&decision, outcome.as_ref()));

        let initial_window = self.policy.initial_window;
        let (on_advice, window, name) = match (&outcome, decision.verdict) {
            (Some(Outcome::InForce { window, .. }), _) => (true, *window, "in_force"),
            (Some(Outcome::NotApplied { reason, .. }), Verdict::Apply(_)) => (false, initial_window, *reason),
            (_, Verdict::Leave(reason)) => (false, initial_window, reason.name()),
            (Some(Outcome::WouldBe { .. }), _) => (false, initial_window, "would_be"),
            (None, Verdict::Apply(_)) => (false, initial_window, "pending"),
        };
        let start = decision.start.as_ref().ok().filter(|_| is_start(&decision)).map(|start| start.cwnd);
        let method = self.applier.method();
        Explained {
            destination,
            prefix: held.map(|(network, _)| network),
            mode: self.config.mode,
            method,
            decision: headline(&decision, outcome.as_ref(), start, method, initial_window),
            cwnd_segments: window.0,
            start_cwnd_segments: start.map(|window| window.0),
            on_advice,
            outcome: name.to_owned(),
            steps,
        }
    }
}

/// The gateway has an estimate, and the full table of this host does not hold it.
const NO_ROOM: &str = "the gateway has an estimate, but the table of networks of this host is full (limits.networks): the host's next \
                       connection to this network makes room for it";
/// The gateway has an estimate, and this host has not received it.
const NOT_HERE: &str = "the gateway has an estimate, and sends it with the host's next connection to this network";

/// The gateway's answer is waited for at most this long, whatever `gateway.timeout_ms` allows: shorter than a client waits.
const PATIENCE: Duration = Duration::from_secs(10);

const fn here(full: bool) -> &'static str {
    if full {
        "this host holds no advice, and its table of networks is full (limits.networks)"
    } else {
        "this host holds no advice"
    }
}

impl Explained {
    /// Replaces the general refusal by `reason`.
    fn because(mut self, reason: &str) -> Self {
        let general = Refusal::NoEstimate.to_string();
        for text in iter::once(&mut self.decision).chain(self.steps.iter_mut().map(|step| &mut step.text)) {
            *text = text.replace(&general, reason);
        }
        self
    }
}

/// Asks the gateway why this host holds no advice; `full` is whether the host's table of networks is full.
pub(super) async fn with_gateways_reason(
    dialer: &Dialer,
    mode: Mode,
    initial_window: Segments,
    (explained, full): (Explained, bool),
) -> Explained {
    let question = question::Question::about(explained.destination);
    let questions = question::Query { mode: Some(mode), initial_window, questions: vec![question] };
    let reason = match timeout(PATIENCE, ask(dialer, &questions)).await {
        Err(_) => format!("{}, and the gateway did not answer within {} s", here(full), PATIENCE.as_secs()),
        Ok(Ok((answers, _))) => match answers.into_iter().next() {
            Some(Answer { estimate: None, advice: question::Advice::Refused { message, .. }, .. }) => message,
            _ if full => NO_ROOM.to_owned(),
            _ => NOT_HERE.to_owned(),
        },
        Ok(Err(failure)) => format!("{}, and {failure}", here(full)),
    };
    explained.because(&reason)
}

/// Whether there is a start, applied or not.
fn is_start(decision: &Decision) -> bool {
    matches!(
        decision.verdict,
        Verdict::Apply(_) | Verdict::Leave(Reason::Observe | Reason::HeldOut | Reason::SameAsDefault)
    )
}

/// The decision in one line: the window that it gives, and where that is not what connections get, why and what they do get.
fn headline(
    decision: &Decision,
    outcome: Option<&Outcome>,
    start: Option<Segments>,
    method: ApplyMethod,
    initial_window: Segments,
) -> String {
    let why = match (outcome, decision.verdict) {
        (Some(Outcome::InForce { window, .. }), _) => return format!("starts with {window}"),
        (_, Verdict::Leave(Reason::Observe)) => "mode observe applies nothing".to_owned(),
        (_, Verdict::Leave(Reason::HeldOut)) => "held out for comparison".to_owned(),
        (_, Verdict::Leave(Reason::SameAsDefault)) => {
            return format!("starts with {initial_window}, with advice or without");
        }
        (_, Verdict::Leave(reason)) => {
            return format!("starts with {initial_window}, standard TCP: {}", why_not(decision, reason));
        }
        (Some(Outcome::NotApplied { sentence, .. }), Verdict::Apply(_)) => format!("not applied: {sentence}"),
        (Some(Outcome::WouldBe { .. }), _) => format!("apply {method} applies nothing"),
        (None, Verdict::Apply(_)) => "not applied yet".to_owned(),
    };
    let start = start.unwrap_or(initial_window);
    format!("would start with {start}; {why}: {}", initial_window.0)
}

fn why_not(decision: &Decision, reason: Reason) -> String {
    match (&decision.start, reason) {
        (Err(refusal), Reason::Refused(_)) => refusal.to_string(),
        _ => reason.sentence().to_owned(),
    }
}

fn scope(decision: &Decision) -> Step {
    match decision.scope {
        ScopeVerdict::Allowed { cap: None } => Step::new("scope", "in scope").without_effect(),
        ScopeVerdict::Allowed { cap: Some(cap) } => Step::new("scope", format!("at most {cap} (destinations.caps)")),
        ScopeVerdict::Excluded => Step::stop("scope", Reason::Excluded.sentence()),
        ScopeVerdict::NotIncluded => Step::stop("scope", Reason::NotIncluded.sentence()),
    }
}

fn estimate(advice: Option<&Advice>, within: Option<Network>, now: Timestamp) -> Step {
    let Some(advice) = advice else { return Step::stop("estimate", Refusal::NoEstimate.to_string()) };
    let Estimate { network, samples, connections, loss_connections, rule, mss, .. } = &advice.estimate;
    let rtt = advice.estimate.rtt_mean.map_or_else(|| "RTT unknown".to_owned(), |rtt| format!("mean RTT {rtt}"));
    let lease = advice.lease.map_or_else(String::new, |lease| format!("; lease of {} above the default", lease.0));
    let (share, age) = (advice.estimate.share.segments_f64(*mss), advice.estimate.age(now).as_secs_f64());
    let own = within.map_or_else(String::new, |within| format!(" (advice of its own in {within})"));
    let least = if advice.estimate.is_lower_bound { "at least " } else { "" };
    let mark = advice.estimate.mark.map_or_else(String::new, |mark| format!("; {}", mark.sentence()));
    let samples = counted(*samples, "sample", "samples");
    let connections = counted(*connections, "connection", "connections");
    let about = format!(
        "{network}{own}: share {least}{share:.1} segments (MSS {}), {rtt}; {samples} from {connections}, \
         {loss_connections} with packet loss; newest sample {age:.1} s ago; rule {rule}{mark}",
        mss.0
    );
    if advice.expires <= now {
        return Step::stop("estimate", format!("{about}; expired{lease}"));
    }
    Step::new("estimate", format!("{about}; expires in {:.1} s{lease}", advice.expires.since(now).as_secs_f64()))
}

fn arm(decision: &Decision) -> Step {
    match decision.arm {
        Some(Arm::Control) => Step::stop("control_group", Reason::HeldOut.sentence()),
        Some(Arm::Advised) => Step::new("control_group", "advised group").without_effect(),
        None => Step::new("control_group", "not part of the comparison").without_effect(),
    }
}

fn start_steps(start: &Result<Start, Refusal>, limitations: &[Limitation]) -> Vec<Step> {
    let start = match start {
        Ok(start) => start,
        // The estimate's step shows it.
        Err(refusal @ Refusal::NoEstimate) => return vec![Step::stop("start", refusal.to_string()).without_effect()],
        Err(refusal) => return vec![Step::stop("start", refusal.to_string())],
    };
    let account = &start.account;
    let mut steps = vec![match account.rtt_check {
        RttCheck::Off => Step::new("rtt_check", "off in this mode").without_effect(),
        RttCheck::NoHandshake if limitations.contains(&Limitation::HandshakeRtt) => {
            Step::new("rtt_check", "not possible with this apply method").without_effect()
        }
        RttCheck::NoHandshake => Step::new("rtt_check", "skipped (needs a connection)"),
        RttCheck::Passed => Step::new("rtt_check", "handshake RTT within the bounds").without_effect(),
    }];
    steps.push(Step::new("model", model(start)));
    for bound in &account.bounds {
        let at = if bound.limit == Limit::Floor { "at least" } else { "at most" };
        steps.push(if bound.before == bound.after {
            Step::new(bound.limit.name(), format!("{at} {}: no change", bound.value)).without_effect()
        } else {
            Step::new(bound.limit.name(), format!("{at} {}: {} before", bound.value, bound.before.0))
        });
    }
    let bounded = account.bounds.last().map_or(account.shifted, |last| last.after);
    if start.cwnd != bounded {
        steps.push(Step::new(
            "destination_cap",
            format!("at most {} (destinations.caps): {} before", start.cwnd, bounded.0),
        ));
    }
    steps.push(match start.pacing {
        None => Step::new("pacing", "not needed").without_effect(),
        Some(_) if limitations.contains(&Limitation::Pacing) => {
            Step::new("pacing", "not possible with this apply method: the window leaves as one burst")
        }
        Some(pacing) => {
            let (first, rate, rtt) = (pacing.after_segments, pacing.rate, pacing.rtt);
            Step::new("pacing", format!("{first} unpaced, the rest at {rate} (RTT {rtt})"))
        }
    });
    let ssthresh = match start.ssthresh {
        _ if limitations.contains(&Limitation::Threshold) => "ssthresh not set by this apply method".to_owned(),
        NO_THRESHOLD => "ssthresh not set (no packet loss measured)".to_owned(),
        Segments(ssthresh) => format!("ssthresh {ssthresh}"),
    };
    steps.push(Step::new("start", format!("cwnd {}, {ssthresh}", start.cwnd.0)));
    steps
}

/// Services named one by one.
const SERVICES: usize = 4;

/// How the window grows from there; nothing where no rule but the kernel's own was chosen.
fn growth(growths: &Growths, destination: IpAddr, limitations: &[Limitation]) -> Option<Step> {
    if growths.is_standard() {
        return None;
    }
    if limitations.contains(&Limitation::Growth) {
        return Some(Step::new("growth", "standard: no other is possible with this apply method"));
    }
    let (source, rule) = growths.of(destination);
    let mut parts = vec![format!("{} ({source})", growth_words(rule))];
    if source == GrowthSource::Default {
        let services = growths.services.iter().take(SERVICES);
        parts.extend(services.map(|(service, rule)| format!("{} from {service}", growth_words(*rule))));
        let more = growths.services.len().saturating_sub(SERVICES);
        parts.extend((more > 0).then(|| format!("{more} more services")));
    }
    let step = Step::new("growth", parts.join("; "));
    Some(if rule == Growth::Standard && growths.services.is_empty() { step.without_effect() } else { step })
}

/// What the model made of the transfer's size.
fn model(start: &Start) -> String {
    let (shifted, share) = (start.account.shifted, start.account.share);
    match start.account.shape {
        Shape::Paced => {}
        Shape::Threshold => {
            return "shape threshold: the host's own window, slow start up to the senders' threshold".to_owned();
        }
        Shape::Jump => return format!("shape jump: the senders' threshold, {shifted}"),
        Shape::Measured if start.account.overdue => {
            return format!("shape measured: the next loss is overdue, so the host's own window, {shifted}");
        }
        Shape::Measured => return format!("shape measured: {shifted} by the times of losses"),
        Shape::CarefulResume => {
            let jump = start.account.jump.filter(|jump| *jump > shifted).map_or_else(
                || "no jump, since half of the share is no larger".to_owned(),
                |jump| format!("once they have arrived and the RTT is confirmed, a jump to {jump}, paced"),
            );
            return format!("shape rfc9959: the host's own window, {shifted}; {jump}");
        }
        shape @ (Shape::OwnThreshold | Shape::OwnPaced) => {
            return format!("shape {shape}: the host's own window; the connection measures its threshold");
        }
    }
    let Some(steps) = &start.account.transfer else {
        return format!("transfer size unknown: the share, {share}");
    };
    let crowd = start.account.raised.map_or(String::new(), |raised| {
        format!("; a share of {raised} is taken for {}: the empty path holds that, and the transfer is short", share.0)
    });
    let (size, epoch) = (steps.size, steps.epoch_segments);
    if u64::from(size.0) <= epoch {
        format!(
            "transfer of {size}, shorter than one congestion-avoidance epoch ({epoch} segments): window W' of {}{crowd}",
            shifted.0
        )
    } else {
        let last = steps.remainder.0;
        format!(
            "transfer of {size} in congestion-avoidance epochs of {epoch} segments, the last one of {last}: window W' of {}{crowd}",
            shifted.0
        )
    }
}

fn mode(mode: Mode, decision: &Decision) -> Step {
    match (mode, decision.verdict) {
        (Mode::Observe, Verdict::Leave(Reason::Observe)) => Step::stop("mode", "observe: computed, not applied"),
        (mode, _) => Step::new("mode", mode.to_string()).without_effect(),
    }
}

fn applied(decision: &Decision, outcome: Option<&Outcome>) -> Step {
    match (outcome, decision.verdict) {
        (Some(Outcome::InForce { how, .. }), _) => Step::new("applied", how.clone()),
        // The step that stopped it and the first line show it.
        (_, Verdict::Leave(reason)) => Step::stop("applied", why_not(decision, reason)).without_effect(),
        (Some(Outcome::NotApplied { sentence, .. }), Verdict::Apply(_)) => Step::stop("applied", sentence.clone()),
        (Some(Outcome::WouldBe { .. }), Verdict::Apply(_)) => Step::stop("applied", "dry run: nothing is changed"),
        (None, Verdict::Apply(_)) => Step::stop("applied", "with the next batch of changes"),
    }
}
