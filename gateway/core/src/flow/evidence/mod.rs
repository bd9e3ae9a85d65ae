//! What the packets of one sender show of its window: how much it has in the network, whether that still doubles, what limits it,
//! and whether it runs BBR.
//!
//! A sender's share is what it had in flight when the path lost something, whatever its congestion control is; that of BBR, which
//! paces, is its delivery rate times the smallest round trip ([`bbr`]). So no window is computed. Whether acknowledgements clock the
//! sender is in [`ack_clock`], the growth of its pipe in [`growth`], what limited it in [`held`], events per round trip in [`rounds`].
//! [`packets`] takes the packets. [`rules`] and [`clocking`] weigh them, and [`sampling`] gives samples at losses and ends.
//!
//! Loss detection, scoreboard and round-trip times are its caller's, who passes them in ([`crate::flow::observation`]). The distance of the
//! tap from the sender is measured ([`ack_clock`]).

mod ack_clock;
mod bbr;
mod clocking;
pub mod control;
mod growth;
mod held;
mod pacing;
mod packets;
mod rounds;
mod rules;
mod sampling;
mod waits;

use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use self::ack_clock::AckClock;
use self::bbr::Bbr;
use self::control::{CongestionControl, Leaning, Prior};
use self::growth::Growth;
use self::held::Held;
use self::pacing::Pacing;
use self::packets::SmallSegments;
use self::rounds::Rounds;
use self::sampling::{AfterLoss, Transfer};
use self::waits::Waits;
use crate::flow::maybe::MaybeTime;
use crate::flow::observation::CaState;
use crate::flow::rtt::{INITIAL_RTO, RttEstimator};
use crate::flow::sequence::low_half;
use crate::types::{Limiter, Phase};

/// The evidence of one sender.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Effective segment size in bytes; 0 while not known.
    mss: u32,
    /// The start of the sender was seen, or it was seen to fill its window.
    known: bool,
    /// Its state after the packet or acknowledgement before.
    ca: CaState,
    /// Position in the stream of new bytes sent.
    nxt: u64,
    delivered_bytes: u64,
    small: SmallSegments,
    last_sent: MaybeTime,
    /// Nothing was acknowledged since sending resumed: there is no ACK clock yet.
    first_flight: bool,
    /// Its round trips at the tap.
    rtt: RttEstimator,
    growth: Growth,
    bbr: Option<Box<Bbr>>,
    leaning: Leaning,
    clock: AckClock,
    waits: Waits,
    pacing: Pacing,
    /// Evidence for BBR that waits until the path is full ([`Self::lean_by_pace`]), and what of it counted.
    pace_waits: f32,
    pace_counted: f32,
    rounds: Rounds,
    held: Held,
    transfer: Transfer,
    /// State after losses of the transfer under way; `None` without losses.
    after_loss: Option<Box<AfterLoss>>,
    /// Largest pipe in segments before a loss, until a round trip after it has shown the reduction; else 0.
    pipe_at_loss: u16,
    /// Round trips since that loss was repaired.
    rounds_since_loss: u8,
    /// Something was lost, or marked.
    reduced: bool,
    /// Segments that passed the tap after one sent behind them.
    late: u8,
    /// Largest pipe in segments of the first round trip after the last repair; 0 before one.
    pipe_after_loss: u32,
}

impl Evidence {
    /// A sender with `delivered_bytes` acknowledged before its first data: the SYN; `midstream` if its start was not seen.
    pub fn new(delivered_bytes: u64, midstream: bool) -> Self {
        Self {
            mss: 0,
            known: !midstream,
            ca: CaState::Open,
            nxt: 1 << 32,
            delivered_bytes,
            small: SmallSegments::default(),
            last_sent: MaybeTime::NONE,
            first_flight: true,
            rtt: RttEstimator::default(),
            growth: Growth::default(),
            bbr: None,
            leaning: Leaning::default(),
            clock: AckClock::default(),
            waits: Waits::default(),
            pacing: Pacing::default(),
            pace_waits: 0.0,
            pace_counted: 0.0,
            rounds: Rounds::default(),
            held: Held::default(),
            transfer: Transfer::default(),
            after_loss: None,
            pipe_at_loss: 0,
            rounds_since_loss: 0,
            reduced: false,
            late: 0,
            pipe_after_loss: 0,
        }
    }

    /// The handshake is complete, or the segment size changed: `mss` is the payload of a full-sized segment.
    pub fn on_open(&mut self, at: Timestamp, mss: Bytes, handshake_rtt: Option<Micros>) {
        let before = std::mem::replace(&mut self.mss, u32::try_from(mss.0).unwrap_or(u32::MAX));
        if before > 0 && before != self.mss {
            self.transfer.resize(before, self.mss);
        }
        let Some(rtt) = handshake_rtt.filter(|_| self.rtt.smoothed().is_none()) else { return };
        self.rtt.add(rtt);
        if let Some(bbr) = &mut self.bbr {
            bbr.open(at, Some(rtt));
        }
    }

