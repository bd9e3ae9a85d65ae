//! The packets of a source in order of time.
//!
//! A capture of several receive queues or interfaces is written block by block: its times go back by up to some hundred milliseconds.
//! This module sorts within a second and bounds what it holds. A clock that was set back by less than that is no disorder: the times after it
//! are shifted. It does not merge files (`merge.rs`) and does not judge times that go back further.

mod line;

use spand_proto::units::{Micros, Timestamp};

use self::line::Line;
use crate::{LinkType, Next, Packet, PacketSource, Progress, SourceError, SourceStats};

/// Packets less than this apart are put in order.
const REACH: Micros = Micros::from_secs(1);

/// Packets held at most: a second of a file with as many packets a second.
const PACKETS: usize = 1 << 16;

/// Packets held at most until one is out of order.
const FEW_PACKETS: usize = 1 << 10;

/// Captured bytes of them at most.
const BYTES: usize = 64 << 20;

/// After this many packets in order a source is taken for one in order, and its packets are passed on as they come.
const SETTLED: usize = 1 << 16;

/// A time that goes back by this much in one record may be a clock that was set back. It was if at least [`SET_BACK_RECORDS`] records follow
/// without a jump in either direction, and their times pass the latest time before the step by half of the step. It goes back once: blocks of
/// receive queues, of which some are often empty, go back again.
const SET_BACK_LEAST: Micros = Micros(250_000);
const SET_BACK_RECORDS: u64 = 16;

/// After this many records in a row with one time, or each a microsecond after the one before, no clock measured these times.
const MADE_UP: usize = 100;

/// Buffers of more bytes are given back rather than used again.
const SPARE_BYTES: usize = 2 << 10;

/// Sorts the packets of a source by time. Packets of the same time keep their order.
///
/// A packet that is more than [`REACH`] behind the latest one stays where it was. Holding packets costs memory and a copy of each: few are
/// held until one is out of order, and none once [`SETTLED`] packets in a row were in order. The first packet out of order after that comes
/// late, and those behind it are sorted again.
#[derive(Debug)]
pub struct Ordered<S> {
    source: S,
    held: Line,
    held_bytes: usize,
    /// Buffers of packets that are gone.
    spare: Vec<Vec<u8>>,
    /// The packet given last.
    current: Held,
    /// The latest time of this run.
    latest: Timestamp,
    /// A packet further back than [`REACH`] starts a new run, and those of earlier runs come before it.
    run: u64,
    /// Packets read while packets are held.
    number: u64,
    /// The last packets that were in order.
    in_order: usize,
    /// A packet was not.
    unordered: bool,
    set_back: SetBack,
    made_up: MadeUp,
    ended: bool,
}

/// Recognises times that no clock measured.
#[derive(Debug, Default)]
struct MadeUp {
    last: Timestamp,
    /// The time between the last two records, and how many in a row had it.
    apart: u64,
    run: usize,
}

impl MadeUp {
    /// Takes the time of a record. Returns how many records, up to this one, hold no measured time.
    fn note(&mut self, at: Timestamp) -> usize {
        let apart = at.0.wrapping_sub(std::mem::replace(&mut self.last, at).0);
        self.run = if apart == self.apart { self.run + 1 } else { 1 };
        self.apart = apart;
        match self.run {
            MADE_UP.. if apart != 0 && apart != 1_000 => 0,
            MADE_UP => MADE_UP + 1,
            run => usize::from(run > MADE_UP),
        }
    }
}

/// Recognises a clock that was set back.
#[derive(Debug, Default)]
struct SetBack {
    /// The time of the record before.
    last: Timestamp,
    /// Nanoseconds by which it was set back so far.
    by: u64,
    /// It may have been set back at this record, at this latest time and by this number of nanoseconds.
    maybe: Option<(u64, Timestamp, u64)>,
    /// The times go back again and again, or the clock was set back already.
    in_blocks: bool,
}

impl SetBack {
    /// Whether a record of this time is in its place, however it turns out.
    fn is_settled(&self, at: Timestamp) -> bool {
        self.maybe.is_none_or(|(_, before, lacks)| at.0 < before.0.saturating_sub(lacks))
    }

