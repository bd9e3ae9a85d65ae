//! A replica of a sender's congestion window, as far as packets seen on the way tell.
//!
//! Three windows grow and back off side by side as Reno, CUBIC and BBR would ([`reno`], [`cubic`], [`bbr`] on
//! [`replica`]). What the packets show corrects them ([`evidence`]): a pipe above a window raises it, a pipe that stays
//! below it although every acknowledgement is answered at once lowers it. Each correction is a contradiction, and the
//! flavour with the fewest wins ([`flavour`]). What held the sender back in its last round trip is said beside every
//! value ([`limiter`]).
//!
//! Does not recognise losses, keep a scoreboard or measure round-trip times: its caller does and tells it
//! ([`observation`]). Where the tap stands a way off the
//! sender, it learns how far ([`evidence`]).

mod aggregation;
mod bbr;
mod cubic;
mod cwnd;
mod evidence;
pub mod flavour;
mod hystart;
mod limiter;
mod max_filter;
pub mod observation;
mod reno;
mod replica;
mod rto;
mod sampling;
mod small;
#[cfg(test)]
mod tests;
mod transfer;
mod usage;

use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use self::bbr::{Bbr, Delivery, Departure};
use self::cubic::Cubic;
use self::cwnd::INITIAL;
use self::evidence::{AckClock, Steady};
use self::flavour::{Contradictions, Flavour};
use self::limiter::{Rounds, Signs};
use self::observation::{Acked, Sent};
use self::reno::Reno;
use self::replica::{Law, Progress, Replica};
use self::rto::Rto;
use self::small::SmallSegments;
use self::transfer::Transfer;
use crate::flow::sample::{Limiter, Phase};

/// With less room than this in the peer's window, in segments, a sender waits: it sends bursts of two at least.
const RECEIVER_ROOM: u64 = 2;
/// Full-sized segments in a round trip from which on its clocking says something.
const CLOCKING_LEAST: u16 = 8;
/// Contradiction of a round trip clocked, or not clocked, by acknowledgements.
const CLOCKING_WEIGHT: f64 = 0.25;
/// Lead at which BBR is given up until its rivals are contradicted again.
const BBR_GIVEN_UP: f64 = 2.0;

/// What the sender is doing about congestion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Open,
    /// Until the stream is acknowledged up to this position.
    Recovery(u64),
    /// After a timeout, until the same.
    Loss(u64),
}

/// The replica of one sender's window.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// Effective segment size in bytes; 0 while not known.
    mss: u32,
    /// Some evidence stands behind the window: always, but for a sender met in mid-stream.
    known: bool,
    state: State,
    /// Position in the stream of new bytes: all that were sent.
    nxt: u64,
    delivered_bytes: u64,
    small: SmallSegments,
    last_sent: Option<Timestamp>,
    /// Since sending resumed, nothing was acknowledged: there is no clock yet.
    first_flight: bool,
    rto: Rto,
    /// Smallest round-trip time, and since when it is that.
    min_rtt: Option<(Micros, Timestamp)>,
    reno: Replica<Reno>,
    cubic: Replica<Cubic>,
    bbr: Option<Box<Bbr>>,
    contradictions: Contradictions,
    clock: AckClock,
    rounds: Rounds,
    transfer: Transfer,
    /// Windows in segments just after and just before the last reduction.
    tooth: Option<(f64, f64)>,
}

impl Shadow {
    /// A sender first seen at `at`; `midstream` where its start was not.
    pub fn new(_at: Timestamp, midstream: bool) -> Self {
        let initial = if midstream { 1 } else { INITIAL };
        Self {
            mss: 0,
            known: !midstream,
            state: State::Open,
            nxt: 1 << 32,
            delivered_bytes: 0,
            small: SmallSegments::default(),
            last_sent: None,
            first_flight: true,
            rto: Rto::default(),
            min_rtt: None,
            reno: Replica::new(initial, Reno),
            cubic: Replica::new(initial, Cubic::default()),
            bbr: None,
            contradictions: Contradictions::default(),
            clock: AckClock::default(),
            rounds: Rounds::default(),
            transfer: Transfer::default(),
            tooth: None,
        }
    }

    /// The handshake is done, or the segment size is known better: `mss` is the payload of a full-sized segment.
    pub fn on_open(&mut self, at: Timestamp, mss: Bytes, handshake_rtt: Option<Micros>) {
        self.mss = u32::try_from(mss.0).unwrap_or(u32::MAX);
        if let Some(rtt) = handshake_rtt
            && self.rto.srtt().is_none()
        {
            self.rto.add(rtt, self.nxt, self.nxt);
        }
        self.min_rtt = self.min_rtt.or(handshake_rtt.map(|rtt| (rtt, at)));
    }

