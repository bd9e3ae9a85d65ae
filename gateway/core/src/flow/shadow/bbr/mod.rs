//! BBR, first version (Cardwell et al. 2016; `tcp_bbr.c`): the window is twice rate times smallest round-trip time.
//!
//! BBR paces, so its flight is about half its window and does not show it; the packets do show the delivery rate ([`delivery`]),
//! the effect of a policer ([`long_term`]) and when BBR empties the pipe ([`probe`]). Not modelled: the phase of the gain cycle,
//! which is random and changes the window by two segments.

mod delivery;
mod gains;
mod long_term;
mod pace;
mod probe;
mod rate;
mod share;
mod window;

use spand_proto::units::{Bytes, Micros, Timestamp};

use self::delivery::DeliveryRate;
pub(super) use self::delivery::{Delivery, Departure};
use self::gains::{EVEN_GAIN, START_GAIN, gained};
use self::long_term::{LongTerm, Standing};
use self::pace::Pace;
use self::share::Share;
use self::window::Aggregation;
use super::cwnd::INITIAL;
use crate::mem::boxed;

/// The pipe is full after three round trips in which the rate grew by less than a quarter.
const FULL_ROUNDS: u8 = 3;

/// `enum bbr_mode`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    Startup,
    Drain,
    ProbeBandwidth,
    /// `until` once the pipe is empty, and whether a round trip passed since; `before`: the smallest round-trip time at its begin;
    /// `windows`: the window then, and the saved one.
    ProbeRtt {
        since: Timestamp,
        until: Option<Timestamp>,
        round_done: bool,
        before: (Micros, Timestamp),
        windows: [u32; 2],
    },
}

/// A BBR sender.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the kernel's, which do not hang together")]
pub(super) struct Bbr {
    rate: DeliveryRate,
    long_term: LongTerm,
    pace: Pace,
    /// The rate of the observed pace, if it differs from the delivery rate; 0 for none.
    seen_rate: u32,
    /// Rate at which the pipe may be full, and round trips since it grew.
    full_rate: u32,
    full_rounds: u8,
    /// `full_bw_reached`.
    is_full: bool,
    /// Smallest round-trip time at the tap, and since when.
    min_rtt: Option<(Micros, Timestamp)>,
    /// Additional time of a round trip at the sender.
    reaction: Micros,
    aggregation: Aggregation,
    mode: Mode,
    /// Pacing rate, and until when it delays the next segment.
    paced: u32,
    paced_until: Timestamp,
    /// When the retransmission of a timeout left before that, and when it was due.
    early: Option<(Timestamp, Timestamp)>,
    segments: u32,
    /// Window before a loss or a probe reduced it (`prior_cwnd`).
    prior_segments: u32,
    /// Losses were being repaired at the previous acknowledgement.
    was_recovering: bool,
    /// Those of a timeout.
    was_timed_out: bool,
    /// A reduction after an ECN echo is under way.
    reducing: bool,
    /// In the first round trip of a recovery (`packet_conservation`).
    conserving: bool,
    /// Nothing sent since an idle time is acknowledged.
    idle_restart: bool,
    /// The last new segment ended a write of the application.
    pushed: bool,
    mss: u32,
    share: Share,
}

impl Bbr {
    /// A sender with a window of `segments`, and the smallest round-trip time so far and since when.
    pub(super) fn new(
        at: Timestamp,
        delivered_bytes: u64,
        segments: f64,
        min_rtt: Option<(Micros, Timestamp)>,
    ) -> Self {
        let mut bbr = Self {
            rate: DeliveryRate::new(at, delivered_bytes),
            long_term: LongTerm::default(),
            pace: Pace::default(),
            seen_rate: 0,
            full_rate: 0,
            full_rounds: 0,
            is_full: false,
            min_rtt: None,
            reaction: Micros(0),
            aggregation: Aggregation::new(at),
            mode: Mode::Startup,
            paced: 0,
            paced_until: at,
            early: None,
            segments: whole(segments),
            prior_segments: whole(segments),
            was_recovering: false,
            was_timed_out: false,
            reducing: false,
            conserving: false,
            idle_restart: false,
            pushed: true,
            mss: 0,
            share: Share::new(at),
        };
        bbr.open(min_rtt);
        bbr
    }

    /// Memory of it, allocated separately.
    pub(super) fn held_bytes(&self) -> usize {
        boxed::<Self>() + self.rate.held_bytes()
    }

    /// The handshake's result, if nothing was measured before: the smallest round-trip time, and the pacing rate of the initial window
    /// (`bbr_init_pacing_rate_from_rtt`).
    pub(super) fn open(&mut self, min_rtt: Option<(Micros, Timestamp)>) {
        if self.min_rtt.is_none()
            && let Some((rtt, since)) = min_rtt
        {
            self.min_rtt = min_rtt;
            self.share.observe(since, rtt);
            self.paced = gained(rate::of(u64::from(INITIAL), 1, rtt.0), START_GAIN);
        }
    }

    /// The window in segments.
    pub(super) fn segments(&self) -> f64 {
        f64::from(self.segments)
    }

    /// Whether it is in STARTUP.
    pub(super) fn starting(&self) -> bool {
        matches!(self.mode, Mode::Startup)
    }

