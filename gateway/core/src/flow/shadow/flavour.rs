//! Which congestion control a sender runs, by what its packets said so far.

use strum::VariantArray;

/// The congestion controls that are told apart.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd, VariantArray)]
pub enum Flavour {
    /// Nothing seen yet that sets them apart; before the first loss Reno and CUBIC mostly grow alike.
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

/// One observation counts for at most this, and what was gathered is kept below three of them: a wrong verdict can turn.
const OBSERVATION_MOST: f32 = 1.0;
const LEANING_MOST: f32 = 3.0;
/// Leaning from which a flavour is named.
const CLEAR: f32 = 0.15;
/// Leaning away from BBR from which a connection is taken for something else than its host's other ones, which run it: more than one
/// observation, since with a small window BBR is clocked by acknowledgements as much as others are.
const NOT_AS_HOST: f32 = OBSERVATION_MOST;
/// Leaning away from BBR from which a connection that was seen to pace is clearly something else.
const NOT_AS_PACED: f32 = 0.5;
/// BBR holds on where Reno backs off most: what speaks for Reno against CUBIC by this much speaks against BBR, too.
const CLEARLY_RENO: f32 = 1.0;

/// What a connection tells its host on each of the two scales, in parts of what would name it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Vote {
    /// Towards Reno; below 0, towards CUBIC.
    pub(crate) reno: i8,
    /// Towards BBR; below 0, away from it.
    pub(crate) bbr: i8,
}

impl Vote {
    /// Parts of a whole vote: none counts for more.
    pub(crate) const WHOLE: i8 = 4;
}

/// What the connections of a host agree on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Prior {
    /// Nothing.
    #[default]
    Unknown,
    /// They run BBR.
    Bbr,
    /// They do not: Reno, CUBIC, or not known which.
    LossBased(Flavour),
}

/// What the packets speak for, on two scales: Reno against CUBIC, by the windows that each should have; BBR against both, by
/// whether the sender paces and whether it backs off. That both windows are wrong alike is on neither: it speaks of the
/// replicas, not of the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaning {
    /// Towards Reno; below 0, towards CUBIC.
    reno: f32,
    /// Towards BBR; below 0, towards either of the others.
    bbr: f32,
    /// What the flows of the same host speak for: holds while this one's own packets say nothing.
    prior: Prior,
    /// The flavour to go by: asked for several times per packet, and rarely another one.
    best: Flavour,
}

impl Default for Leaning {
    fn default() -> Self {
        let none = Self { reno: 0.0, bbr: 0.0, prior: Prior::Unknown, best: Flavour::Unknown };
        Self { best: none.weigh(), ..none }
    }
}

impl Leaning {
    /// The flows of the same host speak for `prior`.
    pub(super) fn presume(&mut self, prior: Prior) {
        self.prior = prior;
        self.best = self.weigh();
    }

    /// How much of its window each replica was wrong by: what sets Reno and CUBIC apart counts.
    pub(super) fn compare(&mut self, reno: f64, cubic: f64) {
        self.reno = gather(self.reno, cubic.min(1.0) - reno.min(1.0));
        self.best = self.weigh();
    }

    /// Something that BBR does and the others do not; below 0, the other way round.
    pub(super) fn lean_to_bbr(&mut self, by: f64) {
        self.bbr = gather(self.bbr, by);
        self.best = self.weigh();
    }

    /// How far it leans towards BBR; below 0, away from it.
    pub(super) fn bbr(&self) -> f64 {
        f64::from(self.bbr)
    }

    /// Whether it leans towards Reno rather than CUBIC, clearly.
    #[cfg(test)]
    pub(super) fn is_towards_reno(&self) -> bool {
        self.reno >= CLEAR
    }

    /// Where it stands on both: Reno against CUBIC, BBR against the two.
    pub fn scales(&self) -> (f64, f64) {
        (f64::from(self.reno), f64::from(self.bbr))
    }

    /// What its own packets make clear.
    pub fn own(&self) -> Flavour {
        if self.bbr >= CLEAR {
            Flavour::Bbr
        } else if self.reno.abs() < CLEAR || (self.bbr > -CLEAR && self.reno < CLEARLY_RENO) {
            Flavour::Unknown
        } else {
            self.loss_based()
        }
    }

    /// What its own packets say on each scale, of which several flows of a host together may say enough.
    pub(crate) fn vote(&self) -> Vote {
        #[expect(clippy::cast_possible_truncation, reason = "within the limits")]
        let parts = |scale: f32| {
            let whole = f32::from(Vote::WHOLE);
            (scale / CLEAR * whole).clamp(-whole, whole) as i8
        };
        Vote { reno: parts(self.reno), bbr: parts(self.bbr) }
    }

    /// Whether one that was seen to pace may be BBR although it is not named so.
    pub(super) fn may_be_bbr(&self) -> bool {
        self.bbr > -NOT_AS_PACED && self.verdict() != Flavour::Bbr
    }

    /// What is clear, by its own packets or else by its host, where they do not speak against that.
    pub fn verdict(&self) -> Flavour {
        match (self.own(), self.prior) {
            (_, Prior::Bbr) if self.bbr > -NOT_AS_HOST => Flavour::Bbr,
            (Flavour::Unknown, Prior::LossBased(host)) => self.not_bbr(host),
            (own, _) => own,
        }
    }

    /// What it is where its host's flows say that it is not BBR, and `host` of Reno and CUBIC.
    fn not_bbr(&self, host: Flavour) -> Flavour {
        let own = if self.reno.abs() < CLEAR { Flavour::Unknown } else { self.loss_based() };
        match (own, host) {
            (Flavour::Unknown, other) | (other, Flavour::Unknown) => other,
            (own, host) if own == host => own,
            _ => Flavour::Unknown,
        }
    }

    /// The flavour to go by: on a tie CUBIC, the default of Linux, Windows and macOS; never unknown.
    pub(crate) fn best(&self) -> Flavour {
        self.best
    }

    fn weigh(&self) -> Flavour {
        match self.verdict() {
            Flavour::Unknown => self.loss_based(),
            clear => clear,
        }
    }

    /// Which of the two it is more like if it is not BBR.
    pub(super) fn loss_based(&self) -> Flavour {
        if self.reno > 0.0 { Flavour::Reno } else { Flavour::Cubic }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a few digits are enough")]
fn gather(so_far: f32, by: f64) -> f32 {
    let by = (by as f32).clamp(-OBSERVATION_MOST, OBSERVATION_MOST);
    (so_far + by).clamp(-LEANING_MOST, LEANING_MOST)
}