    /// Takes the time of a record as it was captured. Returns its time, and the number of the first record after a clock that turns out to
    /// have been set back, with the nanoseconds that it and those after it lack.
    fn note(&mut self, at: Timestamp, number: u64, latest: Timestamp) -> (Timestamp, Option<(u64, u64)>) {
        let at = Timestamp(at.0.saturating_add(self.by));
        let last = std::mem::replace(&mut self.last, at);
        if last.since(at) >= SET_BACK_LEAST && !self.in_blocks {
            self.in_blocks = self.maybe.take().is_some();
            let maybe = (number, latest, latest.0.saturating_sub(at.0));
            self.maybe = (!self.in_blocks && latest.since(at) < REACH).then_some(maybe);
        }
        let Some((first, before, lacks)) = self.maybe else { return (at, None) };
        if at.0.saturating_sub(last.0) > lacks / 2 {
            self.maybe = None;
        } else if number >= first + SET_BACK_RECORDS && at.0 > before.0.saturating_add(lacks + lacks / 2) {
            (self.maybe, self.in_blocks) = (None, true);
            self.by += lacks;
            self.last.0 += lacks;
            return (Timestamp(at.0.saturating_add(lacks)), Some((first, lacks)));
        }
        (at, None)
    }
}

/// A packet, in the order in which it comes.
#[derive(Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
struct Held {
    run: u64,
    at: Timestamp,
    number: u64,
    untimed: bool,
    link_type: u16,
    wire_len: u32,
    interface: u32,
    source: u32,
    data: Vec<u8>,
}

impl Held {
    fn packet(&self) -> Packet<'_> {
        let Self { at, untimed, link_type, wire_len, interface, source, ref data, .. } = *self;
        Packet { timestamp: at, untimed, link_type: LinkType(link_type), wire_len, interface, source, data }
    }
}

impl<S: PacketSource> Ordered<S> {
    /// The packets of `source`.
    pub fn new(source: S) -> Self {
        Self {
            source,
            held: Line::default(),
            held_bytes: 0,
            spare: Vec::new(),
            current: Held::default(),
            latest: Timestamp(0),
            run: 0,
            number: 0,
            in_order: 0,
            unordered: false,
            set_back: SetBack::default(),
            made_up: MadeUp::default(),
            ended: false,
        }
    }

    /// Where the packets come from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Whether the first packet held is the next one, whatever comes.
    fn is_due(&self) -> bool {
        let Some(first) = self.held.first() else { return false };
        self.ended
            || self.in_order >= SETTLED
            || first.run < self.run
            || (self.latest.since(first.at) >= REACH && self.set_back.is_settled(first.at))
            || self.held.len() >= if self.unordered { PACKETS } else { FEW_PACKETS }
            || self.held_bytes >= BYTES
    }

    /// The next packet as it comes.
    fn pass_on(&mut self) -> Result<Next<'_>, SourceError> {
        if self.held.has_room() {
            (self.held, self.spare) = Default::default();
        }
        let mut next = self.source.next_packet()?;
        if let Next::Packet(packet) = &mut next {
            packet.untimed |= self.made_up.note(packet.timestamp) > 0;
            (packet.timestamp, _) = self.set_back.note(packet.timestamp, self.number, self.latest);
            if packet.timestamp < self.latest {
                (self.in_order, self.unordered) = (0, true);
            }
            self.latest = self.latest.max(packet.timestamp);
        }
        Ok(next)
    }

    /// Reads a packet and holds it. Returns false where the source has none, at the moment or any more.
    fn hold(&mut self) -> Result<bool, SourceError> {
        let packet = match self.source.next_packet()? {
            Next::Packet(packet) => packet,
            Next::Idle => return Ok(false),
            Next::End => {
                self.ended = true;
                return Ok(false);
            }
        };
        let Packet { timestamp: at, untimed, link_type: LinkType(link_type), wire_len, interface, source, .. } = packet;
        let made_up = self.made_up.note(at);
        let (at, set_back) = self.set_back.note(at, self.number, self.latest);
        if let Some((first, lacks)) = set_back {
            self.held.shift(first, lacks);
        }
        let untimed = untimed || made_up > 0;
        if at < self.latest {
            (self.in_order, self.unordered) = (0, true);
        } else {
            self.in_order += 1;
        }
        if self.latest.since(at) >= REACH {
            self.run += 1;
            self.latest = at;
        }
        self.latest = self.latest.max(at);
        let mut data = self.spare.pop().unwrap_or_default();
        data.clear();
        data.extend_from_slice(packet.data);
        self.held_bytes += data.len();
        let (run, number) = (self.run, self.number);
        self.held.push(Held { run, at, number, untimed, link_type, wire_len, interface, source, data });
        self.number += 1;
        if made_up > 0 {
            self.held.take_times(self.number.saturating_sub(made_up as u64));
        }
        Ok(true)
    }
}