    /// A packet with payload went out.
    pub fn on_sent(&mut self, at: Timestamp, sent: &Sent) {
        if self.mss == 0 {
            return;
        }
        let idle = sent.retransmitted_bytes == 0 && sent.flight <= u64::from(sent.new_bytes);
        if idle && let Some(last) = self.last_sent {
            self.resume(at, at.since(last));
        }
        self.last_sent = Some(at);
        self.nxt = self.nxt.saturating_add(u64::from(sent.new_bytes));
        let una = self.nxt.saturating_sub(sent.flight);
        if sent.new_bytes > 0 && !sent.full_sized {
            self.small.sent(self.nxt, (self.mss - sent.new_bytes % self.mss) % self.mss);
        }
        self.arrive(at);
        // What the sender has not heard of yet is still outstanding to it.
        let unknown = self.clock.unknown_bytes(self.delivered_bytes);
        let pipe = self.packets(sent.pipe.saturating_add(unknown));
        if sent.new_bytes > 0 {
            self.note_signs(at, sent, pipe, idle);
        }
        // A first flight above the window it should have had: how large that really was is not known, and so neither
        // whether the sender filled it. A start on our advice that carries a whole transfer looks like this.
        let window_unknown = self.first_flight && f64::from(pipe) > self.best_segments().floor();
        match self.state {
            State::Open if sent.new_bytes > 0 => self.weigh_pipe(sent, pipe),
            State::Recovery(_) => {
                self.reno.follow_pipe(pipe);
                self.cubic.follow_pipe(pipe);
            }
            State::Open | State::Loss(_) => {}
        }
        let outstanding = self.packets(sent.flight.saturating_add(unknown));
        self.reno.usage.record(&self.reno.cwnd, outstanding, pipe, una, self.nxt);
        self.cubic.usage.record(&self.cubic.cwnd, outstanding, pipe, una, self.nxt);
        if let Some(bbr) = &mut self.bbr
            && sent.new_bytes > 0
        {
            bbr.on_sent(
                at,
                &Departure {
                    nxt: self.nxt,
                    flight_bytes: sent.flight.saturating_add(unknown),
                    pipe_segments: pipe,
                    idle,
                    dry: !sent.full_sized,
                },
            );
        }
        if sent.new_bytes > 0 {
            let ahead = if self.phase() == Phase::SlowStart { self.packets(unknown) } else { 0 };
            let filled = self.known && f64::from(pipe + ahead) >= self.best_segments().floor();
            self.rounds.current.filled = (self.rounds.current.filled || filled) && !window_unknown;
            let (window, limiter, phase) = (self.best_segments(), self.limiter(), self.phase());
            self.transfer.on_sent(window, limiter, phase, sent.pipe.saturating_add(unknown));
        }
    }

    /// An acknowledgement came for the sender.
    pub fn on_ack(&mut self, at: Timestamp, acked: &Acked) {
        if self.mss == 0 {
            return;
        }
        let una = self.nxt.saturating_sub(acked.flight);
        if let Some(rtt) = acked.rtt {
            self.take_rtt(at, rtt, una);
        }
        let small_bytes = self.small.acked(una);
        let newly_bytes = acked.delivered_bytes.saturating_sub(self.delivered_bytes);
        self.delivered_bytes = self.delivered_bytes.max(acked.delivered_bytes);
        if let State::Recovery(point) | State::Loss(point) = self.state
            && una >= point
        {
            self.leave_recovery();
        }
        if newly_bytes > 0 {
            self.clock_ack(at);
        }
        if let State::Recovery(_) = self.state {
            let pipe = self.packets(acked.pipe);
            self.reno.follow_pipe(pipe);
            self.cubic.follow_pipe(pipe);
        } else if acked.acked_bytes > 0 {
            self.grow(at, acked, newly_bytes.saturating_add(u64::from(small_bytes)), una);
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.on_ack(&Delivery {
                at,
                edge: una.max(self.nxt.saturating_sub(acked.pipe)),
                delivered_bytes: self.delivered_bytes,
                newly_bytes,
                pipe_bytes: acked.pipe,
                rtt: acked.rtt.map(|rtt| Micros(rtt.0.saturating_add(self.clock.reaction().0))),
                mss: self.mss,
                recovering: self.state != State::Open,
            });
        }
        if let Some(ended) = self.rounds.on_ack(una, self.nxt) {
            self.weigh_clocking(at, ended);
        }
    }

    /// Everything outstanding at the loss is acknowledged.
    pub fn on_recovery_end(&mut self, _at: Timestamp, _pipe: u64) {
        if self.state != State::Open {
            self.leave_recovery();
        }
    }

