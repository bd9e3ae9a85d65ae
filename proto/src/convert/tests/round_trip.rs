//! What is sent arrives as it was.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use proptest::prelude::*;
use prost::Message;
use strum::VariantArray;

use crate::contract::{Cluster, ContractVersion, HostName};
use crate::estimate::{Confidence, Estimate, Mark, RuleKind};
use crate::network::Network;
use crate::opening::{LossClock, Opening};
use crate::push::*;
use crate::query::{Answer, Query, Question};
use crate::report::*;
use crate::resume::Phase;
use crate::start::{self, Mode, RefusalReason, StartPolicy, StartRequest};
use crate::units::{Bytes, Micros, Segments, Timestamp, Window};
use crate::v1;

use crate::convert::{answers_from_wire, answers_to_wire};

/// The moment at which everything here is sent and arrives.
const NOW: Timestamp = Timestamp::from_micros(2_000_000_000_000_000);

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits))),
        any::<u128>().prop_map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits)).to_canonical()),
    ]
}

fn socket_address() -> impl Strategy<Value = SocketAddr> {
    (ip(), 1..=u16::MAX).prop_map(SocketAddr::from)
}

fn some_rtt() -> impl Strategy<Value = Option<Micros>> {
    proptest::option::of((1..=u64::MAX).prop_map(Micros))
}

fn agent() -> impl Strategy<Value = AgentDescription> {
    let mode = proptest::option::of(proptest::sample::select(Mode::VARIANTS));
    let method = proptest::option::of(proptest::sample::select(
        &[ApplyMethod::DryRun, ApplyMethod::Route, ApplyMethod::Bpf][..],
    ));
    ("[0-9a-z.-]{1,64}", mode, method, pause()).prop_map(|(version, mode, method, pause)| AgentDescription {
        version,
        mode,
        method,
        pause,
    })
}

fn pause() -> impl Strategy<Value = Option<PauseState>> {
    let whole_ms = (0..u64::MAX / 1_000).prop_map(|ms| Micros(ms * 1_000));
    let paused = proptest::option::of(whole_ms).prop_map(|remaining| PauseState::Paused { remaining });
    proptest::option::of(prop_oneof![Just(PauseState::Active), paused])
}

fn host_name() -> impl Strategy<Value = HostName> {
    "[a-z0-9.-]{1,40}".prop_map(|name| HostName::try_from(name).unwrap())
}

fn lifetime() -> impl Strategy<Value = Micros> {
    any::<u32>().prop_map(|ms| Micros::from_millis(ms.into()))
}

prop_compose! {
    fn opening()(
        rule in proptest::sample::select(RuleKind::VARIANTS),
        threshold in 0.0..1e15f64,
        losses in proptest::option::of((any::<u64>(), any::<u64>(), 0..1_000_000_000_000u64)),
    ) -> Opening {
        let losses = losses.map(|(interval, oldest, age)| LossClock {
            interval: Micros(interval),
            oldest_interval: Micros(oldest),
            last: NOW.before(Micros(age)),
        });
        Opening { rule, threshold: Window::from_bytes(threshold).unwrap(), losses }
    }
}

prop_compose! {
    fn estimate()(
        address in ip(),
        share in 0.0..1e15f64,
        mss in 1..=u64::MAX,
        rtts in (some_rtt(), some_rtt()),
        counts: (u32, u32, u32, u64),
        loss_window in proptest::option::of(0.0..1e15f64),
        age_us in 0..1_000_000_000_000u64,
        confidence in 0.0..=1.0f64,
        rule in proptest::sample::select(RuleKind::VARIANTS),
        opening in proptest::option::of(opening()),
        buffer in proptest::option::of(0.0..1e15f64),
        bdp in proptest::option::of(0.0..1e15f64),
    ) -> Estimate {
        Estimate {
            network: Network::of(address),
            share: Window::from_bytes(share).unwrap(),
            mss: Bytes(mss),
            rtt_min: rtts.0,
            rtt_mean: rtts.1,
            samples: counts.0,
            connections: counts.1,
            loss_connections: counts.2,
            is_lower_bound: counts.2 == 0,
            losses: counts.3,
            loss_window: loss_window.map(|bytes| Window::from_bytes(bytes).unwrap()),
            opening,
            buffer: buffer.map(|bytes| Window::from_bytes(bytes).unwrap()),
            bdp: bdp.map(|bytes| Window::from_bytes(bytes).unwrap()),
            refreshed: NOW.before(Micros(age_us)),
            confidence: Confidence::new(confidence),
            rule,
            mark: [None, Some(Mark::RandomLoss), Some(Mark::AddressesDiffer), Some(Mark::PastLoad)][counts.0 as usize % 4],
        }
    }
}