    /// A packet with payload.
    pub(super) fn on_sent(&mut self, at: Timestamp, sent: &Departure) {
        self.contest_probe(at, sent.pipe_segments);
        let before = sent.pipe_bytes.saturating_sub(sent.bytes);
        // A nearly empty pipe under a large window shows `PROBE_RTT`, expected or not.
        let emptied = sent.new && sent.pipe_segments <= probe::WINDOW && self.segments > 4 * probe::WINDOW;
        if sent.idle && self.pushed || emptied {
            self.rate.limit_by_application(before);
        }
        if before == 0 && self.rate.is_app_limited() {
            // `CA_EVENT_TX_START`
            self.idle_restart = true;
            self.aggregation.resume(at);
            self.resume_probe(at);
        }
        self.rate.on_sent(at, sent);
        if sent.new {
            self.pushed = sent.pushed;
        }
        if sent.dry {
            self.rate.limit_by_application(sent.pipe_bytes);
        }
        // Also with a full window: the replica's may be too small, and a sender at its window limit does not send evenly.
        let at_pace = self.pace.on_sent(at, sent.bytes, self.mss, sent.paced && !sent.dry);
        match self.mode {
            Mode::ProbeBandwidth if at_pace && sent.named => self.correct_by_pace(),
            Mode::ProbeBandwidth | Mode::ProbeRtt { .. } => {}
            Mode::Startup | Mode::Drain => self.pace.forget(),
        }
        let bytes_per_second = rate::paced(self.paced, self.mss, EVEN_GAIN);
        if let Some(us) = (sent.bytes * 1_000_000).checked_div(bytes_per_second) {
            self.paced_until = self.paced_until.max(at).after(Micros(us));
        }
    }

    /// An acknowledgement (`bbr_main`).
    pub(super) fn on_ack(&mut self, delivery: &Delivery) {
        let delivery = &self.as_stamped(delivery);
        self.reaction = delivery.reaction;
        self.mss = delivery.mss;
        let sample = self.rate.on_ack(delivery);
        let new_round = sample.is_some_and(|sample| sample.new_round);
        if let Some(sample) = sample {
            self.conserving &= !new_round;
            self.long_term.take(&Standing {
                delivered_at: self.rate.delivered_at(),
                delivered_bytes: delivery.delivered_bytes,
                ever_lost_bytes: delivery.ever_lost_bytes,
                loses: delivery.lost_bytes > 0,
                new_round,
                app_limited: sample.app_limited,
                cycling: self.mode == Mode::ProbeBandwidth,
                mss: delivery.mss,
            });
            self.rate.add(sample);
            if delivery.newly_bytes > 0 {
                if new_round {
                    self.aggregation.on_round();
                }
                let acked = self.packets(delivery.newly_bytes);
                self.aggregation.on_ack(delivery.at, acked, self.rate(), self.segments);
            }
            if new_round && !sample.app_limited {
                self.check_full();
            }
        }
        self.check_drained(delivery);
        if let Some(rtt) = delivery.rtt {
            self.share.observe(delivery.at, rtt);
        }
        self.update_min_rtt(delivery, new_round);
        self.idle_restart &= sample.is_none();
        self.update_pacing();
        self.update_window(delivery);
    }

    fn check_full(&mut self) {
        if self.is_full {
            return;
        }
        let rate = self.rate.max();
        if u64::from(rate) >= u64::from(self.full_rate) * 5 / 4 {
            self.full_rate = rate;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.is_full = self.full_rounds >= FULL_ROUNDS;
    }

    fn full(&self) -> bool {
        self.is_full
    }

    fn check_drained(&mut self, delivery: &Delivery) {
        if self.mode == Mode::Startup && self.is_full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain {
            // By the time the next segment may leave (`bbr_packets_in_net_at_edt`).
            let leaves = rate::packets_in(self.rate(), self.paced_until.since(delivery.at));
            let pipe = self.packets(delivery.pipe_bytes).saturating_sub(leaves);
            if pipe <= self.budget(self.rate.max(), EVEN_GAIN, 0) {
                self.mode = Mode::ProbeBandwidth;
            }
        }
    }

    /// Packets that `bytes` make.
    fn packets(&self, bytes: u64) -> u32 {
        Bytes(bytes).segments_ceil(Bytes(u64::from(self.mss.max(1)))).0
    }

    /// A timeout (`bbr_set_state`), which ends a round trip, with `ever_lost` bytes lost so far. Its retransmission is not paced.
    pub(super) fn time_out(&mut self, at: Timestamp, ever_lost: u64) {
        self.early = (at < self.paced_until).then_some((at, self.paced_until));
        self.save();
        self.was_recovering = true;
        self.was_timed_out = true;
        self.full_rate = 0;
        self.segments = 1;
        self.long_term.take(&Standing {
            delivered_at: self.rate.delivered_at(),
            delivered_bytes: self.rate.delivered_bytes(),
            ever_lost_bytes: ever_lost,
            loses: true,
            new_round: true,
            app_limited: false,
            cycling: self.mode == Mode::ProbeBandwidth,
            mss: self.mss,
        });
    }

    /// A loss was spurious: restarts the search for a full pipe and a policer (`bbr_undo_cwnd`).
    pub(super) fn undo(&mut self) {
        self.full_rate = 0;
        self.full_rounds = 0;
        self.long_term.forget();
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a window in segments")]
fn whole(segments: f64) -> u32 {
    segments as u32
}