    /// The last reduction proved wrong (DSACK, timestamps): the sender takes it back.
    pub fn on_undo(&mut self, _at: Timestamp) {
        self.reno.cwnd.undo();
        self.cubic.cwnd.undo();
        if let Some(bbr) = &mut self.bbr {
            bbr.leave_recovery();
        }
        self.state = State::Open;
        self.rounds.forget(self.nxt);
        self.clock.break_run();
    }

    /// The window, in bytes with fraction; `None` while nothing is known of it.
    pub fn window(&self) -> Option<Window> {
        (self.known && self.mss > 0).then(|| self.bytes(self.best_segments())).flatten()
    }

    /// The phase of the flavour that fits best.
    pub fn phase(&self) -> Phase {
        if let State::Recovery(_) = self.state {
            return Phase::Recovery;
        }
        let slow_start = match (self.contradictions.best(), &self.bbr) {
            (Flavour::Bbr, Some(bbr)) => bbr.starting(),
            (Flavour::Reno, _) => self.reno.in_slow_start(),
            _ => self.cubic.in_slow_start(),
        };
        if slow_start { Phase::SlowStart } else { Phase::CongestionAvoidance }
    }

    /// What held the sender back in the last full round trip and the current one.
    pub fn limiter(&self) -> Limiter {
        self.rounds.limiter(self.contradictions.best() == Flavour::Bbr)
    }

    /// Where in the sawtooth the window is; see [`crate::flow::sample::WindowSample::sawtooth`].
    pub fn sawtooth(&self) -> Option<f64> {
        let (low, high) = self.tooth?;
        (high > low).then(|| ((self.best_segments() - low) / (high - low)).max(0.0))
    }

    /// The congestion control that the packets speak for.
    pub fn flavour(&self) -> Flavour {
        self.contradictions.verdict()
    }

    /// How badly each flavour fits.
    pub fn contradictions(&self) -> Contradictions {
        self.contradictions
    }

    /// Packets that `bytes` of what is outstanding make.
    fn packets(&self, bytes: u64) -> u32 {
        let lacks = if bytes > 0 { self.small.lacks_bytes() } else { 0 };
        Bytes(bytes.saturating_add(lacks)).segments_ceil(Bytes(u64::from(self.mss))).0
    }

    fn bytes(&self, segments: f64) -> Option<Window> {
        Window::from_bytes(segments * f64::from(self.mss))
    }

    fn best_segments(&self) -> f64 {
        match (self.contradictions.best(), &self.bbr) {
            (Flavour::Bbr, Some(bbr)) => bbr.segments(),
            (Flavour::Reno, _) => self.reno.cwnd.segments(),
            _ => self.cubic.cwnd.segments(),
        }
    }

    fn take_rtt(&mut self, at: Timestamp, rtt: Micros, una: u64) {
        self.rto.add(rtt, una, self.nxt);
        if self.min_rtt.is_none_or(|(least, _)| rtt < least) {
            self.min_rtt = Some((rtt, at));
        }
    }

    /// New data with nothing outstanding.
    fn resume(&mut self, at: Timestamp, idle: Micros) {
        let rto = self.rto.get();
        self.reno.resume(at, idle, rto);
        self.cubic.resume(at, idle, rto);
        if idle > rto {
            self.rounds.forget(self.nxt);
            self.clock.resume();
        }
    }

    fn clock_ack(&mut self, at: Timestamp) {
        self.arrive(at);
        let filled = f64::from(self.rounds.current.pipe_max_segments) >= self.best_segments().floor();
        let ends_flight = std::mem::take(&mut self.first_flight) && filled;
        self.clock.on_ack(at, self.delivered_bytes, ends_flight);
        self.arrive(at);
    }

    fn arrive(&mut self, at: Timestamp) {
        let steady = self.clock.arrive(at, self.delivered_bytes);
        if let Some(steady) = steady.filter(|_| self.state == State::Open) {
            self.weigh_steady_pipe(&steady);
        }
    }

    fn note_signs(&mut self, at: Timestamp, sent: &Sent, pipe: u32, idle: bool) {
        let receiver_full =
            sent.peer_window.is_some_and(|window| window < sent.flight + RECEIVER_ROOM * u64::from(self.mss));
        let open = self.state == State::Open;
        if idle {
            self.first_flight = true;
        }
        if sent.full_sized && !self.first_flight {
            self.clock.learn_reaction(at, self.rto.srtt());
        }
        let clocked = open && self.clock.on_sent(at, sent.full_sized, pipe);
        let judged = open && sent.full_sized && !self.first_flight;
        if receiver_full || !open {
            self.clock.break_run();
        }
        let signs = &mut self.rounds.current;
        signs.receiver_full |= receiver_full;
        signs.ran_dry |= !sent.full_sized || (idle && !clocked && self.last_sent.is_none());
        signs.full_sized = signs.full_sized.saturating_add(u16::from(judged));
        signs.clocked = signs.clocked.saturating_add(u16::from(judged && clocked));
        signs.pipe_max_segments = signs.pipe_max_segments.max(pipe);
    }

