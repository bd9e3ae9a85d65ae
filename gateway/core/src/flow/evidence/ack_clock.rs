//! Whether a sender is ACK-clocked.
//!
//! A window-limited sender answers each acknowledgement at once with full-sized segments. One that paces, or waits for its
//! application, does not. The tap may be distant from the sender: an answer passes it one round trip over that distance after
//! its acknowledgement, and others may pass in between. That time, the reaction, is measured where it is unambiguous: at the
//! first acknowledgement of a flight.

use smallvec::SmallVec;
use spand_proto::units::{Micros, Timestamp};

use crate::flow::maybe::{MaybeCount, MaybeMicros, MaybeTime};
use crate::flow::sequence::low_half;

/// Longest time from the reaction to an answer. (At 40 % of the link rate an application's segments fall between
/// acknowledgements often enough to look clocked under "before the next one".)
const ANSWER_WITHIN_US: i64 = 1_000;
pub(super) const ANSWER_WITHIN: Micros = Micros(ANSWER_WITHIN_US.unsigned_abs());
/// Acknowledgements kept on their way to the sender; at the limit the two nearest to each other count as one.
const UNDERWAY: usize = 12;
/// Variation of a sender's own time to answer.
const JITTER_US: i64 = 100;
pub(super) const JITTER: Micros = Micros(JITTER_US.unsigned_abs());
/// A shorter reaction is the sender's own: it has received every acknowledgement that the tap saw.
const NEAR: Micros = Micros(500);
/// So is one shorter than this part of a round trip.
const NEAR_PART: u64 = 16;
/// Number of acknowledgements with the same lead from which on it counts.
const LEADS_SHOWN: u8 = 32;
/// Largest lead, and largest difference between two that are the same.
const LEAD_MOST_US: u32 = 150;
const LEAD_JITTER_US: u32 = 50;
/// Longest gap between two acknowledgements of a train.
const TRAIN_GAP_MOST_US: u32 = 1_000_000;
/// A reaction longer than this part of the round-trip time is the application's, not the distance's.
pub(super) const REACTION_PART: u64 = 4;

/// An acknowledgement of new data at the tap. Only differences count, so the low halves are enough; an idle time clears older ones
/// before they wrap.
#[derive(Clone, Copy, Debug)]
struct Ack {
    at_us: u32,
    /// Bytes delivered by then.
    delivered_bytes: u32,
}

impl Ack {
    fn new(at: Timestamp, delivered_bytes: u64) -> Self {
        Self { at_us: low_half(at.0 / 1_000), delivered_bytes: low_half(delivered_bytes) }
    }

    /// Microseconds from `reaction` after it to `at`; negative before.
    fn since_due_us(self, at: Timestamp, reaction: Micros) -> i64 {
        let since = low_half(at.0 / 1_000).wrapping_sub(self.at_us).cast_signed();
        i64::from(since) - i64::try_from(reaction.0).unwrap_or(i64::MAX)
    }

    /// Bytes delivered after it.
    fn behind_bytes(self, delivered_bytes: u64) -> u64 {
        u64::from(low_half(delivered_bytes).wrapping_sub(self.delivered_bytes))
    }
}

/// Measures the lead of a sender: how long its segments precede the acknowledgement that released them. A lead shows that two capture
/// ports stamp the two directions apart.
#[derive(Clone, Copy, Debug, Default)]
struct Lead {
    /// Time of the first full-sized segment since the last acknowledgement: its low half, in microseconds.
    first_us: u32,
    /// Number of full-sized segments since then.
    segments: u8,
    /// Smoothed time from the first segment to the acknowledgement.
    mean_us: u16,
    /// Number of acknowledgements with this lead. Each one with another lead halves it.
    steady: u8,
}

impl Lead {
    fn on_sent(&mut self, at_us: u32) {
        if self.segments == 0 {
            self.first_us = at_us;
        }
        self.segments = self.segments.saturating_add(1);
    }

    /// Takes an acknowledgement. `gap_us`: usual time between two. Returns the number of segments before it that it released.
    fn on_ack(&mut self, at_us: u32, gap_us: u32) -> u8 {
        let segments = std::mem::take(&mut self.segments);
        if segments == 0 {
            return 0;
        }
        let lead_us = u16::try_from(at_us.wrapping_sub(self.first_us)).unwrap_or(u16::MAX);
        let steady = u32::from(lead_us.abs_diff(self.mean_us)) <= LEAD_JITTER_US.min(gap_us / 16);
        self.steady = if steady { self.steady.saturating_add(1) } else { self.steady / 2 };
        self.mean_us = if self.steady == 0 { lead_us } else { self.mean_us - self.mean_us / 8 + lead_us / 8 };
        if steady && self.steady >= LEADS_SHOWN && u32::from(self.mean_us) <= (gap_us / 8).min(LEAD_MOST_US) {
            segments
        } else {
            0
        }
    }
}