impl<S: PacketSource> PacketSource for Ordered<S> {
    /// As of the source. While the source is idle, held packets wait for the next one. After an error they may still follow.
    #[inline]
    fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
        if self.in_order >= SETTLED && self.held.is_empty() {
            return self.pass_on();
        }
        while !self.is_due() {
            if !self.hold()? && !self.ended {
                return Ok(Next::Idle);
            }
            if self.ended && self.held.is_empty() {
                return Ok(Next::End);
            }
        }
        let Some(next) = self.held.pop() else { return Ok(Next::End) };
        self.held_bytes -= next.data.len();
        let gone = std::mem::replace(&mut self.current, next).data;
        if gone.capacity() <= SPARE_BYTES && self.spare.len() < FEW_PACKETS {
            self.spare.push(gone);
        }
        Ok(Next::Packet(self.current.packet()))
    }

    /// As of the source: packets held count as delivered.
    fn stats(&self) -> SourceStats {
        self.source.stats()
    }

    fn name(&self) -> &str {
        self.source.name()
    }

    fn progress(&self) -> Option<Progress> {
        self.source.progress()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Packets at these milliseconds, each with its number.
    struct Script(Vec<u64>, usize, [u8; 1]);

    impl PacketSource for Script {
        fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
            let Self(times, next, data) = self;
            let Some(ms) = times.get(*next) else { return Ok(Next::End) };
            *data = [u8::try_from(*next % 251).unwrap()];
            *next += 1;
            Ok(Next::Packet(Packet {
                timestamp: Timestamp(ms * 1_000_000),
                untimed: false,
                link_type: LinkType::RAW,
                wire_len: 60,
                interface: 0,
                source: 0,
                data,
            }))
        }

        fn stats(&self) -> SourceStats {
            SourceStats::default()
        }

        fn name(&self) -> &'static str {
            "script"
        }

        fn progress(&self) -> Option<Progress> {
            None
        }
    }

    fn ordered(times: &[u64]) -> Vec<(u64, u8)> {
        let mut source = Ordered::new(Script(times.to_vec(), 0, [0]));
        let mut seen = Vec::new();
        while let Next::Packet(packet) = source.next_packet().expect("a script") {
            seen.push((packet.timestamp.0 / 1_000_000, packet.data[0]));
            assert!(source.held.len() <= PACKETS);
        }
        assert_eq!(source.held_bytes, 0);
        seen
    }

    fn times(times: &[u64]) -> Vec<u64> {
        ordered(times).into_iter().map(|(ms, _)| ms).collect()
    }

    #[test]
    fn what_lies_within_a_second_comes_in_order_and_equal_times_as_they_came() {
        assert_eq!(ordered(&[5, 7, 3, 5]), [(3, 2), (5, 0), (5, 3), (7, 1)]);
        assert_eq!(times(&[1_000, 1_999, 3_000, 2_001, 2_500]), [1_000, 1_999, 2_001, 2_500, 3_000]);
    }

    proptest! {
        #[test]
        fn within_a_second_the_order_is_that_of_a_stable_sort(
            script in prop::collection::vec(prop_oneof![0..1_000_u64, 900..1_000_u64], 0..600),
        ) {
            let mut sorted: Vec<_> = script.iter().zip(0..).map(|(ms, n)| (*ms, u8::try_from(n % 251).unwrap())).collect();
            sorted.sort_by_key(|(ms, _)| *ms);
            prop_assert_eq!(ordered(&script), sorted);
        }
    }

    /// Idle after each packet.
    struct Pausing(Script, bool);

    impl PacketSource for Pausing {
        fn next_packet(&mut self) -> Result<Next<'_>, SourceError> {
            let Self(script, pause) = self;
            *pause = !*pause;
            if *pause { script.next_packet() } else { Ok(Next::Idle) }
        }

        fn stats(&self) -> SourceStats {
            SourceStats::default()
        }

        fn name(&self) -> &'static str {
            "pausing"
        }

        fn progress(&self) -> Option<Progress> {
            None
        }
    }

    #[test]
    fn an_idle_source_is_idle_although_packets_are_held() {
        let mut source = Ordered::new(Pausing(Script(vec![5, 3, 7], 0, [0]), false));
        let mut seen = Vec::new();
        for _ in 0..20 {
            seen.push(match source.next_packet().expect("a script") {
                Next::Packet(packet) => Some(packet.timestamp.0 / 1_000_000),
                Next::Idle => None,
                Next::End => break,
            });
        }
        assert_eq!(seen, [None, None, None, Some(3), Some(5), Some(7)]);
    }

    #[test]
    fn times_that_nothing_measured_are_none() {
        let untimed = |times: Vec<u64>| {
            let mut source = Ordered::new(Script(times, 0, [0]));
            let mut count = 0;
            while let Next::Packet(packet) = source.next_packet().expect("a script") {
                count += usize::from(packet.untimed);
            }
            count
        };
        assert_eq!(untimed(vec![0; 300]), 300, "those before it was noticed, too");
        assert_eq!(untimed([vec![5; 100], vec![6; 100]].concat()), 0, "a burst");
        assert_eq!(untimed((0..300).collect()), 0, "a steady pace of a millisecond");
        assert_eq!(untimed([vec![7; 101], (8..100).collect()].concat()), 101, "what is measured after that is");
    }

    #[test]
    fn a_clock_that_was_set_back_shifts_the_times_after_it() {
        let before = (0..40).map(|n| 1_000 + n * 20);
        let stepped: Vec<u64> = before.clone().chain((0..70).map(|n| 1_300 + n * 20)).collect();
        let seen = ordered(&stepped);
        assert!(seen.iter().map(|(_, number)| *number).eq(0..110), "nothing changes its place");
        assert_eq!(seen.last().unwrap().0, 1_780 + 69 * 20, "the first one after it has the latest time");
        // Two receive queues, in blocks of 300 ms.
        let blocks = (0..6).flat_map(|block| [0, 1].map(|queue| (0..30).map(move |n| block * 300 + n * 10 + queue)));
        let seen = times(&blocks.flatten().collect::<Vec<_>>());
        assert!(seen.is_sorted() && seen.last() == Some(&1_791), "{seen:?}");
        // One of them is empty but for a block in two seconds: one step at most.
        let sometimes = (0..20).flat_map(|block| {
            let queues: &[u64] = if block % 7 == 3 { &[0, 1] } else { &[0] };
            queues.iter().flat_map(move |queue| (0..30).map(move |n| block * 300 + n * 10 + queue))
        });
        let seen = times(&sometimes.collect::<Vec<_>>());
        assert!(seen.last().is_some_and(|last| *last < 6_000 + 300), "{seen:?}");
    }

    #[test]
    fn what_lies_further_back_comes_late_and_holds_nothing_up() {
        assert_eq!(times(&[5_000, 5_900, 5_800, 4_800, 4_700, 4_900]), [5_000, 5_800, 5_900, 4_700, 4_800, 4_900]);
        let broken = u64::MAX / 1_000_000;
        assert_eq!(
            times(&[10, 30, broken, 50, 40, 60]),
            [10, 30, broken, 40, 50, 60],
            "a broken stamp stays where it was"
        );
    }

    #[test]
    fn a_source_in_order_is_passed_on_until_a_packet_is_not() {
        let count = SETTLED as u64 + 10;
        let mut script: Vec<u64> = (0..count).collect();
        script.extend([count + 10, count + 5, count + 20, count + 12, count + 11]);
        let seen = times(&script);
        let end = [count + 10, count + 5, count + 11, count + 12, count + 20];
        assert_eq!(seen[..script.len() - 5], script[..script.len() - 5]);
        assert_eq!(seen[script.len() - 5..], end, "the first comes late");
    }

    #[test]
    fn more_packets_in_a_second_than_are_held_come_as_far_as_room_allows() {
        let count = PACKETS as u64 + 100;
        // All of one millisecond but the last, which belongs before all.
        let script: Vec<u64> = (0..count).map(|n| if n % 2 == 0 { 7 } else { 6 }).chain([5]).collect();
        let seen = times(&script);
        assert_eq!(seen.len(), script.len());
        assert_eq!(seen.iter().position(|ms| *ms == 5), Some(101), "those that had to go before");
    }
}
