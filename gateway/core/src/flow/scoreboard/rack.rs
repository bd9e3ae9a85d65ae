//! What counts as lost by time (RACK, RFC 8985 section 6, as Linux does it in `tcp_recovery.c`): whatever was sent a while
//! before something that has arrived.

use spand_proto::units::{Micros, Timestamp};

use super::segment::Outstanding;
use super::{Mark, Scoreboard};
use crate::flow::maybe::MaybeMicros;
use crate::flow::rtt::round_trip;

/// SACKed segments from which on no reordering is waited for, while none was ever seen.
const DUP_THRESH: usize = 3;

/// The segment sent last among those that have arrived.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    sent: Timestamp,
    end: u64,
    rtt: MaybeMicros,
    /// It had been sent before.
    again: bool,
    /// Something arrived after what was sent behind it, and not because it was sent again.
    reordered: bool,
}

/// What is known of the path, for judging by time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathTimes {
    /// Smallest round-trip time.
    pub(crate) min_rtt: Option<Micros>,
    /// Smoothed round-trip time.
    pub(crate) srtt: Option<Micros>,
    /// A loss is being repaired.
    pub(crate) recovering: bool,
}

impl Rack {
    /// `segment` arrived, as an acknowledgement at `at` says; `sacked_to` is the highest byte that had before.
    #[inline]
    pub(super) fn arrived(&mut self, segment: &Outstanding, at: Timestamp, sacked_to: u64, min_rtt: Option<Micros>) {
        if segment.marks.has(Mark::Unseen) {
            return;
        }
        let again = segment.transmissions > 1;
        self.reordered |= !again && segment.end < sacked_to;
        if (segment.sent_at, segment.end) <= (self.sent, self.end) {
            return;
        }
        let Some(rtt) = round_trip(segment.sent_at, at) else { return };
        // Sooner than the path allows: it was an earlier transmission that arrived.
        if again && min_rtt.is_some_and(|least| rtt < least) {
            return;
        }
        (self.sent, self.end, self.rtt, self.again) = (segment.sent_at, segment.end, MaybeMicros::some(rtt), again);
    }

    /// Whether it was sent after `segment`.
    fn is_after(&self, segment: &Outstanding) -> bool {
        (segment.sent_at, segment.end) < (self.sent, self.end)
    }

    fn patience(&self, path: &PathTimes, sacked_segments: usize) -> Micros {
        if !self.reordered && (path.recovering || sacked_segments >= DUP_THRESH) {
            return Micros(0);
        }
        let quarter = Micros(path.min_rtt.unwrap_or_default().0 / 4);
        path.srtt.map_or(quarter, |srtt| quarter.min(srtt))
    }
}

impl Scoreboard {
    /// What was sent last among everything that has arrived: when, up to where, and whether it had been sent before.
    pub(crate) fn newest_arrived(&self) -> (Timestamp, u64, bool) {
        (self.rack.sent, self.rack.end, self.rack.again)
    }

    /// Marks as lost what was sent before something that has arrived by `at`, by more than reordering explains; what was sent
    /// again and is lost again, too. Returns whether any of that was.
    #[inline]
    pub(crate) fn deem_lost_by_time(&mut self, at: Timestamp, path: &PathTimes) -> bool {
        let all = self.repairs().repeats_unsettled_since <= self.rack.sent;
        let from = if all { 0 } else { self.first_after(self.settled_to) };
        if !all && self.segments.get(from).is_none_or(|first| is_first(first) && !self.rack.is_after(first)) {
            return false;
        }
        self.walk_unsettled(from, all, at, path)
    }

    /// Walks the window from the segment numbered `from`; with `all`, past those that were sent in order, too.
    fn walk_unsettled(&mut self, from: usize, all: bool, at: Timestamp, path: &PathTimes) -> bool {
        let rack = self.rack;
        let sacked_segments = self.segments.iter().rev().filter(|segment| segment.marks.has(Mark::Sacked));
        let sacked_segments =
            if path.recovering || self.sacked() == 0 { 0 } else { sacked_segments.take(DUP_THRESH).count() };
        let patience = rack.patience(path, sacked_segments);
        let overdue = Micros(rack.rtt.get().unwrap_or_default().0.saturating_add(patience.0));
        let mut settled_to = None;
        let repeats_before = self.repairs().repeats_unsettled_since;
        let mut repeats = if all { Timestamp(u64::MAX) } else { repeats_before };
        let retransmitted_before = self.repairs().retransmitted;
        for segment in self.segments.range_mut(from..) {
            let sent_before = rack.is_after(segment);
            if !sent_before && is_first(segment) {
                // First transmissions are in order of time.
                settled_to = settled_to.or(Some(segment.start));
                if !all {
                    break;
                }
                continue;
            }
            let waiting = segment.marks.has(Mark::Lost) && !segment.marks.has(Mark::Retransmitted);
            if segment.marks.has(Mark::Sacked) || waiting {
                continue;
            }
            if !sent_before || at.since(segment.sent_at) < overdue {
                if is_first(segment) {
                    settled_to = settled_to.or(Some(segment.start));
                } else {
                    repeats = repeats.min(segment.sent_at);
                }
                continue;
            }
            if segment.marks.has(Mark::Retransmitted) {
                segment.marks.clear(Mark::Retransmitted);
                let repairs = self.repairs.get_or_insert_default();
                repairs.retransmitted = repairs.retransmitted.saturating_sub(segment.len());
                repairs.ever_lost += segment.len();
            }
            if !segment.marks.has(Mark::Lost) {
                segment.marks.set(Mark::Lost);
                let repairs = self.repairs.get_or_insert_default();
                repairs.lost += segment.len();
                repairs.ever_lost += segment.len();
            }
        }
        self.settled_to = settled_to.unwrap_or(self.nxt);
        if repeats != repeats_before {
            self.repairs_mut().repeats_unsettled_since = repeats;
        }
        self.repairs().retransmitted < retransmitted_before
    }
}

