//! A replica of a sender's congestion window, as far as packets at the tap show it.
//!
//! Two windows grow and back off side by side as Reno and CUBIC would ([`Reno`], [`cubic`] on [`replica`]), beside the rate of BBR ([`bbr`]). The
//! packets correct them ([`evidence`]): a pipe above a window raises it, a pipe that stays below it although every acknowledgement is
//! answered at once lowers it. Which of them needs fewer corrections, and whether the sender paces and reduces, identifies its congestion
//! control ([`flavour`]). Every value comes with what limited the sender in its last round trip ([`held`]; events per round trip are in
//! [`rounds`]). Packets come in by [`packets`], the rules of evidence are in [`rules`], samples at losses and ends in [`sampling`].
//!
//! Loss detection, scoreboard and round-trip times are its caller's, who passes them in ([`observation`]). The distance of the
//! tap from the sender is measured ([`evidence`]).

mod bbr;
mod clocking;
mod cubic;
mod cwnd;
mod evidence;
pub mod flavour;
mod held;
mod hystart;
pub mod observation;
mod pacing;
mod packets;
mod replica;
mod rounds;
mod rules;
mod sampling;
mod waits;

use spand_proto::units::{Bytes, Micros, Timestamp, Window};

use self::bbr::Bbr;
use self::cubic::Cubic;
use self::cwnd::{INITIAL, Reduction};
use self::evidence::AckClock;
use self::flavour::{Flavour, Leaning, Prior};
use self::held::Held;
use self::pacing::Pacing;
use self::packets::SmallSegments;
use self::replica::{Reno, Replica};
use self::rounds::Rounds;
use self::sampling::{AfterLoss, Transfer};
use self::waits::Waits;
use crate::flow::maybe::{MaybeMicros, MaybeTime};
use crate::flow::rtt::{INITIAL_RTO, LinuxRto};
use crate::mem::boxed;
use crate::types::{Limiter, Phase};

/// The sender's reaction to congestion.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Open,
    /// Until this position in the stream is acknowledged.
    Recovery(u64),
    /// After a timeout, until the same.
    Loss {
        until: u64,
        /// Something was acknowledged since.
        advanced: bool,
    },
}

/// The replica of one sender's window.
#[derive(Clone, Debug)]
pub struct Shadow {
    /// Effective segment size in bytes; 0 while not known.
    mss: u32,
    /// What was sent up to this position had another size, as long as some of it is outstanding; 0 without a change.
    resized_at: u64,
    mss_before: u32,
    /// The window is based on evidence: always, except for a sender met in mid-stream.
    known: bool,
    state: State,
    /// An ECN echo began the reduction under way: BBR does not react to it.
    by_ecn: bool,
    /// Of the recovery under way.
    reduction: Reduction,
    /// Position in the stream of new bytes sent.
    nxt: u64,
    /// Highest acknowledgement there.
    una: u64,
    delivered_bytes: u64,
    small: SmallSegments,
    last_sent: MaybeTime,
    /// Nothing was acknowledged since sending resumed: there is no ACK clock yet.
    first_flight: bool,
    /// Window in segments after the restart that followed an idle time longer than the RTO (RFC 2861); 0 without one.
    restarted: u8,
    /// Idle times over which it kept its window (`tcp_slow_start_after_idle` = 0).
    kept_window: u8,
    rto: LinuxRto,
    /// Smallest round-trip time, and since when.
    min_rtt: MaybeMicros,
    min_rtt_at: Timestamp,
    reno: Replica<Reno>,
    cubic: Replica<Cubic>,
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
    /// The pipe that it filled since the last acknowledgement in recovery, within both windows; 0 if it sent nothing.
    reached: u16,
    /// Round trips since that loss was repaired.
    rounds_since_loss: u8,
    /// Windows in segments just after and just before the last reduction.
    tooth: Option<(f32, f32)>,
}

