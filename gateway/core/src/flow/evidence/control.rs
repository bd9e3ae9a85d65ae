//! Which congestion control a sender runs, by the evidence of its packets.

use strum::VariantArray;

/// The congestion controls that are distinguished.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, VariantArray)]
pub enum CongestionControl {
    /// No evidence yet.
    #[default]
    Unknown,
    /// It reduces its window at a loss: Reno (RFC 5681), CUBIC (RFC 9438) and the like.
    LossBased,
    /// It paces by the delivery rate: BBR of any version.
    Bbr,
}

impl CongestionControl {
    /// Its stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::LossBased => "loss-based",
            Self::Bbr => "bbr",
        }
    }
}

/// Limits of one observation, and of the sum of all, so that a wrong verdict can change.
const OBSERVATION_MOST: f32 = 1.0;
const LEANING_MOST: f32 = 3.0;
/// Leaning from which a flavour is clear.
const CLEAR: f32 = 0.15;
/// Leaning away from BBR from which a connection differs from its host's others, which run BBR: more than one observation, since
/// with a small window BBR is ACK-clocked, too.
const NOT_AS_HOST: f32 = OBSERVATION_MOST;
/// Leaning away from BBR from which a connection that was seen to pace is clearly not BBR.
const NOT_AS_PACED: f32 = 0.5;
/// A connection's vote on its host: positive for BBR, negative against it. [`Self::WHOLE`] is a clear verdict.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Vote(pub(crate) i8);

impl Vote {
    /// A whole vote, the most that one counts.
    pub(crate) const WHOLE: i8 = 4;
}

/// The common verdict on the connections of a host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Prior {
    /// None.
    #[default]
    Unknown,
    /// BBR.
    Bbr,
    /// Not BBR.
    LossBased,
}

/// The evidence for BBR by pacing and reductions. It is negative against BBR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaning {
    bbr: f32,
    /// The verdict on the host: applies while this flow's own packets are not clear.
    prior: Prior,
    /// The verdict. It is kept, since packets read it often and rarely change it.
    verdict: CongestionControl,
}

impl Default for Leaning {
    fn default() -> Self {
        Self { bbr: 0.0, prior: Prior::Unknown, verdict: CongestionControl::Unknown }
    }
}

impl Leaning {
    /// Sets the verdict on the host.
    pub(super) fn presume(&mut self, prior: Prior) {
        self.prior = prior;
        self.weigh();
    }

    /// Evidence for BBR; below 0, against it.
    #[expect(clippy::cast_possible_truncation, reason = "a few digits are enough")]
    pub(super) fn lean_to_bbr(&mut self, by: f64) {
        let by = (by as f32).clamp(-OBSERVATION_MOST, OBSERVATION_MOST);
        self.bbr = (self.bbr + by).clamp(-LEANING_MOST, LEANING_MOST);
        self.weigh();
    }

    /// Takes back evidence for BBR.
    #[expect(clippy::cast_possible_truncation, reason = "a few digits are enough")]
    pub(super) fn take_back(&mut self, counted: f64) {
        self.bbr -= counted as f32;
        self.weigh();
    }

    /// How far it leans towards BBR; below 0, away from it.
    pub fn bbr(self) -> f64 {
        f64::from(self.bbr)
    }

    /// The verdict of its own packets.
    pub fn own(self) -> CongestionControl {
        if self.bbr >= CLEAR {
            CongestionControl::Bbr
        } else if self.bbr > -CLEAR {
            CongestionControl::Unknown
        } else {
            CongestionControl::LossBased
        }
    }

    /// The evidence of its own packets; that of several flows of a host together may be clear.
    #[expect(clippy::cast_possible_truncation, reason = "within the limits")]
    pub(crate) fn vote(self) -> Vote {
        let whole = f32::from(Vote::WHOLE);
        Vote((self.bbr / CLEAR * whole).clamp(-whole, whole) as i8)
    }

    /// Whether a sender that was seen to pace may be BBR, although that is not clear.
    pub(super) fn may_be_bbr(self) -> bool {
        self.bbr > -NOT_AS_PACED && self.verdict != CongestionControl::Bbr
    }

    /// The verdict of its own packets or else of its host, unless its own contradict that.
    pub fn verdict(self) -> CongestionControl {
        self.verdict
    }

    /// Whether it is taken for BBR.
    pub(crate) fn is_bbr(self) -> bool {
        self.verdict == CongestionControl::Bbr
    }

    fn weigh(&mut self) {
        self.verdict = match (self.own(), self.prior) {
            (_, Prior::Bbr) if self.bbr > -NOT_AS_HOST => CongestionControl::Bbr,
            (CongestionControl::Unknown, Prior::LossBased) => CongestionControl::LossBased,
            (own, _) => own,
        };
    }
}
