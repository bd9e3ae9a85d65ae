//! Which congestion control a sender runs, by the evidence of its packets.

use strum::VariantArray;

/// The congestion controls that are distinguished.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, VariantArray)]
pub enum Flavour {
    /// No evidence yet; before the first loss Reno and CUBIC mostly grow alike.
    #[default]
    Unknown,
    /// Reno (RFC 5681).
    Reno,
    /// CUBIC (RFC 9438).
    Cubic,
    /// BBR, first version.
    Bbr,
}

impl Flavour {
    /// Its stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Reno => "reno",
            Self::Cubic => "cubic",
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
/// BBR does not reduce where Reno reduces most: evidence for Reno against CUBIC above this is evidence against BBR, too.
const CLEARLY_RENO: f32 = 1.0;

/// A connection's vote for its host on each of the two scales, in parts of what is clear.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Vote {
    /// Towards Reno; below 0, towards CUBIC.
    pub(crate) reno: i8,
    /// Towards BBR; below 0, away from it.
    pub(crate) bbr: i8,
}

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
    /// Not BBR: Reno, CUBIC, or unknown which.
    LossBased(Flavour),
}

/// The evidence on two scales: Reno against CUBIC, by the windows that each should have; BBR against both, by pacing and
/// reductions. An equal error of both windows is on neither: it is an error of the replicas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaning {
    /// Towards Reno; below 0, towards CUBIC.
    reno: f32,
    /// Towards BBR; below 0, towards either of the others.
    bbr: f32,
    /// The verdict on the host: applies while this flow's own packets are not clear.
    prior: Prior,
    /// The flavour in use: read several times per packet, and rarely changed.
    best: Flavour,
}

impl Default for Leaning {
    fn default() -> Self {
        let none = Self { reno: 0.0, bbr: 0.0, prior: Prior::Unknown, best: Flavour::Unknown };
        Self { best: none.weigh(), ..none }
    }
}

impl Leaning {
    /// Sets the verdict on the host.
    pub(super) fn presume(&mut self, prior: Prior) {
        self.prior = prior;
        self.best = self.weigh();
    }

    /// Errors of both replicas, as part of the window: their difference counts.
    pub(super) fn compare(&mut self, reno: f64, cubic: f64) {
        self.reno = gather(self.reno, cubic.min(1.0) - reno.min(1.0));
        self.best = self.weigh();
    }

    /// Evidence for BBR against the others; below 0, against BBR.
    pub(super) fn lean_to_bbr(&mut self, by: f64) {
        self.bbr = gather(self.bbr, by);
        self.best = self.weigh();
    }

    /// Takes back evidence for BBR.
    #[expect(clippy::cast_possible_truncation, reason = "a few digits are enough")]
    pub(super) fn take_back(&mut self, counted: f64) {
        self.bbr -= counted as f32;
        self.best = self.weigh();
    }

    /// How far it leans towards BBR; below 0, away from it.
    pub(super) fn bbr(&self) -> f64 {
        f64::from(self.bbr)
    }

    /// Both scales: Reno against CUBIC, BBR against the two.
    pub fn scales(&self) -> (f64, f64) {
        (f64::from(self.reno), f64::from(self.bbr))
    }

    /// The verdict of its own packets.
    pub fn own(&self) -> Flavour {
        if self.bbr >= CLEAR {
            Flavour::Bbr
        } else if self.reno.abs() < CLEAR || (self.bbr > -CLEAR && self.reno < CLEARLY_RENO) {
            Flavour::Unknown
        } else {
            self.loss_based()
        }
    }

    /// The evidence of its own packets on each scale; that of several flows of a host together may be clear.
    pub(crate) fn vote(&self) -> Vote {
        #[expect(clippy::cast_possible_truncation, reason = "within the limits")]
        let parts = |scale: f32| {
            let whole = f32::from(Vote::WHOLE);
            (scale / CLEAR * whole).clamp(-whole, whole) as i8
        };
        Vote { reno: parts(self.reno), bbr: parts(self.bbr) }
    }

    /// Whether a sender that was seen to pace may be BBR, although that is not clear.
    pub(super) fn may_be_bbr(&self) -> bool {
        self.bbr > -NOT_AS_PACED && self.verdict() != Flavour::Bbr
    }

    /// The verdict of its own packets or else of its host, unless its own contradict that.
    pub fn verdict(&self) -> Flavour {
        match (self.own(), self.prior) {
            (_, Prior::Bbr) if self.bbr > -NOT_AS_HOST => Flavour::Bbr,
            (Flavour::Unknown, Prior::LossBased(host)) => self.not_bbr(host),
            (own, _) => own,
        }
    }

    /// The verdict if its host does not run BBR but `host`.
    fn not_bbr(&self, host: Flavour) -> Flavour {
        let own = if self.reno.abs() < CLEAR { Flavour::Unknown } else { self.loss_based() };
        match (own, host) {
            (Flavour::Unknown, other) | (other, Flavour::Unknown) => other,
            (own, host) if own == host => own,
            _ => Flavour::Unknown,
        }
    }

    /// The flavour in use: on a tie CUBIC, the default of Linux, Windows and macOS; never unknown.
    pub(crate) fn best(&self) -> Flavour {
        self.best
    }

    fn weigh(&self) -> Flavour {
        match self.verdict() {
            Flavour::Unknown => self.loss_based(),
            clear => clear,
        }
    }

    /// The nearer one of Reno and CUBIC.
    pub(super) fn loss_based(&self) -> Flavour {
        if self.reno > 0.0 { Flavour::Reno } else { Flavour::Cubic }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a few digits are enough")]
fn gather(so_far: f32, by: f64) -> f32 {
    let by = (by as f32).clamp(-OBSERVATION_MOST, OBSERVATION_MOST);
    (so_far + by).clamp(-LEANING_MOST, LEANING_MOST)
}