/// Matches acknowledgements with the segments that they release.
#[derive(Clone, Debug, Default)]
pub(super) struct AckClock {
    /// Smallest time from an acknowledgement to its answer.
    reaction: MaybeMicros,
    /// What the newest segment waited in a queue before the tap.
    wait_us: u32,
    /// When the first acknowledgement of a flight passed, until its answer.
    first_ack: MaybeTime,
    /// Passed the tap, and not yet at the sender: at most one if the tap is beside it.
    underway: SmallVec<[Ack; 2]>,
    /// The newest one at the sender.
    known: Option<Ack>,
    /// Smoothed time between acknowledgements of new data, in microseconds.
    gap: MaybeCount,
    /// The same inside a flight, in microseconds; 0 before the first. A gap longer than twice the usual one lies between two
    /// flights.
    train_gap_us: u32,
    last_ack: MaybeTime,
    lead: Lead,
}

impl AckClock {
    /// Bytes that it may allocate.
    pub(super) const BESIDE_BYTES: usize = UNDERWAY * size_of::<Ack>();

    /// Returns the time from an acknowledgement at the tap to the segment that answers it there; zero if it is not known.
    pub(super) fn reaction(&self) -> Micros {
        self.reaction.get().unwrap_or_default()
    }

    /// A segment passes that waited so long in a queue before the tap: by so much its answers are late.
    pub(super) fn wait(&mut self, queued: Micros) {
        self.wait_us = u32::try_from(queued.0).unwrap_or(u32::MAX);
    }

    /// Whether the newest segment waited there.
    pub(super) fn is_behind_queue(&self) -> bool {
        self.wait_us > 0
    }

    /// The reaction of the newest segment.
    fn answers_after(&self) -> Micros {
        Micros(self.reaction().0.saturating_add(self.wait_us.into()))
    }

    /// Whether the tap is so near the sender that acknowledgements on their way hardly count.
    pub(super) fn is_near(&self, srtt: Option<Micros>) -> bool {
        let near = srtt.map_or(NEAR, |srtt| NEAR.max(Micros(srtt.0 / NEAR_PART)));
        !self.is_behind_queue() && self.reaction.get().is_some_and(|reaction| reaction <= near)
    }

    /// Whether the tap is beside the sender.
    pub(super) fn is_beside(&self) -> bool {
        self.reaction.get().is_some_and(|reaction| reaction <= NEAR)
    }

    /// A first estimate of the reaction; a shorter one that is seen replaces it.
    pub(super) fn presume_reaction(&mut self, reaction: Micros) {
        if self.reaction.is_none() {
            self.reaction = MaybeMicros::some(reaction);
        }
    }

    /// The same, if known.
    pub(super) fn reaction_known(&self) -> Option<Micros> {
        self.reaction.get()
    }

    /// Returns the number of segments before this acknowledgement that it released. A lead shows that the tap is beside the sender.
    pub(super) fn led_by(&mut self, at: Timestamp) -> u8 {
        let segments = self.lead.on_ack(low_half(at.0 / 1_000), self.train_gap_us);
        if segments > 0 {
            self.reaction = MaybeMicros::some(Micros(0));
        }
        segments
    }

    /// An acknowledgement of new data. `ends_flight`: the first one of a flight whose sender had more.
    pub(super) fn on_ack(&mut self, at: Timestamp, delivered_bytes: u64, ends_flight: bool) {
        if ends_flight {
            self.first_ack = MaybeTime::some(at);
        }
        if let Some(last) = self.last_ack.get() {
            let gap = at.since(last);
            self.gap = MaybeCount::some(self.gap.get().map_or(gap.0, |smoothed_us| (smoothed_us * 7 + gap.0) / 8));
            let gap_us = u32::try_from(gap.0).unwrap_or(u32::MAX).clamp(1, TRAIN_GAP_MOST_US);
            let usual_us = if self.train_gap_us == 0 { gap_us } else { self.train_gap_us };
            self.train_gap_us = (usual_us * 3 + gap_us.min(usual_us * 2)).div_ceil(4);
        }
        self.last_ack = MaybeTime::some(at);
        if self.underway.len() == self.underway.inline_size() {
            self.underway.reserve_exact(UNDERWAY - self.underway.len());
        } else if self.underway.len() >= UNDERWAY {
            self.merge_nearest();
        }
        self.underway.push(Ack::new(at, delivered_bytes));
    }