    /// Takes the round trips measured so far.
    pub(crate) fn note_rtt(&mut self, rtt: RttEstimator) {
        self.rtt = rtt;
    }

    /// The reaction, measured in the handshake.
    pub fn on_reaction(&mut self, reaction: Micros) {
        self.clock.presume_reaction(reaction);
    }

    /// A segment passed the tap after one sent behind it.
    pub(crate) fn note_late(&mut self) {
        self.late = self.late.saturating_add(1);
    }

    /// Bytes that it allocates beside it, or may.
    #[inline]
    pub(crate) fn beside_bytes(&self) -> usize {
        let bbr = if self.bbr.is_some() { Bbr::BYTES } else { 0 };
        size_of::<AfterLoss>() + SmallSegments::BESIDE_BYTES + AckClock::BESIDE_BYTES + bbr
    }

    /// Time from an acknowledgement at the tap to its answer there; zero if the tap is beside the sender.
    pub fn reaction(&self) -> Micros {
        if self.clock.is_beside() { Micros(0) } else { self.clock.reaction() }
    }

    /// The window as its packets show it, in bytes: the largest pipe of the last two round trips; `None` if unknown.
    pub fn window(&self) -> Option<Window> {
        (self.known && self.mss > 0).then(|| self.bytes(self.recent_segments())).flatten()
    }

    /// The most in flight in the first round trip after its last loss; `None` if unknown, for BBR, and before the first loss.
    pub fn ssthresh(&self) -> Option<Window> {
        let known = self.known && self.mss > 0 && self.pipe_after_loss > 0 && !self.leaning.is_bbr();
        known.then(|| self.bytes(f64::from(self.pipe_after_loss))).flatten()
    }

    /// Its phase.
    pub fn phase(&self) -> Phase {
        if self.ca.is_reducing() {
            return Phase::Recovery;
        }
        let slow_start = match &self.bbr {
            Some(bbr) if self.leaning.is_bbr() => bbr.starting(),
            _ => self.growth.is_slow_start(),
        };
        if slow_start { Phase::SlowStart } else { Phase::CongestionAvoidance }
    }

    /// What limited the sender in the round trip before `now`.
    pub fn limiter(&self, now: Timestamp) -> Limiter {
        match self.last_sent.get() {
            Some(last) if self.leaning.is_bbr() => {
                let ran_dry = self.rounds.recent().ran_dry || self.rounds.dry;
                let repairs = self.ca.is_loss();
                self.held.limiter_of_paced(now, self.round(), now.since(last), [ran_dry, repairs])
            }
            _ => self.held.limiter(now, self.round()),
        }
    }

    /// A round trip, or a default before the first.
    fn round(&self) -> Micros {
        self.srtt().unwrap_or(INITIAL_RTO)
    }

    /// The sender's smoothed round trip: including the way between tap and sender, if known.
    pub fn srtt(&self) -> Option<Micros> {
        self.rtt.smoothed().map(|srtt| Micros(srtt.0.saturating_add(self.clock.reaction().0)))
    }

    /// The congestion control by the evidence.
    pub fn congestion_control(&self) -> CongestionControl {
        self.leaning.verdict()
    }

    /// Sets the verdict on the host, which applies while this flow's own packets are not clear.
    pub fn presume(&mut self, at: Timestamp, prior: Prior) {
        self.settle_end();
        self.leaning.presume(prior);
        if self.leaning.is_bbr() {
            self.follow_as_bbr(at);
        }
    }

    /// The evidence of its packets.
    pub fn leaning(&self) -> Leaning {
        self.leaning
    }

    fn packets(&self, bytes: u64) -> u32 {
        let lacks = if bytes > 0 { self.small.lacks_bytes() } else { 0 };
        Bytes(bytes.saturating_add(lacks)).segments_ceil(Bytes(u64::from(self.mss))).0
    }

    fn bytes(&self, segments: f64) -> Option<Window> {
        Window::from_bytes(segments * f64::from(self.mss))
    }

    /// The largest pipe of the last two round trips in segments.
    fn recent_segments(&self) -> f64 {
        f64::from(self.rounds.recent().pipe_max_segments.max(1))
    }

    /// Segments delivered so far.
    fn delivered_segments(&self) -> u32 {
        low_half(self.delivered_bytes / u64::from(self.mss.max(1)))
    }

    /// The largest pipe of the last two round trips, `pipe_before` included, in segments.
    fn recent_pipe(&self, pipe_before: u64) -> u32 {
        self.rounds.recent().pipe_max_segments.max(self.packets(pipe_before))
    }

    /// BBR's share: delivery rate times smallest round-trip time.
    fn share_segments(&self) -> f64 {
        let share = self.bbr.as_ref().and_then(|bbr| bbr.share(self.clock.reaction()));
        share.unwrap_or_else(|| self.recent_segments())
    }
}