prop_compose! {
    fn question()(
        address in ip(),
        numbers: (Option<u64>, Option<u64>, Option<u64>),
        handshake_rtt in some_rtt(),
        service in proptest::option::of(socket_address()),
    ) -> Question {
        let (size, mss, snd_wnd) = numbers;
        let size = size.map(Bytes).into();
        Question { address, size, mss: mss.map(Bytes), snd_wnd: snd_wnd.map(Bytes), handshake_rtt, service }
    }
}

prop_compose! {
    /// What a gateway would answer: the start function's own result, whatever it is.
    fn answer()(
        known in proptest::option::of(estimate()),
        question in question(),
        mode in proptest::sample::select(Mode::VARIANTS),
        initial_window in any::<u32>().prop_map(Segments),
        budget in proptest::option::of(any::<u32>().prop_map(Segments)),
        lifetime in lifetime(),
    ) -> Answer {
        let Question { address, size, mss, snd_wnd, handshake_rtt, .. } = question;
        let mss = mss.unwrap_or(Bytes(1_448));
        let request = StartRequest {
            estimate: known.as_ref(), now: NOW, size, mss, snd_wnd, handshake_rtt, initial_window, budget,
        };
        let advice = start::start(&request, &StartPolicy::of(mode)).into();
        Answer { address, estimate: known, lifetime, advice }
    }
}

fn estimate_update() -> impl Strategy<Value = EstimateUpdate> {
    (estimate(), lifetime(), proptest::option::of(any::<u32>().prop_map(Segments)))
        .prop_map(|(estimate, lifetime, lease)| EstimateUpdate { estimate, lifetime, lease })
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    (ip(), proptest::option::of(1..=u16::MAX)).prop_map(|(address, port)| Endpoint { address, port })
}

prop_compose! {
    fn imminent_start()(
        host in endpoint(),
        remote in endpoint(),
        trigger in proptest::sample::select(Trigger::VARIANTS),
        observed: u64,
        delay: u64,
        estimate in estimate_update(),
    ) -> ImminentStart {
        let (observed, delay) = (Timestamp(observed), Micros(delay));
        ImminentStart { host, remote, trigger, observed, delay, estimate }
    }
}

fn service_size() -> impl Strategy<Value = ServiceSize> {
    (socket_address(), 1..=u64::MAX, any::<u32>(), lifetime()).prop_map(|(service, quantile, transfers, lifetime)| {
        ServiceSize { service, quantile: Bytes(quantile), transfers, lifetime }
    })
}

fn cluster() -> impl Strategy<Value = Option<Cluster>> {
    proptest::option::of("[a-z0-9_-]{1,64}").prop_map(|name| name.and_then(Cluster::new))
}

fn update() -> impl Strategy<Value = Update> {
    let event = prop_oneof![
        (any::<u32>(), cluster()).prop_map(|(networks, cluster)| UpdateEvent::SnapshotBegin {
            version: ContractVersion::CURRENT,
            networks,
            cluster
        }),
        lifetime().prop_map(|lifetime| UpdateEvent::Adopted { lifetime }),
        any::<u32>().prop_map(|networks| UpdateEvent::SnapshotEnd { networks }),
        estimate_update().prop_map(UpdateEvent::Estimate),
        lifetime().prop_map(|lifetime| UpdateEvent::Renewal { lifetime }),
        imminent_start().prop_map(UpdateEvent::ImminentStart),
        (ip(), proptest::sample::select(WithdrawalReason::VARIANTS))
            .prop_map(|(address, reason)| UpdateEvent::Withdrawal { network: Network::of(address), reason }),
        (proptest::sample::select(ResyncReason::VARIANTS), any::<u64>())
            .prop_map(|(reason, dropped_updates)| UpdateEvent::Resync { reason, dropped_updates }),
        service_size().prop_map(UpdateEvent::ServiceSize),
    ];
    (any::<u64>(), event).prop_map(|(sequence, event)| Update { sequence, event })
}