    /// Rule 1: a pipe above a window raises it.
    fn weigh_pipe(&mut self, sent: &Sent, pipe: u32) {
        // A tail loss probe may carry one new segment beyond the window (RFC 8985 section 7.3).
        let late = match (sent.since_ack, self.rto.srtt()) {
            (Some(since), Some(srtt)) => since.0 > srtt.0.saturating_mul(2),
            _ => false,
        };
        let probe = late && f64::from(pipe) < self.best_segments() + 2.0;
        if !probe {
            let (reno, cubic) = (self.reno.raise(pipe), self.cubic.raise(pipe));
            let bbr = self.bbr.as_mut().map_or(reno.min(cubic), |bbr| bbr.raise(pipe));
            self.contradict(reno, cubic, bbr);
        }
    }

    /// Rule 2: a pipe that stays below a window although every acknowledgement is answered at once lowers it.
    fn weigh_steady_pipe(&mut self, steady: &Steady) {
        let srtt = self.rto.srtt();
        let (pipe, ahead) = (steady.pipe_segments, self.packets(steady.behind_bytes));
        let (reno, cubic) = (self.reno.lower(pipe, ahead, srtt), self.cubic.lower(pipe, ahead, srtt));
        self.cubic.law.stayed_within();
        self.known = true;
        self.contradict(reno, cubic, reno.min(cubic));
    }

    /// Rule 3: Reno and CUBIC send on acknowledgements, BBR on its own pace. An application that writes at a steady rate
    /// does neither.
    fn weigh_clocking(&mut self, at: Timestamp, ended: Signs) {
        let judged = ended.full_sized >= CLOCKING_LEAST && !ended.ran_dry && !ended.receiver_full;
        if self.state != State::Open || !judged || self.bbr.as_ref().is_some_and(|bbr| bbr.probing()) {
            return;
        }
        let share = f64::from(ended.clocked) / f64::from(ended.full_sized);
        if share > 0.7 {
            self.contradict(0.0, 0.0, CLOCKING_WEIGHT);
            if self.contradictions.bbr >= BBR_GIVEN_UP {
                self.bbr = None;
            }
        } else if share < 0.4 && self.rounds.still() {
            self.contradict(0.0, 0.0, CLOCKING_WEIGHT);
        } else if share < 0.4 && self.rounds.searching() {
            self.contradict(CLOCKING_WEIGHT, CLOCKING_WEIGHT, 0.0);
            if self.bbr.is_none() {
                let window = self.best_segments();
                let reaction = self.clock.reaction().0;
                let min_rtt = self.min_rtt.map(|(rtt, since)| (Micros(rtt.0.saturating_add(reaction)), since));
                self.bbr = Some(Box::new(Bbr::new(at, self.delivered_bytes, window, min_rtt)));
            }
        }
    }

    fn contradict(&mut self, reno: f64, cubic: f64, bbr: f64) {
        if self.known {
            self.contradictions.add(reno, cubic, bbr);
        }
    }

    fn grow(&mut self, at: Timestamp, acked: &Acked, newly_bytes: u64, una: u64) {
        let progress = Progress {
            at,
            delivered_segments: newly_bytes as f32 / self.mss as f32,
            una,
            nxt: self.nxt,
            rtt: acked.rtt,
        };
        let reno = self.reno.grow(&progress);
        let cubic = self.cubic.grow(&progress);
        let earned = match self.contradictions.best() {
            Flavour::Reno => reno,
            Flavour::Cubic => cubic,
            Flavour::Bbr | Flavour::Unknown => 0.0,
        };
        self.transfer.on_growth(earned);
    }

    fn leave_recovery(&mut self) {
        if let State::Recovery(_) = self.state {
            self.reno.leave_recovery();
            self.cubic.leave_recovery();
        }
        if let Some(bbr) = &mut self.bbr {
            bbr.leave_recovery();
        }
        self.state = State::Open;
        self.rounds.forget(self.nxt);
        self.clock.break_run();
    }

    /// The largest pipe of the last two round trips, `pipe_before` included, in segments.
    fn recent_pipe(&self, pipe_before: u64) -> u32 {
        self.rounds.recent().pipe_max_segments.max(self.packets(pipe_before))
    }

    fn share_segments(&self) -> f64 {
        let share = self.bbr.as_ref().and_then(|bbr| bbr.share_bytes());
        share.map_or_else(|| self.best_segments(), |bytes| bytes / f64::from(self.mss))
    }
}