/// Sent once, as far as was seen.
fn is_first(segment: &Outstanding) -> bool {
    segment.transmissions == 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flow::scoreboard::Stamp;

    const LIMIT: usize = 100;
    const MIN_RTT: Option<Micros> = Some(Micros(40_000));

    fn ms(n: u64) -> Timestamp {
        Timestamp((n + 1) * 1_000_000)
    }

    /// Segments of 100 bytes, sent at these times in milliseconds.
    fn sent(times: &[u64]) -> Scoreboard {
        let mut board = Scoreboard::starting_at(0);
        for (n, at) in (0..).zip(times) {
            send(&mut board, n, *at);
        }
        board
    }

    fn send(board: &mut Scoreboard, n: u64, at: u64) {
        board.send(n * 100, n * 100 + 100, Stamp { at: ms(at), ..Stamp::default() }, LIMIT);
    }

    fn sack(board: &mut Scoreboard, n: u64, at: u64) {
        board.sack((n * 100, n * 100 + 100), ms(at), MIN_RTT, LIMIT, &mut None);
    }

    fn judge(board: &mut Scoreboard, at: u64, recovering: bool) {
        board.deem_lost_by_time(ms(at), &PathTimes { min_rtt: MIN_RTT, srtt: Some(Micros(50_000)), recovering });
    }

    #[test]
    fn one_arrival_loses_what_was_sent_long_before_it() {
        let mut board = sent(&[0, 0, 0, 50]);
        sack(&mut board, 3, 100);
        judge(&mut board, 100, false);
        assert_eq!((board.repairs().lost, board.pipe()), (300, 0));
    }

    #[test]
    fn what_was_sent_just_before_may_come_yet() {
        let mut board = sent(&[0, 11, 20]);
        sack(&mut board, 2, 60);
        judge(&mut board, 60, false);
        assert_eq!(board.repairs().lost, 100, "a quarter of the smallest round trip is waited for");
        judge(&mut board, 60, true);
        assert_eq!(board.repairs().lost, 200, "but not while a loss is being repaired");
    }

    #[test]
    fn three_arrivals_end_the_wait_unless_the_path_reorders() {
        let arrive = |board: &mut Scoreboard| {
            for n in [2, 3, 4] {
                sack(board, n, 41 + n);
            }
            judge(board, 45, false);
        };
        let mut board = sent(&[0, 1, 2, 3, 4]);
        arrive(&mut board);
        assert_eq!(board.repairs().lost, 200);
        let mut board = sent(&[0, 1, 2, 3, 4]);
        sack(&mut board, 4, 44);
        arrive(&mut board);
        assert_eq!(board.repairs().lost, 0, "the last one came before two that were sent ahead of it");
    }

    #[test]
    fn what_is_sent_again_can_be_lost_again() {
        let mut board = sent(&[0, 0, 50]);
        sack(&mut board, 2, 100);
        judge(&mut board, 100, false);
        send(&mut board, 0, 101);
        assert_eq!(board.pipe(), 100);
        send(&mut board, 3, 130);
        sack(&mut board, 3, 180);
        judge(&mut board, 180, true);
        assert_eq!((board.repairs().lost, board.repairs().retransmitted, board.pipe()), (200, 0, 0));
    }

    #[test]
    fn a_tail_loss_probe_is_counted_once() {
        let mut board = sent(&[0, 0]);
        send(&mut board, 1, 100);
        assert_eq!(board.pipe(), 200);
    }

    proptest! {
        #[test]
        fn what_is_passed_over_would_not_have_been_lost(
            steps in prop::collection::vec((0..4_u8, 0..12_u64, 0..30_u64), 1..80),
        ) {
            let mut board = Scoreboard::starting_at(0);
            let (mut at, mut next) = (0, 0);
            for (what, n, wait) in steps {
                at += wait;
                match what {
                    0 => {
                        send(&mut board, next, at);
                        next += 1;
                    }
                    1 if n < next => send(&mut board, n, at),
                    2 if n < next => sack(&mut board, n, at),
                    3 => {
                        board.acknowledge(board.una().max(n.min(next) * 100), ms(at), MIN_RTT);
                    }
                    _ => board.forgive(),
                }
                let mut whole = board.clone();
                whole.settled_to = 0;
                whole.repairs_mut().repeats_unsettled_since = Timestamp(0);
                judge(&mut board, at, n % 2 == 0);
                judge(&mut whole, at, n % 2 == 0);
                prop_assert_eq!((board.repairs().lost, board.repairs().retransmitted), (whole.repairs().lost, whole.repairs().retransmitted));
            }
        }
    }
}
