//! Scripts of one sender: its segments, the acknowledgements to it, and the result.

mod transfers;

use std::net::IpAddr;

use spand_proto::network::Network;
use spand_proto::units::Window;

use super::*;
use crate::config::Limits;
use crate::counters::Counters;
use crate::flow::hosts::Hosts;
use crate::flow::passed::LATE;
use crate::flow::prefixes::Prefixes;
use crate::flow::push_ledger::PushLedger;
use crate::flow::sink::FlowSink;
use crate::service::ServiceTable;
use crate::types::{Delivered, Flows, LimitCounts, RttSum, SampleRate, SenderId, SenderState, WindowSample};
use crate::wire::segment::{Ecn, Endpoint, Flags, Options, SackBlock, Timestamps};

const MSS: u32 = 1_000;

#[derive(Default)]
struct Recorder {
    losses: u32,
    samples: Vec<WindowSample>,
    rtts: RttSum,
    delivered: Vec<Delivered>,
    states: Vec<SenderState>,
    ends: u32,
    without_live: bool,
}

impl FlowSink for Recorder {
    fn sample(&mut self, sample: &WindowSample, _: SampleRate) {
        self.samples.push(*sample);
    }
    fn rounds(&mut self, _: Network, _: Timestamp, _: IpAddr, (rtts, _): (RttSum, LimitCounts), delivered: Delivered) {
        self.delivered.push(delivered);
        self.rtts = self.rtts.with(rtts);
    }
    fn begins(&mut self, _: Network, _: Timestamp, _: SampleRate) -> bool {
        true
    }
    fn wants_live(&self) -> bool {
        !self.without_live
    }
    fn under_way(&mut self, _: Network, _: Timestamp, _: SenderId, state: &SenderState) {
        self.states.push(*state);
    }
    fn ends(&mut self, _: Network, _: Timestamp, _: SenderId, _: Option<SampleRate>) {
        self.ends += 1;
    }
    fn transfer(&mut self, _: Network, _: Timestamp) {}
    fn no_sample(&mut self, _: Network, _: Timestamp, _: Ignored) {}
    fn traffic(&mut self, _: Network, _: Timestamp, _: &Flows) -> Option<bool> {
        None
    }
    fn loss(&mut self, _: Network, _: Timestamp, _: SenderId, _: Micros) {
        self.losses += 1;
    }
}

/// A sender whose handshake took 100 ms; sequence numbers count segments from its first byte of data, time is in ms.
struct Script {
    sender: Sender,
    counters: Counters,
    recorder: Recorder,
    limits: Limits,
    prefixes: Prefixes,
    ledger: PushLedger,
    hosts: Hosts,
    services: ServiceTable,
    ip_id: u16,
    ecn: Ecn,
}

impl Script {
    /// Round-trip times reported, and those pending.
    fn rtts(&self) -> u64 {
        self.recorder.rtts.count
            + self.sender.followed.as_deref().map_or(0, |followed| followed.pending_stats.rtts().count)
    }

    fn new() -> Self {
        let mut script = Self {
            sender: Sender::new(999, Some(ConnectionId(1)), false, None),
            counters: Counters::default(),
            recorder: Recorder::default(),
            limits: Limits::default(),
            prefixes: Prefixes::new(&[], &[]),
            ledger: PushLedger::new(0),
            hosts: Hosts::new(0),
            services: ServiceTable::new(Limits::default().services, Micros::from_secs(20), 0.1, 0, false),
            ip_id: 0,
            ecn: Ecn::NotEct,
        };
        let mut syn = script.segment(0);
        syn.flags = Flags(Flags::SYN);
        syn.seq = 999;
        syn.payload_len = 0;
        syn.options.sack_permitted = true;
        script.take_sent(&syn);
        let own = script.sender.syn.unwrap();
        script.sender.agree(&own, &own, None, at(0));
        script.ack(100, 0);
        script
    }

