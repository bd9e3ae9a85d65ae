//! BBR (Cardwell et al. 2016; `tcp_bbr.c`): its share of the path is its delivery rate times the smallest round-trip time.
//!
//! BBR paces, so its flight is about half of its window and does not show it. The packets do show the delivery rate ([`delivery`]), whether
//! that still grows, and the pace ([`pace`]). They are the same for every version of it, and so is the share.

mod delivery;
mod pace;
mod rate;
mod share;

use spand_proto::units::{Micros, Timestamp};

use self::delivery::DeliveryRate;
pub(super) use self::delivery::{Delivery, Departure};
use self::pace::Pace;
use self::share::Share;

/// The pipe is full after three round trips in which the rate grew by less than a quarter.
const FULL_ROUNDS: u8 = 3;
/// The window in which it measures the smallest round-trip time (`bbr_cwnd_min_target`).
const LEAST_WINDOW: u32 = 4;

/// A BBR sender.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    rate: DeliveryRate,
    pace: Pace,
    /// Rate at which the pipe may be full, and round trips since it grew.
    full_rate: u32,
    full_rounds: u8,
    /// `full_bw_reached`.
    is_full: bool,
    /// Losses were being repaired at the previous acknowledgement.
    was_recovering: bool,
    /// The last new segment ended a write of the application.
    pushed: bool,
    mss: u32,
    share: Share,
}

impl Bbr {
    /// Starts to follow a sender. `min_rtt` is the smallest round-trip time so far.
    pub(super) fn new(at: Timestamp, delivered_bytes: u64, min_rtt: Option<Micros>) -> Self {
        let mut bbr = Self {
            rate: DeliveryRate::new(at, delivered_bytes),
            pace: Pace::default(),
            full_rate: 0,
            full_rounds: 0,
            is_full: false,
            was_recovering: false,
            pushed: true,
            mss: 0,
            share: Share::new(at),
        };
        bbr.open(at, min_rtt);
        bbr
    }

    /// Bytes of it, with what it allocates.
    pub(super) const BYTES: usize = size_of::<Self>() + DeliveryRate::BESIDE_BYTES;

    /// Takes the handshake's round trip, if nothing was measured before.
    pub(super) fn open(&mut self, at: Timestamp, min_rtt: Option<Micros>) {
        if let Some(rtt) = min_rtt.filter(|_| self.share.least().is_none()) {
            self.share.observe(at, rtt);
        }
    }

    /// Whether its rate still grows.
    pub(super) fn starting(&self) -> bool {
        !self.is_full
    }

    /// A packet with payload.
    pub(super) fn on_sent(&mut self, at: Timestamp, sent: &Departure) {
        let before = sent.pipe_bytes.saturating_sub(sent.bytes);
        // The pipe is nearly empty, although the path holds much more.
        let holds_more = self.share(Micros(0)).is_some_and(|share| share > f64::from(2 * LEAST_WINDOW));
        let emptied = sent.new && sent.pipe_segments <= LEAST_WINDOW && holds_more;
        if sent.idle && self.pushed || emptied {
            self.rate.limit_by_application(before);
        }
        self.rate.on_sent(at, sent);
        if sent.new {
            self.pushed = sent.pushed;
        }
        if sent.dry {
            self.rate.limit_by_application(sent.pipe_bytes);
        }
        self.pace.on_sent(at, sent.bytes, self.mss, sent.paced && !sent.dry);
        if !self.is_full {
            self.pace.forget();
        }
    }

    /// An acknowledgement (`bbr_main`).
    pub(super) fn on_ack(&mut self, delivery: &Delivery) {
        self.mss = delivery.mss;
        if delivery.recovering && !self.was_recovering {
            // The first round trip of a recovery is one by itself (`bbr_set_cwnd_to_recover_or_restore`).
            self.rate.start_round();
        }
        self.was_recovering = delivery.recovering;
        if let Some(sample) = self.rate.on_ack(delivery) {
            self.rate.add(sample);
            if sample.new_round && !sample.app_limited {
                self.check_full();
            }
        }
        if let Some(rtt) = delivery.rtt {
            self.share.observe(delivery.at, rtt);
        }
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

    /// A loss or ECN echo.
    pub(super) fn lose(&mut self) {
        self.fill_path();
        self.pace.restart();
    }

    /// A timeout (`bbr_set_state`).
    pub(super) fn time_out(&mut self) {
        self.was_recovering = true;
        self.full_rate = 0;
    }
}
