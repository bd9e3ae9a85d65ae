//! What `explain` shows: the same decision as for the network, step by step.

use std::net::IpAddr;

use spand_proto::estimate::Estimate;
use spand_proto::network::Network;
use spand_proto::report::Arm;
use spand_proto::start::{Limit, Refusal, RttCheck, Start};
use spand_proto::units::{Bytes, Timestamp};

use super::agent::Agent;
use crate::apply::{Applier, Lack, Outcome};
use crate::clock;
use crate::control::{Explained, Step};
use crate::policy::{Advice, Connection, Decision, Question, Reason, ScopeVerdict, Verdict, decide};

impl<A: Applier> Agent<A> {
    pub(super) fn explain(&self, destination: IpAddr, bytes: Option<u64>, mss: Option<u64>) -> Explained {
        let now = self.clock.now();
        let held = self.holdings.lookup(destination);
        let network = held.map_or_else(|| Network::of(destination), |(network, _)| network);
        let advice = held.map(|(_, advice)| advice);
        let connection = Connection { size: bytes.map(Bytes), mss: mss.map(Bytes), ..Connection::default() };
        let question = Question { network, advice, now, wall_unix_s: clock::wall_unix_s(), connection };
        let decision = decide(&question, &self.policy);
        let outcome = self.applier.outcome(network);

        let mut steps = vec![step("scope", scope(&decision)), step("estimate", about_estimate(advice, now))];
        steps.push(step("control_group", arm(&decision)));
        steps.extend(about_start(&decision.start, self.applier.lacks().contains(&Lack::Pacing)));
        if bytes.is_some() && self.applier.lacks().contains(&Lack::TransferSize) {
            let text = "this way of applying cannot tell sizes apart: what is applied is for policy.service_bytes, or a long \
                        transfer";
            steps.push(step("size", (false, text.to_owned())));
        }
        steps.push(step("mode", (decision.verdict == Verdict::Leave(Reason::Observe), self.about_mode())));
        steps.push(step("applied", about_applying(&decision, outcome.as_ref())));

        let (applied, window, name) = match (&outcome, decision.verdict) {
            (Some(Outcome::InForce { window, .. }), _) => (true, *window, "in_force"),
            (Some(Outcome::NotApplied { reason, .. }), Verdict::Apply(_)) => {
                (false, self.policy.initial_window, *reason)
            }
            (_, Verdict::Leave(reason)) => (false, self.policy.initial_window, reason.name()),
            (Some(Outcome::WouldBe { .. }), _) => (false, self.policy.initial_window, "would_be"),
            (None, Verdict::Apply(_)) => (false, self.policy.initial_window, "pending"),
        };
        Explained {
            destination,
            network: held.map(|(network, _)| network),
            mode: self.config.mode,
            apply: self.applier.way(),
            window_segments: window.0,
            applied,
            outcome: name.to_owned(),
            steps,
        }
    }

    fn about_mode(&self) -> String {
        match self.config.mode {
            spand_proto::start::Mode::Observe => Reason::Observe.sentence().to_owned(),
            mode => format!("{mode}: what is decided is applied"),
        }
    }
}

fn step(name: &str, (stopped, text): (bool, String)) -> Step {
    Step { name: name.to_owned(), stopped, text }
}

fn scope(decision: &Decision) -> (bool, String) {
    match decision.scope {
        ScopeVerdict::Allowed { cap: None } => (false, "the destination may be advised".to_owned()),
        ScopeVerdict::Allowed { cap: Some(cap) } => {
            (false, format!("the destination may be advised with at most {cap} (destinations.caps)"))
        }
        ScopeVerdict::Excluded => (true, Reason::Excluded.sentence().to_owned()),
        ScopeVerdict::NotIncluded => (true, Reason::NotIncluded.sentence().to_owned()),
    }
}

fn about_estimate(advice: Option<&Advice>, now: Timestamp) -> (bool, String) {
    let Some(advice) = advice else { return (true, Refusal::NoEstimate.to_string()) };
    let Estimate { network, samples, connections, loss_connections, rule, .. } = &advice.estimate;
    let rtt = advice.estimate.rtt_mean.map_or_else(|| "not known".to_owned(), |rtt| rtt.to_string());
    let lease = advice.lease.map_or_else(String::new, |lease| format!("; lease {} above the default", lease.0));
    let text = format!(
        "{network}: share {:.1} segments of {}, mean round trip {rtt}; {samples} samples of {connections} connections, \
         {loss_connections} of them by loss; newest {:.1} s ago; rule {rule}; holds {:.1} s more{lease}",
        advice.estimate.share.segments_f64(advice.estimate.mss),
        advice.estimate.mss,
        advice.estimate.age(now).as_secs_f64(),
        advice.expires.since(now).as_secs_f64(),
    );
    (advice.expires <= now, text)
}

fn arm(decision: &Decision) -> (bool, String) {
    match decision.arm {
        Some(Arm::Control) => (true, Reason::HeldOut.sentence().to_owned()),
        Some(Arm::Advised) => (false, "the network is not held out in this time slot".to_owned()),
        None => (false, "outside the comparison".to_owned()),
    }
}

fn about_start(start: &Result<Start, Refusal>, unpaced: bool) -> Vec<Step> {
    let start = match start {
        Ok(start) => start,
        Err(refusal) => return vec![step("start", (true, refusal.to_string()))],
    };
    let account = &start.account;
    let rtt = match account.rtt_check {
        RttCheck::Off => "this mode does not ask for it",
        RttCheck::NoHandshake => "no handshake to compare with: for a whole network there is none",
        RttCheck::Passed => "the handshake's round trip fits the estimate's",
    };
    let model = match &account.transfer {
        None => format!("size not known: the start is the share, {}", account.share),
        Some(steps) => format!(
            "{} of an epoch of {}: the last {} are best served by {}, which gives W' = {}",
            steps.size, steps.epoch_segments, steps.remainder, steps.optimal, account.shifted
        ),
    };
    let mut list = vec![step("rtt_check", (false, rtt.to_owned())), step("model", (false, model))];
    for bound in &account.bounds {
        let verb = if bound.limit == Limit::Floor { "at least" } else { "at most" };
        let text = format!("{verb} {}: {} becomes {}", bound.value, bound.before.0, bound.after.0);
        list.push(step(bound.limit.name(), (false, text)));
    }
    let pacing = match start.pacing {
        None => "none needed".to_owned(),
        Some(_) if unpaced => "needed, and this way of applying has none: the window leaves as one burst".to_owned(),
        Some(pacing) => format!("after {}, at {} over {}", pacing.after_segments, pacing.rate, pacing.rtt),
    };
    list.push(step("pacing", (false, pacing)));
    list.push(step("start", (false, format!("window {}, {}", start.cwnd, start.threshold()))));
    list
}

fn about_applying(decision: &Decision, outcome: Option<&Outcome>) -> (bool, String) {
    match (outcome, decision.verdict) {
        (Some(outcome @ Outcome::InForce { .. }), _) => (false, outcome.to_string()),
        (_, Verdict::Leave(reason)) => (true, format!("nothing: {}", reason.sentence())),
        (Some(outcome), Verdict::Apply(_)) => (true, outcome.to_string()),
        (None, Verdict::Apply(_)) => (true, "not yet: it comes with the next batch of changes".to_owned()),
    }
}