    fn segment(&self, ms: u64) -> Segment {
        let endpoint = Endpoint { address: "192.0.2.1".parse().unwrap(), port: 80 };
        let clock = u32::try_from(ms).unwrap();
        Segment {
            at: at(ms),
            source: endpoint,
            destination: endpoint,
            seq: 1_000,
            ack: Some(1),
            flags: Flags(Flags::ACK),
            window: 60_000,
            payload_len: MSS,
            ip_id: Some(self.ip_id),
            ecn: self.ecn,
            options: Options { timestamps: Some(Timestamps { value: clock, echo: clock }), ..Options::default() },
        }
    }

    fn take_sent(&mut self, segment: &Segment) {
        let Self { sender, counters, recorder, limits, prefixes, ledger, hosts, services, .. } = self;
        let copy = sender.is_copy(segment);
        sender.send(
            segment,
            copy,
            &mut FlowContext {
                limits,
                read_window_option: true,
                prefixes,
                ledger,
                hosts,
                services,
                counters,
                now: segment.at,
                bad_times: None,
                rate: SampleRate::ALL,
                patience: LATE,
                findings: recorder,
            },
        );
    }

    fn send(&mut self, ms: u64, segments: std::ops::Range<u32>) {
        for n in segments {
            self.ip_id += 1;
            let mut segment = self.segment(ms);
            segment.seq = 1_000 + n * MSS;
            self.take_sent(&segment);
        }
    }

    /// An acknowledgement of the first `segments`, with an echo of 100 ms ago.
    fn ack(&mut self, ms: u64, segments: u32) {
        self.ack_with(ms, segments, &[], ms.saturating_sub(100));
    }

    /// An acknowledgement of the first `segments` with an ECN echo.
    fn echo(&mut self, ms: u64, segments: u32) {
        let mut ack = self.segment(ms);
        (ack.payload_len, ack.ack) = (0, Some(1_000 + segments * MSS));
        ack.flags = Flags(Flags::ACK | Flags::ECE);
        self.take_ack(&ack);
    }

    fn ack_with(&mut self, ms: u64, segments: u32, sack: &[(u32, u32)], echo_ms: u64) {
        let mut ack = self.segment(ms);
        ack.payload_len = 0;
        ack.ack = Some(1_000 + segments * MSS);
        ack.options.timestamps = Some(Timestamps { value: 7, echo: u32::try_from(echo_ms).unwrap() });
        let block = |(left, right): &(u32, u32)| SackBlock { left: 1_000 + left * MSS, right: 1_000 + right * MSS };
        ack.options.sack = sack.iter().map(block).collect();
        self.take_ack(&ack);
    }

    fn take_ack(&mut self, ack: &Segment) {
        let Self { sender, counters, recorder, limits, prefixes, ledger, hosts, services, .. } = self;
        sender.acknowledge(
            ack,
            Some(0),
            &mut FlowContext {
                limits,
                read_window_option: true,
                prefixes,
                ledger,
                hosts,
                services,
                counters,
                now: ack.at,
                bad_times: None,
                rate: SampleRate::ALL,
                patience: LATE,
                findings: recorder,
            },
        );
    }

    /// Whether its transfer is under way at `now`.
    fn is_under_way(&mut self, now: Timestamp) -> bool {
        let Self { sender, counters, recorder, limits, prefixes, ledger, hosts, services, .. } = self;
        sender.end_by_silence(
            now,
            &mut FlowContext {
                limits,
                read_window_option: true,
                prefixes,
                ledger,
                hosts,
                services,
                counters,
                now,
                bad_times: None,
                rate: SampleRate::ALL,
                patience: LATE,
                findings: recorder,
            },
        );
        sender.followed.as_deref().unwrap().transfer.is_some()
    }

    /// Loss events, timeouts among them.
    fn losses(&self) -> (u64, u64) {
        assert_eq!(self.counters.loss_events, u64::from(self.recorder.losses));
        (self.counters.loss_events, self.counters.timeouts)
    }
}

fn at(ms: u64) -> Timestamp {
    Timestamp(1_000_000_000_000 + ms * 1_000_000)
}
