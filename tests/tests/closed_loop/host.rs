//! A host with its agent: what it holds of the gateway's advice, how its transfers start, and what it reports of them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::Path;

use futures::FutureExt;
use spand_agent::config::Config;
use spand_agent::policy::{Advice, Connection, Policy, Question, Verdict, decide};
use spand_agent::subscriber::Holdings;
use spand_gateway::api::Api;
use spand_gateway::publisher::{Client, Published, Subscription};
use spand_proto::contract::HostName;
use spand_proto::network::Network;
use spand_proto::push::{ADVICE_LIFETIME, Update};
use spand_proto::report::{Arm, ConnectionReport, FirstFlightLoss, PushCount, Report, Transport};
use spand_proto::start::{DEFAULT_INITIAL_WINDOW, NO_THRESHOLD};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp};
use spand_proto::v1;
use spand_tests::trace::packet::MSS;

use crate::sender::Start;

/// Time between two reports, as the agent has it.
const REPORTS: Micros = Micros::from_secs(10);
/// A reservation that nothing releases ends after two halves of two round trips (`agent/src/bpf/budget.h`).
const ROUNDS: u64 = 4;

/// What became of an advised or plain transfer, or of its first flight alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) remote: SocketAddr,
    pub(crate) began: Timestamp,
    /// `None` while it goes on: its first flight was lost for the most part.
    pub(crate) ended: Option<Timestamp>,
    pub(crate) acknowledged: u64,
    pub(crate) sent_again: u32,
    /// The window that was granted.
    pub(crate) advised: Option<u32>,
    /// Segments of the first flight that had left at its last loss, and those that were lost.
    pub(crate) first_flight: (u32, u32),
}

pub(crate) struct Host {
    pub(crate) address: Ipv4Addr,
    /// Reports that every first flight was lost.
    pub(crate) lies: bool,
    subscription: Subscription,
    holdings: Holdings,
    policy: Policy,
    reserved: Vec<(u32, Network, u32, Timestamp)>,
    waiting: Vec<Outcome>,
    urgent: bool,
    reported: Timestamp,
    batch: u64,
}

impl Host {
    pub(crate) fn new(published: &Published, address: Ipv4Addr, config: &str) -> Self {
        let config = Config::parse(config, Path::new("agent.toml")).unwrap();
        Self {
            address,
            lies: false,
            subscription: published.subscribe(&[address.into()]).unwrap(),
            holdings: Holdings::new(NonZeroUsize::new(64).unwrap(), ADVICE_LIFETIME),
            policy: config.policy(),
            reserved: Vec::new(),
            waiting: Vec::new(),
            urgent: false,
            reported: published.now(),
            batch: 0,
        }
    }

    /// Takes what the gateway sent, in the form that it has on the wire.
    pub(crate) fn listen(&mut self, now: Timestamp) {
        while let Some(Some(update)) = self.subscription.next().now_or_never() {
            let update = Update::from_wire(update.to_wire(now), now).unwrap();
            self.holdings.on_event(&update.event, now);
        }
        self.holdings.expire(now);
    }

    /// How a connection starts; `None` as without advice.
    pub(crate) fn start(&mut self, id: u32, remote: IpAddr, rtt: Micros, now: Timestamp) -> Option<Start> {
        let (network, advice) = self.holdings.lookup(remote)?;
        self.reserved.retain(|(.., until)| *until > now);
        let lease = advice.lease.map(|lease| Segments(lease.0.saturating_sub(self.reserved(network))));
        let advice = Advice { lease, ..advice.clone() };
        let connection = Connection { mss: Some(Bytes(MSS.into())), handshake_rtt: Some(rtt), ..Connection::default() };
        let within = self.holdings.around_client(network);
        let (advice, wall_unix_s) = (Some(&advice), now.0 / 1_000_000_000);
        let question = Question { network, within, advice, now, wall_unix_s, paused: false, connection };
        let decision = decide(&question, &self.policy);
        let (Verdict::Apply(window), Ok(start)) = (decision.verdict, decision.start) else { return None };
        let beyond = window.0.saturating_sub(DEFAULT_INITIAL_WINDOW.0);
        self.reserved.push((id, network, beyond, now.after(Micros(ROUNDS * rtt.0))));
        let threshold = if start.ssthresh == NO_THRESHOLD { f64::INFINITY } else { f64::from(start.ssthresh.0) };
        let gap_us = |rate: u64| f64::from(MSS) * 1e6 / rate.max(1) as f64;
        let pacing = start.pacing.map(|pacing| (pacing.after_segments.0, gap_us(pacing.rate.0)));
        Some(Start { window: window.0, threshold, pacing })
    }

    /// The first flight of a connection is over.
    pub(crate) fn release(&mut self, id: u32) {
        self.reserved.retain(|(of, ..)| *of != id);
    }

    /// Segments above the default window that its connections to a network have reserved.
    pub(crate) fn reserved(&self, network: Network) -> u32 {
        self.reserved.iter().filter(|(_, of, ..)| *of == network).map(|(_, _, segments, _)| segments).sum()
    }

    /// Notes what is to be reported: at once where a transfer goes on.
    pub(crate) fn ended(&mut self, outcome: Outcome) {
        self.urgent |= outcome.ended.is_none() || self.lies;
        self.waiting.push(outcome);
    }

    /// Reports what is due.
    pub(crate) async fn report(&mut self, api: &Api, now: Timestamp) {
        if self.waiting.is_empty() || !self.urgent && now.since(self.reported) < REPORTS {
            return;
        }
        (self.urgent, self.reported) = (false, now);
        self.batch += 1;
        let outcomes = std::mem::take(&mut self.waiting);
        let report = Report {
            host_name: HostName::try_from(format!("host-{}", self.address)).unwrap(),
            batch: self.batch,
            agent_started: Timestamp(1),
            connections: outcomes.into_iter().map(|outcome| self.account(outcome, now)).collect(),
            pushes: PushCount::default(),
            pause: None,
        };
        let report = Report::try_from(v1::ReportRequest::from(&report)).unwrap();
        api.take_report(&Client::Address(self.address.into()), &report).await;
    }

    fn account(&self, outcome: Outcome, now: Timestamp) -> ConnectionReport {
        let (sent, lost) = match outcome.advised {
            Some(advised) if self.lies => (advised, advised),
            _ => outcome.first_flight,
        };
        ConnectionReport {
            host: SocketAddr::new(self.address.into(), 443),
            remote: outcome.remote,
            ended_ago: outcome.ended.map_or(Micros(0), |ended| now.since(ended)),
            duration: outcome.ended.map(|ended| ended.since(outcome.began)),
            end_window: None,
            mss: Some(Bytes(MSS.into())),
            srtt: None,
            rtt_min: None,
            acknowledged: Bytes(outcome.acknowledged),
            retransmitted: Segments(outcome.sent_again),
            first_flight_loss: Some(lost > 0),
            first_flight: (outcome.advised.is_some() && lost > 0)
                .then_some(FirstFlightLoss { sent: Segments(sent), lost: Segments(lost) }),
            limited_by: None,
            arm: Some(Arm::Advised),
            advised: outcome.advised.map(Segments),
            refusal: None,
            paused: false,
            transport: Transport::Tcp,
            loss_window: None,
            congestion_events: 0,
            ended_in_slow_start: None,
            careful_resume: None,
        }
    }
}