    /// Merges an acknowledgement with the one after it: the two nearest to each other.
    fn merge_nearest(&mut self) {
        let span_us = |three: &[Ack]| match three {
            [before, .., last] => last.at_us.wrapping_sub(before.at_us),
            _ => u32::MAX,
        };
        let nearest = self.underway.windows(3).enumerate().min_by_key(|(_, three)| span_us(three));
        let into = nearest.map_or(1, |(index, _)| index + 1);
        self.underway.remove(into);
    }

    /// Whether answers are distinguishable from other segments: the reaction is known, and for a distant tap the spacing of
    /// acknowledgements is wider than a sender's jitter.
    pub(super) fn is_distinct(&self) -> bool {
        let spaced = u64::from(self.train_gap_us) >= 4 * JITTER.0;
        self.reaction.get().is_some_and(|reaction| spaced || reaction <= JITTER)
    }

    /// Moves acknowledgements to the sender by `at`.
    pub(super) fn arrive(&mut self, at: Timestamp) {
        if self.underway.is_empty() {
            return;
        }
        let reaction = self.answers_after();
        // An early segment is still an answer, unless acknowledgements are as close together as that.
        let early_us =
            i64::from(self.train_gap_us / 4).min(i64::try_from(reaction.0 / 8).unwrap_or(i64::MAX)) + JITTER_US;
        while let Some(ack) = self.underway.first().copied()
            && ack.since_due_us(at, reaction) >= -early_us
        {
            self.underway.remove(0);
            self.known = Some(ack);
        }
    }

    /// Returns the bytes that are acknowledged at the tap and not yet at the sender. `delivered_bytes` counts all that was acknowledged at
    /// the tap.
    pub(super) fn unknown_bytes(&self, delivered_bytes: u64) -> u64 {
        self.known.filter(|_| !self.underway.is_empty()).map_or(0, |known| known.behind_bytes(delivered_bytes))
    }

    /// A full-sized new segment may answer the first acknowledgement of a flight.
    pub(super) fn learn_reaction(&mut self, at: Timestamp, srtt: Option<Micros>) {
        let Some(first) = std::mem::take(&mut self.first_ack).get() else { return };
        let reaction = Micros(at.since(first).0.saturating_sub(self.wait_us.into()));
        let plausible = srtt.is_some_and(|srtt| reaction.0 < srtt.0 / REACTION_PART);
        if plausible && self.reaction.get().is_none_or(|least| reaction < least) {
            self.reaction = MaybeMicros::some(reaction);
        }
    }

    /// A new segment; returns whether it was clocked.
    pub(super) fn on_sent(&mut self, at: Timestamp, full_sized: bool) -> bool {
        let clocked = self.is_answer(at, full_sized);
        if full_sized && !clocked {
            self.lead.on_sent(low_half(at.0 / 1_000));
        }
        clocked
    }

    fn is_answer(&self, at: Timestamp, full_sized: bool) -> bool {
        let Some(since_due_us) = self.known.map(|ack| ack.since_due_us(at, self.answers_after())) else {
            return false;
        };
        if !full_sized || since_due_us > ANSWER_WITHIN_US {
            return false;
        }
        // Between dense acknowledgements a paced segment is near one of them, too.
        let gap_us = self.gap.get().and_then(|gap_us| i64::try_from(gap_us).ok());
        let (early_us, within_us) = gap_us.map_or((JITTER_US, ANSWER_WITHIN_US), |gap| (gap / 10, gap / 4));
        // Beside the sender the reaction is only jitter.
        let early_us = if self.reaction() <= JITTER { JITTER_US } else { early_us };
        -early_us <= since_due_us && since_due_us <= within_us.min(ANSWER_WITHIN_US)
    }