impl Shadow {
    /// A sender with `delivered_bytes` acknowledged before its first data: the SYN; `midstream` if its start was not seen.
    pub fn new(delivered_bytes: u64, midstream: bool) -> Self {
        let initial = if midstream { 1 } else { INITIAL };
        Self {
            mss: 0,
            resized_at: 0,
            mss_before: 0,
            known: !midstream,
            state: State::Open,
            by_ecn: false,
            reduction: Reduction::default(),
            nxt: 1 << 32,
            una: 1 << 32,
            delivered_bytes,
            small: SmallSegments::default(),
            last_sent: MaybeTime::NONE,
            first_flight: true,
            restarted: 0,
            kept_window: 0,
            rto: LinuxRto::default(),
            min_rtt: MaybeMicros::NONE,
            min_rtt_at: Timestamp(0),
            reno: Replica::new(initial, Reno),
            cubic: Replica::new(initial, Cubic::default()),
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
            reached: 0,
            rounds_since_loss: 0,
            tooth: None,
        }
    }

    /// The handshake is complete, or the segment size changed: `mss` is the payload of a full-sized segment.
    pub fn on_open(&mut self, at: Timestamp, mss: Bytes, handshake_rtt: Option<Micros>) {
        let before = std::mem::replace(&mut self.mss, u32::try_from(mss.0).unwrap_or(u32::MAX));
        if before > 0 && before != self.mss {
            (self.resized_at, self.mss_before) = (self.nxt, before);
            self.transfer.resize(before, self.mss);
        }
        if let Some(rtt) = handshake_rtt
            && self.rto.srtt().is_none()
        {
            self.rto.add(rtt, self.nxt, self.nxt);
            self.pacing.on_handshake(rtt);
        }
        if let Some(rtt) = handshake_rtt.filter(|_| self.min_rtt.is_none()) {
            (self.min_rtt, self.min_rtt_at) = (MaybeMicros::some(rtt), at);
        }
        let min_rtt = self.least_rtt();
        if let Some(bbr) = &mut self.bbr {
            bbr.open(min_rtt);
        }
    }

    /// The reaction, measured in the handshake.
    pub fn on_reaction(&mut self, reaction: Micros) {
        self.clock.presume_reaction(reaction);
    }

    /// Memory allocated beside it.
    pub(crate) fn held_bytes(&self) -> usize {
        let bbr = self.bbr.as_ref().map_or(0, |bbr| bbr.held_bytes());
        let after_loss = self.after_loss.as_ref().map_or(0, |_| boxed::<AfterLoss>());
        bbr + after_loss + self.cubic.law.held_bytes() + self.small.held_bytes() + self.clock.held_bytes()
    }

    /// Whether there was evidence for BBR, which paces.
    pub fn may_pace(&self) -> bool {
        self.bbr.is_some()
    }

    /// Time from an acknowledgement at the tap to its answer there; zero if the tap is beside the sender.
    pub fn reaction(&self) -> Micros {
        if self.clock.is_beside() { Micros(0) } else { self.clock.reaction() }
    }

    /// The SYN was retransmitted: the initial window is one segment.
    pub fn on_lost_handshake(&mut self) {
        self.reno.cwnd.set(1);
        self.cubic.cwnd.set(1);
    }

    /// The window, in bytes with fraction; `None` if unknown.
    pub fn window(&self) -> Option<Window> {
        (self.known && self.mss > 0).then(|| self.bytes(self.best_segments())).flatten()
    }

    /// `ssthresh`; `None` if unknown, for BBR, and before the first reduction.
    pub fn ssthresh(&self) -> Option<Window> {
        let cwnd = match self.leaning.best() {
            Flavour::Bbr => return None,
            Flavour::Reno => &self.reno.cwnd,
            _ => &self.cubic.cwnd,
        };
        let known = self.known && self.mss > 0 && cwnd.has_threshold();
        known.then(|| self.bytes(f64::from(cwnd.threshold()))).flatten()
    }

    /// The phase of the best flavour.
    pub fn phase(&self) -> Phase {
        if let State::Recovery(_) = self.state {
            return Phase::Recovery;
        }
        let slow_start = match (self.leaning.best(), &self.bbr) {
            (Flavour::Bbr, Some(bbr)) => bbr.starting(),
            (Flavour::Reno, _) => self.reno.in_slow_start(),
            // CUBIC leaves slow start by HyStart; another sender may not, so its exit needs confirmation.
            _ if self.flavour() == Flavour::Cubic => self.cubic.cwnd.in_slow_start(),
            _ => self.cubic.in_slow_start(),
        };
        if slow_start { Phase::SlowStart } else { Phase::CongestionAvoidance }
    }

