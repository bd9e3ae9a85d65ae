//! Which congestion control a sender runs: the replica with the fewest contradictions wins.

/// The congestion controls that are told apart.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
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

/// A contradiction counts for at most this, and the lead of the best is kept below three of them: a wrong verdict can turn.
const CONTRADICTION_MOST: f64 = 1.0;
const LEAD_MOST: f64 = 3.0;
/// Lead from which a flavour is named.
const LEAD_TO_NAME: f64 = 0.15;

/// Contradictions so far, relative to the replica with the fewest: 0 is the best.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Contradictions {
    /// Against Reno.
    pub reno: f64,
    /// Against CUBIC.
    pub cubic: f64,
    /// Against BBR.
    pub bbr: f64,
}

impl Contradictions {
    /// Adds to each.
    pub(super) fn add(&mut self, reno: f64, cubic: f64, bbr: f64) {
        self.reno += reno.min(CONTRADICTION_MOST);
        self.cubic += cubic.min(CONTRADICTION_MOST);
        self.bbr += bbr.min(CONTRADICTION_MOST);
        let least = self.reno.min(self.cubic).min(self.bbr);
        self.reno = (self.reno - least).min(LEAD_MOST);
        self.cubic = (self.cubic - least).min(LEAD_MOST);
        self.bbr = (self.bbr - least).min(LEAD_MOST);
    }

    /// The flavour to go by: on a tie CUBIC, the default of Linux, Windows and macOS; never unknown.
    pub(super) fn best(&self) -> Flavour {
        if self.cubic <= self.reno && self.cubic <= self.bbr {
            Flavour::Cubic
        } else if self.reno <= self.bbr {
            Flavour::Reno
        } else {
            Flavour::Bbr
        }
    }

    /// The flavour that is clear.
    pub(super) fn verdict(&self) -> Flavour {
        let best = self.best();
        let next = match best {
            Flavour::Reno => self.cubic.min(self.bbr),
            Flavour::Cubic => self.reno.min(self.bbr),
            Flavour::Bbr | Flavour::Unknown => self.reno.min(self.cubic),
        };
        if next >= LEAD_TO_NAME { best } else { Flavour::Unknown }
    }
}
