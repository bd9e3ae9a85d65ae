//! Whether what should be in force is. A method may lose the place where it applies (a cgroup, routes) and nothing else shows it.

use spand_proto::units::{Micros, Timestamp};

/// Two renewals of a gateway, which sends one at least every 20 s.
const PATIENCE: Micros = Micros::from_secs(40);

/// How long nothing has been in force although starts are decided for.
#[derive(Debug, Default)]
pub(super) struct ForceWatch {
    since: Option<Timestamp>,
    logged: bool,
}

impl ForceWatch {
    /// Takes whether starts are decided for and none is in force. Gives true where that has lasted too long for the first time.
    pub(super) fn on_tick(&mut self, nothing: bool, now: Timestamp) -> bool {
        if !nothing {
            *self = Self::default();
            return false;
        }
        self.since.get_or_insert(now);
        self.lasting(now).is_some() && !std::mem::replace(&mut self.logged, true)
    }

    /// For how long, where that is too long.
    pub(super) fn lasting(&self, now: Timestamp) -> Option<Micros> {
        self.since.map(|since| now.since(since)).filter(|lasting| *lasting > PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_force_for_longer_than_two_renewals_is_one_line_each_time() {
        let mut watch = ForceWatch::default();
        let at = |second: u64| Timestamp::from_micros(1_000_000 * (1 + second));
        let lines: Vec<u64> = (0..200).filter(|second| watch.on_tick(*second != 100, at(*second))).collect();
        assert_eq!(lines, [41, 142]);
        assert_eq!(watch.lasting(at(200)), Some(Micros::from_secs(99)));
        assert!(!watch.on_tick(false, at(201)) && watch.lasting(at(900)).is_none());
    }
}