prop_compose! {
    fn connection_report()(
        ends in (socket_address(), socket_address()),
        times: (u64, Option<u64>),
        end_window: Option<u64>,
        mss in proptest::option::of(1..=u64::MAX),
        rtts in (some_rtt(), some_rtt()),
        counts: (u64, u32),
        first_flight_loss: Option<bool>,
        first_flight: Option<(u32, u32)>,
        limited_by in proptest::sample::select(
            vec![None, Some(LimitedBy::Window), Some(LimitedBy::Receiver), Some(LimitedBy::Application)]),
        arm in proptest::sample::select(vec![None, Some(Arm::Advised), Some(Arm::Control)]),
        advised in proptest::option::of((1..=u32::MAX).prop_map(Segments)),
        refusal in proptest::option::of(proptest::sample::select(RefusalReason::VARIANTS)),
        (paused, careful_resume) in (any::<bool>(), proptest::option::of(proptest::sample::select(Phase::VARIANTS))),
        transport in proptest::sample::select(vec![Transport::Tcp, Transport::Quic]),
        congestion: (Option<u64>, u32, Option<bool>),
    ) -> ConnectionReport {
        ConnectionReport {
            host: ends.0,
            remote: ends.1,
            ended_ago: Micros(times.0),
            duration: times.1.map(Micros),
            end_window: end_window.map(Bytes),
            mss: mss.map(Bytes),
            srtt: rtts.0,
            rtt_min: rtts.1,
            acknowledged: Bytes(counts.0),
            retransmitted: Segments(counts.1),
            first_flight_loss,
            first_flight: first_flight
                .map(|(sent, lost)| FirstFlightLoss { sent: Segments(sent), lost: Segments(lost) }),
            limited_by,
            arm,
            advised,
            refusal,
            paused,
            transport,
            loss_window: congestion.0.map(Bytes),
            congestion_events: congestion.1,
            ended_in_slow_start: congestion.2,
            careful_resume,
        }
    }
}

/// A message after its way over the wire.
fn sent<M: Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

proptest! {
    #[test]
    fn a_query_arrives_as_it_was_sent(
        mode in proptest::option::of(proptest::sample::select(Mode::VARIANTS)),
        initial_window in (1..=u32::MAX).prop_map(Segments),
        questions in proptest::collection::vec(question(), 1..4),
    ) {
        let query = Query { mode, initial_window, questions };
        prop_assert_eq!(Query::try_from(sent(&v1::QueryRequest::from(&query))), Ok(query));
    }

    #[test]
    fn answers_arrive_as_they_were_sent(answers in proptest::collection::vec(answer(), 1..4)) {
        prop_assert_eq!(answers_from_wire(sent(&answers_to_wire(&answers, NOW)), NOW), Ok(answers));
    }

    #[test]
    fn a_subscription_arrives_as_it_was_sent(
        host_name in host_name(),
        addresses in proptest::collection::vec(ip(), 1..4),
        agent in proptest::option::of(agent()),
        cluster in cluster(),
        networks in proptest::collection::vec(ip().prop_map(Network::of), 0..4),
    ) {
        let subscription = Subscription { host_name, addresses, agent, cluster, networks };
        prop_assert_eq!(Subscription::try_from(sent(&v1::SubscribeRequest::from(&subscription))), Ok(subscription));
    }

    #[test]
    fn an_update_arrives_as_it_was_sent(update in update()) {
        prop_assert_eq!(Update::from_wire(sent(&update.to_wire(NOW)), NOW), Ok(update));
    }

    #[test]
    fn a_report_arrives_as_it_was_sent(
        host_name in host_name(),
        batch in 1..=u64::MAX,
        started: u64,
        connections in proptest::collection::vec(connection_report(), 0..4),
        pushes: (u64, u64, u64, u64),
        pause in pause(),
    ) {
        let (received, in_time, late, unmatched) = pushes;
        let pushes = PushCount { received, in_time, late, unmatched };
        let report = Report { host_name, batch, agent_started: Timestamp(started), connections, pushes, pause };
        prop_assert_eq!(Report::try_from(sent(&v1::ReportRequest::from(&report))), Ok(report));
    }

    #[test]
    fn a_damaged_update_is_refused_or_can_be_sent_on(
        update in update(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = update.to_wire(NOW).encode_to_vec();
        for (place, byte) in damage {
            *place.get_mut(&mut bytes) = byte;
        }
        if let Ok(message) = v1::Update::decode(bytes.as_slice())
            && let Ok(update) = Update::from_wire(message, NOW)
        {
            prop_assert_eq!(Update::from_wire(sent(&update.to_wire(NOW)), NOW), Ok(update));
        }
    }
}