    /// Sending resumes: no acknowledgement is on its way.
    pub(super) fn resume(&mut self) {
        self.underway.clear();
        self.known = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SRTT: Option<Micros> = Some(Micros(100_000));

    /// A tap 2 ms from a sender: an answer of two segments 4 ms after each acknowledgement, these 1.2 ms apart. `off_us`:
    /// additional delay of the n-th answer. Returns how many of the last hundred are clocked.
    fn follow(off_us: impl Fn(u64) -> u64) -> u32 {
        let mut clock = AckClock::default();
        let mut seen: Vec<(u64, bool)> = (1..=200).map(|n| (n * 1_200, true)).collect();
        seen.extend((1..=200).map(|n| (n * 1_200 + 4_000 + off_us(n), false)));
        seen.sort_unstable();
        let (mut acks, mut clocked) = (0, 0);
        for (at_us, is_ack) in seen {
            let at = Timestamp::from_micros(at_us);
            clock.arrive(at);
            if is_ack {
                acks += 1;
                clock.on_ack(at, acks * 2_000, acks == 1);
            } else {
                clock.learn_reaction(at, SRTT);
                clocked += u32::from(clock.on_sent(at, true) && at_us > 124_000);
            }
        }
        clocked
    }

    #[test]
    fn answers_are_recognised_at_a_distance() {
        let clocked = follow(|n| n % 3 * 40);
        assert!(clocked > 90, "{clocked}");
    }

    #[test]
    fn paced_segments_are_no_answers() {
        // One percent slower than the acknowledgements: their offset takes every value.
        let clocked = follow(|n| n * 12);
        assert!(clocked < 45, "{clocked}");
    }

    #[test]
    fn segments_that_steadily_precede_an_acknowledgement_were_released_by_it() {
        // Two segments pass this long before each of a hundred acknowledgements, which are 4 ms apart.
        let led = |lead_us: fn(u64) -> u64| {
            let mut clock = AckClock::default();
            let mut led = 0;
            for n in 1..=100_u64 {
                let ack_us = n * 4_000;
                for segment in 0..2 {
                    clock.on_sent(Timestamp::from_micros(ack_us - lead_us(n) + segment), true);
                }
                led += u32::from(clock.led_by(Timestamp::from_micros(ack_us)));
                clock.on_ack(Timestamp::from_micros(ack_us), n * 2_000, false);
            }
            led
        };
        let steady = led(|n| 40 + n % 2 * 20);
        assert!(steady > 120, "{steady}");
        assert_eq!(led(|n| n * 37 % 4_000), 0, "a pace of their own");
        assert_eq!(led(|_| 400), 0, "too far apart");
    }

    #[test]
    fn data_is_outstanding_until_its_acknowledgement_reaches_the_sender() {
        let mut clock = AckClock::default();
        clock.on_ack(Timestamp::from_micros(0), 1_000, true);
        clock.learn_reaction(Timestamp::from_micros(4_000), SRTT);
        clock.arrive(Timestamp::from_micros(4_000));
        clock.on_ack(Timestamp::from_micros(5_000), 3_000, false);
        clock.arrive(Timestamp::from_micros(9_000));
        assert_eq!(clock.unknown_bytes(3_000), 0);
    }

    #[test]
    fn a_dense_acknowledgement_arrives_no_sooner_than_the_shortest_reaction() {
        let mut clock = AckClock::default();
        clock.presume_reaction(Micros(8_000));
        for n in 1..=10_u64 {
            clock.on_ack(Timestamp::from_micros(n * 200), n * 1_000, false);
        }
        clock.arrive(Timestamp::from_micros(9_000));
        assert_eq!(clock.unknown_bytes(10_000), 5_000);
    }

    #[test]
    fn the_handshake_gives_a_first_idea_of_the_distance() {
        let mut clock = AckClock::default();
        assert!(!clock.is_near(SRTT), "not known");
        clock.presume_reaction(Micros(10_000));
        assert!(!clock.is_near(SRTT) && !clock.is_beside());
        clock.on_ack(Timestamp::from_micros(0), 1_000, true);
        clock.learn_reaction(Timestamp::from_micros(4_000), SRTT);
        assert!(clock.is_near(SRTT), "an answer came sooner, in less than a sixteenth of the round trip");
    }

    #[test]
    fn at_a_distance_closely_spaced_acknowledgements_are_no_evidence() {
        let distinct = |reaction_us: u64, gap_us: u64| {
            let mut clock = AckClock::default();
            clock.on_ack(Timestamp::from_micros(0), 1_000, true);
            clock.learn_reaction(Timestamp::from_micros(reaction_us), SRTT);
            for n in 1..=20 {
                let at = Timestamp::from_micros(n * gap_us);
                clock.arrive(at);
                clock.on_ack(at, (n + 1) * 1_000, false);
            }
            clock.is_distinct()
        };
        assert!(distinct(50, 120), "beside the sender");
        assert!(!distinct(2_000, 240));
        assert!(distinct(2_000, 480));
        assert!(!AckClock::default().is_distinct(), "the reaction is not known");
    }
}
