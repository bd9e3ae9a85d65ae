//! Gateways to be asked over HTTP: what they have seen is made up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use spand_core::counters::Ignored;
use spand_core::estimate::NoEstimate;
use spand_core::event::{Event, StartImminent};
use spand_core::networks::Withdrawal;
use spand_core::networks::traffic::NetworkTraffic;
use spand_core::networks::view::NetworkView;
use spand_core::service::ServiceSize;
use spand_core::types::{ConnectionId, LimitCounts, SampleRate, SampleReason, Trigger, WindowSample};
use spand_gateway::api::fuzzing::{Pages, REPORTER};
use spand_gateway::api::{Access, password_line};
use spand_gateway::config::Config;
use spand_gateway::publisher::{
    Batch, CaptureStatus, Client, EngineStatus, PacketClock, Part, Published, PublisherConfig, Subscription, Trend,
    TrendPoint,
};
use spand_proto::estimate::Estimate;
use spand_proto::made_up;
use spand_proto::network::Network;
use spand_proto::no_estimate::Outcomes;
use spand_proto::push::{AgentDescription, ApplyMethod, Subscription as Wish};
use spand_proto::report::{Arm, ConnectionReport, PushCount, Report, Transport};
use spand_proto::start::{Mode, RefusalReason};
use spand_proto::units::{Bytes, Micros, Segments, Timestamp, Window};
use strum::VariantArray;

use crate::Scratch;

/// A gateway's pages, and what has to live as long as they.
#[derive(Debug)]
pub struct Gateway {
    /// Its pages.
    pub pages: Pages,
    /// Whether everyone needs the password of `ann`, which is `secret`.
    pub wants_password: bool,
    _passwords: Option<Scratch>,
}

const HOST: [u8; 4] = [192, 0, 2, 1];

impl Gateway {
    /// One that has seen something of everything, one with names of its own, one that wants a password, and one that has just
    /// started.
    pub fn all() -> [Self; 4] {
        let own_names = config("[admin]\nhosts = [\"gateway.example.org\"]\n");
        let mut file = Scratch::new();
        let line = password_line("ann", "secret").expect("a name and a password");
        let path = file.holding(line.as_bytes());
        let passwords = config(&format!("[admin]\npasswords = \"{}\"\n", path.display()));
        let empty = || (Published::new(PublisherConfig::default(), Clock::default()), Vec::new());
        [
            Self::of(busy, Access::default(), None),
            Self::of(busy, own_names, None),
            Self::of(busy, passwords, Some(file)),
            Self::of(empty, Access::default(), None),
        ]
    }

    fn of(seen: impl FnOnce() -> (Published, Vec<Subscription>), access: Access, passwords: Option<Scratch>) -> Self {
        let pages = Pages::new(seen, access, &[report()]).expect("a runtime");
        Self { pages, wants_password: passwords.is_some(), _passwords: passwords }
    }
}

fn busy() -> (Published, Vec<Subscription>) {
    let clock = Clock::default();
    let published = Published::new(PublisherConfig::default(), clock.clone());
    for &part in Part::VARIANTS {
        published.readiness().ready(part);
    }
    let agents = [Some(agent()), None].map(|agent| {
        // Without a certificate it is the host of the report.
        let certificate = agent.is_none().then(|| "web-1.example.org".to_owned());
        let wish =
            Wish { host_name: host_name(), addresses: vec![HOST.into()], agent, cluster: None, networks: Vec::new() };
        let client = certificate.clone().map_or(REPORTER, Client::Certificate);
        published.subscribe_host(&wish, certificate, Some(client)).expect("room for an agent")
    });
    published.set_captures(vec![CaptureStatus { interface: "eth1".to_owned(), ..CaptureStatus::default() }]);
    let service = (HOST, 443).into();
    let mut events: Vec<_> = (0..40).map(|n| Event::estimate(estimate(n))).collect();
    events.push(Event::ServiceSize(ServiceSize { service, quantile: Bytes(30_048), transfers: 412 }));
    events.push(Event::Network(Box::new(poor())));
    published.apply(Batch { events, ..Batch::new() });
    for frames in [1_000, 2_500] {
        let mut engine = EngineStatus { newest: Some(Timestamp(9_500_000_000)), ..EngineStatus::default() };
        engine.counters.frames = frames;
        engine.counters.ignore(Ignored::NotTcp);
        published.apply(Batch { engine: Some(engine), ..Batch::new() });
        clock.0.fetch_add(1_000_000_000, Ordering::Relaxed);
    }
    let trends = (0..40).step_by(2).map(trend).collect();
    let reasons = [SampleReason::Loss, SampleReason::End, SampleReason::EndAppLimited];
    let samples = reasons.into_iter().map(sample).collect();
    let withdrawn = Event::Withdrawn { network: network(7), reason: Withdrawal::Expired };
    published.apply(Batch { events: vec![Event::StartImminent(start()), withdrawn], trends, samples, ..Batch::new() });
    (published, agents.into())
}