    /// What limited the sender in the round trip before `now`.
    pub fn limiter(&self, now: Timestamp) -> Limiter {
        match self.last_sent.get() {
            Some(last) if self.leaning.best() == Flavour::Bbr => {
                let ran_dry = self.rounds.recent().ran_dry || self.rounds.dry;
                let repairs = matches!(self.state, State::Loss { .. });
                self.held.limiter_of_paced(now, self.round(), now.since(last), [ran_dry, repairs])
            }
            _ => self.held.limiter(now, self.round()),
        }
    }

    /// A round trip, or a default before the first.
    fn round(&self) -> Micros {
        self.srtt().unwrap_or(INITIAL_RTO)
    }

    /// The smallest round trip, and since when.
    fn least_rtt(&self) -> Option<(Micros, Timestamp)> {
        self.min_rtt.get().map(|rtt| (rtt, self.min_rtt_at))
    }

    /// The sender's smoothed round trip: including the way between tap and sender, if known.
    pub fn srtt(&self) -> Option<Micros> {
        self.rto.srtt().map(|srtt| Micros(srtt.0.saturating_add(self.clock.reaction().0)))
    }

    /// Where in the sawtooth the window is; see [`crate::types::WindowSample::sawtooth`].
    pub fn sawtooth(&self) -> Option<f64> {
        let (low, high) = self.tooth.map(|(low, high)| (f64::from(low), f64::from(high)))?;
        (high > low).then(|| ((self.best_segments() - low) / (high - low)).max(0.0))
    }

    /// The congestion control by the evidence.
    pub fn flavour(&self) -> Flavour {
        self.leaning.verdict()
    }

    /// Sets the verdict on the host, which applies while this flow's own packets are not clear.
    pub fn presume(&mut self, at: Timestamp, prior: Prior) {
        self.settle_end();
        self.leaning.presume(prior);
        if self.leaning.best() == Flavour::Bbr {
            self.follow_as_bbr(at);
        }
    }

    /// The evidence of its packets.
    pub fn leaning(&self) -> Leaning {
        self.leaning
    }

    fn packets(&self, bytes: u64) -> u32 {
        let lacks = if bytes > 0 { self.small.lacks_bytes() } else { 0 };
        let of_before = bytes.min(self.resized_at.saturating_sub(self.una));
        let of_size = |bytes: u64, mss: u32| Bytes(bytes).segments_ceil(Bytes(u64::from(mss))).0;
        let now = of_size((bytes - of_before).saturating_add(lacks), self.mss);
        if of_before > 0 { of_size(of_before, self.mss_before).saturating_add(now) } else { now }
    }

    fn bytes(&self, segments: f64) -> Option<Window> {
        Window::from_bytes(segments * f64::from(self.mss))
    }

    /// Returns the segments that a window-limited sender has in the network. Its window limits BBR only while it repairs losses.
    fn best_whole(&self) -> f64 {
        match self.leaning.best() {
            Flavour::Bbr if self.state != State::Open => 1.0,
            Flavour::Bbr => f64::INFINITY,
            Flavour::Reno => f64::from(self.reno.cwnd.whole()),
            _ => f64::from(self.cubic.cwnd.whole()),
        }
    }

    /// Returns the window of Reno or CUBIC. BBR does not fill its window: for it, this is the largest pipe of the last two round trips.
    fn best_segments(&self) -> f64 {
        match self.leaning.best() {
            Flavour::Bbr => f64::from(self.rounds.recent().pipe_max_segments.max(1)),
            Flavour::Reno => self.reno.cwnd.segments(),
            _ => self.cubic.cwnd.segments(),
        }
    }

    /// The largest pipe of the last two round trips, `pipe_before` included, in segments.
    fn recent_pipe(&self, pipe_before: u64) -> u32 {
        self.rounds.recent().pipe_max_segments.max(self.packets(pipe_before))
    }

    /// BBR's share: delivery rate times smallest round-trip time.
    fn share_segments(&self) -> f64 {
        let share = self.bbr.as_ref().and_then(|bbr| bbr.share(self.clock.reaction()));
        share.unwrap_or_else(|| self.best_segments())
    }
}