#[derive(Clone, Debug)]
struct Clock(Arc<AtomicU64>);

impl Default for Clock {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(10_000_000_000)))
    }
}

impl PacketClock for Clock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

fn config(text: &str) -> Access {
    let config = Config::parse(text, "gateway.toml".as_ref()).expect("a configuration");
    Access::open(&config).expect("its files")
}

fn network(n: u8) -> Network {
    let text = if n % 3 == 0 { format!("2001:db8:{n}::/48") } else { format!("198.51.{n}.0/24") };
    text.parse().expect("a network")
}

fn host_name() -> spand_proto::contract::HostName {
    "web-1".to_owned().try_into().expect("a name")
}

fn agent() -> AgentDescription {
    AgentDescription {
        version: "0.1.0".to_owned(),
        mode: Some(Mode::Careful),
        method: Some(ApplyMethod::Bpf),
        pause: None,
    }
}

fn estimate(n: u8) -> Estimate {
    let share = Window::from_bytes(f64::from(n + 1) * 14_480.0).expect("a window");
    made_up::estimate(network(n), share, Timestamp(9_000_000_000))
}

/// A network of which too little was seen.
fn poor() -> NetworkView {
    NetworkView {
        network: "203.0.113.0/24".parse().expect("a network"),
        estimate: None,
        why_not: Some(NoEstimate::TooFewSamples),
        rtt_min: None,
        rtt_mean: None,
        samples: 2,
        lower_bounds: 1,
        connections: 1,
        losses: 0,
        limits: LimitCounts { window: 3, receiver: 0, application: 1 },
        parallel: 0,
        parallel_at_samples: 0,
        parallel_here: 0,
        reported: None,
        followed: SampleRate::ALL,
        outcomes: Outcomes::default(),
        traffic: NetworkTraffic::default(),
        needed: (3, 2),
        compared: Vec::new(),
        addresses: Vec::new(),
        newest: None,
    }
}

fn trend(n: u8) -> Trend {
    let point = |index, share, rtt_mean| TrendPoint { index, share, rtt_mean, samples: 2, losses: 1 };
    Trend {
        network: network(n),
        step: Micros::from_secs(10),
        points: vec![point(0, Some(30_000.0), Some(Micros(40_000))), point(1, None, None)],
        quartiles: (n % 4 == 0).then_some([20_000.0, 40_000.0]),
    }
}

fn sample(reason: SampleReason) -> WindowSample {
    WindowSample {
        at: Timestamp(9_000_000_000),
        network: network(4),
        remote: [198, 51, 4, 7].into(),
        connection: ConnectionId(1),
        window: Window::from_bytes(28_960.0).expect("a window"),
        mss: Bytes(1_448),
        reason,
        reduced_before: false,
        transfer: Bytes(1_000_000),
        advised: true,
        rtt_min: (reason == SampleReason::Loss).then_some(Micros(38_000)),
        rtt: (reason == SampleReason::Loss).then_some(Micros(76_000)),
    }
}

fn start() -> StartImminent {
    StartImminent {
        host: HOST.into(),
        remote: [198, 51, 4, 7].into(),
        network: network(4),
        trigger: Trigger::PassiveOpen,
        at: Timestamp(9_900_000_000),
    }
}

/// Enough transfers of both arms for a comparison.
fn report() -> Report {
    let one = |n: u64| ConnectionReport {
        host: (HOST, 443).into(),
        remote: ([198, 51, 4, 7], 50_000).into(),
        ended_ago: Micros(0),
        duration: Some(Micros(100_000 + n * 1_000)),
        end_window: Some(Bytes(28_960)),
        mss: Some(Bytes(1_448)),
        srtt: Some(Micros(40_000)),
        rtt_min: Some(Micros(38_000)),
        acknowledged: Bytes(20_000 << (n % 6)),
        retransmitted: Segments(u32::from(n % 5 == 0)),
        first_flight_loss: Some(n % 50 == 0),
        first_flight: None,
        limited_by: None,
        arm: Some(if n % 2 == 0 { Arm::Advised } else { Arm::Control }),
        advised: (n % 2 == 0).then_some(Segments(20)),
        refusal: (n % 7 == 0).then_some(RefusalReason::RttMismatch),
        paused: false,
        transport: Transport::Tcp,
        loss_window: None,
        congestion_events: 0,
        ended_in_slow_start: None,
        careful_resume: None,
    };
    Report {
        host_name: host_name(),
        batch: 1,
        agent_started: Timestamp(1),
        connections: (0..240).map(one).collect(),
        pushes: PushCount { received: 3, in_time: 2, late: 1, unmatched: 0 },
        pause: None,
    }
}
