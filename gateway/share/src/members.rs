//! The gateways of the cluster, as their messages show them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use spand_cells::{Digest, GatewayId};
use spand_proto::units::{Micros, Timestamp};

use super::format::Member;

/// A gateway that was silent for this long counts as gone.
const GONE: Duration = Duration::from_secs(15);
/// A clock that is off by more than this is worth a warning.
const CLOCK: Micros = Micros::from_secs(2);

/// Why cells of a gateway do not count.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Incompatible {
    /// Another gateway has the same number.
    SameNumber,
    /// Its buckets have another length.
    BucketLength,
    /// Its list of prefixes makes other networks.
    PrefixList,
    /// Its clock is off by more than a bucket.
    Clock,
}

impl Incompatible {
    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One gateway.
#[derive(Clone, Debug)]
pub struct MemberView {
    /// What it sent last.
    pub member: Member,
    /// When that came.
    pub heard: Instant,
    /// How far its clock was ahead of this one's, in microseconds; negative: behind. The way of the message is in it.
    pub clock_ahead_us: i64,
    /// Why its cells do not count.
    pub incompatible: Option<Incompatible>,
}

/// All of them but this one.
#[derive(Debug)]
pub(super) struct Members {
    own: Member,
    all: BTreeMap<GatewayId, MemberView>,
}

impl Members {
    pub(super) fn new(own: Member) -> Self {
        Self { own, all: BTreeMap::new() }
    }

    /// What this gateway sends about itself.
    pub(super) fn own(&mut self, clock: Timestamp, digests: Vec<(u64, Digest)>) -> &Member {
        (self.own.clock, self.own.digests) = (clock, digests);
        &self.own
    }

    /// Who this gateway is, with its clock as of the last message.
    pub(super) fn own_as_it_was(&self) -> &Member {
        &self.own
    }

    /// Takes what a gateway sent about itself; says in a sentence what is new and matters to people.
    pub(super) fn take(&mut self, member: Member, clock: Timestamp, now: Instant) -> Option<String> {
        if member.gateway == self.own.gateway && member.instance == self.own.instance {
            return None;
        }
        let is_newer =
            |known: &MemberView| known.member.instance == member.instance && known.member.clock > member.clock;
        if self.all.get(&member.gateway).is_some_and(is_newer) {
            // A server that stood still hands on late what it held, which tells nothing of a clock. One that was set back counts once the
            // gateway is forgotten.
            return None;
        }
        let ahead = i64::try_from(member.clock.0 / 1_000).unwrap_or(i64::MAX)
            - i64::try_from(clock.0 / 1_000).unwrap_or(i64::MAX);
        let incompatible = self.judge(&member, ahead);
        let (gateway, name) = (member.gateway, member.name.clone());
        let before = self.all.get(&gateway).map(|known| (known.incompatible, is_off(known.clock_ahead_us)));
        let view = MemberView { member, heard: now, clock_ahead_us: ahead, incompatible };
        let after = (incompatible, is_off(ahead));
        self.all.insert(gateway, view);
        (before != Some(after)).then(|| sentence(gateway, &name, ahead, incompatible, &self.own))
    }

    fn judge(&self, member: &Member, ahead_us: i64) -> Option<Incompatible> {
        let own = &self.own;
        let bucket = i64::try_from(own.bucket.0).unwrap_or(i64::MAX);
        if member.gateway == own.gateway {
            Some(Incompatible::SameNumber)
        } else if member.bucket != own.bucket {
            Some(Incompatible::BucketLength)
        } else if member.prefixes != own.prefixes {
            Some(Incompatible::PrefixList)
        } else if ahead_us.saturating_abs() > bucket {
            Some(Incompatible::Clock)
        } else {
            None
        }
    }

    /// Why cells of a gateway do not count. A gateway that has not sent anything about itself may be gone: what it saw still counts.
    pub(super) fn refuses(&self, gateway: GatewayId) -> Option<Incompatible> {
        self.all.get(&gateway)?.incompatible
    }

    /// The gateways that are here and with which something can be shared.
    pub(super) fn compatible(&self) -> impl Iterator<Item = &Member> {
        self.all.values().filter(|known| known.incompatible.is_none()).map(|known| &known.member)
    }

    /// Forgets those that are gone; returns them.
    pub(super) fn forget_gone(&mut self, now: Instant) -> Vec<MemberView> {
        let mut gone = Vec::new();
        self.all.retain(|_, known| {
            let is_here = now.duration_since(known.heard) <= GONE;
            if !is_here {
                gone.push(known.clone());
            }
            is_here
        });
        gone
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &MemberView> {
        self.all.values()
    }
}

fn is_off(ahead_us: i64) -> bool {
    ahead_us.unsigned_abs() > CLOCK.0
}

fn sentence(gateway: GatewayId, name: &str, ahead_us: i64, why: Option<Incompatible>, own: &Member) -> String {
    let GatewayId(number) = gateway;
    let ahead_ms = ahead_us / 1_000;
    match why {
        None if is_off(ahead_us) => format!(
            "the clock of gateway {number} ({name}) is {ahead_ms} ms ahead of this one's: synchronise both; beyond {} s its cells are refused",
            own.bucket.0 / 1_000_000
        ),
        None => format!("gateway {number} ({name}) shares what it sees"),
        Some(Incompatible::SameNumber) => format!(
            "{name} is gateway {number} too: give each gateway of a cluster its own number (share.gateway); until then neither's cells count at the other"
        ),
        Some(Incompatible::BucketLength) => {
            format!(
                "gateway {number} ({name}) has buckets of another length: set estimate.bucket_s alike; its cells are refused"
            )
        }
        Some(Incompatible::PrefixList) => format!(
            "gateway {number} ({name}) makes networks of other prefixes: give both the same traffic.prefix_list; its cells are refused"
        ),
        Some(Incompatible::Clock) => format!(
            "the clock of gateway {number} ({name}) is {ahead_ms} ms ahead of this one's, more than a bucket: synchronise both; its cells are refused"
        ),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use spand_cells::TapId;
    use spand_proto::estimate::RuleKind;

    use super::*;

    pub(crate) fn member(gateway: u16) -> Member {
        Member {
            gateway: GatewayId(gateway),
            tap: TapId::of_gateway(GatewayId(gateway)),
            instance: 1,
            name: "gateway".to_owned(),
            version: "0".to_owned(),
            bucket: Micros::from_secs(10),
            buckets: 30,
            rule: RuleKind::Robust,
            prefixes: 0,
            clock: Timestamp(0),
            digests: Vec::new(),
            address: None,
        }
    }

    #[test]
    fn what_comes_late_says_nothing_of_a_clock_and_one_that_was_set_back_counts_once_its_gateway_is_forgotten() {
        let (mut members, now) = (Members::new(member(0)), Instant::now());
        let at = |second: u64| Timestamp(second * 1_000_000_000);
        let sent = |second: u64| Member { clock: at(second), ..member(1) };
        assert!(members.take(sent(100), at(100), now).is_some());
        assert_eq!(members.take(sent(80), at(100), now), None);
        assert_eq!(members.refuses(GatewayId(1)), None, "a message that was held up for 20 s");
        // Another process of the same gateway, on a machine with another clock.
        let again = Member { instance: 2, ..sent(81) };
        assert!(members.take(again, at(101), now).unwrap().contains("more than a bucket"));
        assert_eq!(members.refuses(GatewayId(1)), Some(Incompatible::Clock));
        // The clock is right, and then set back for good.
        assert!(members.take(sent(102), at(102), now).is_some());
        for second in 1..=3 {
            assert_eq!(members.take(sent(82 + 5 * second), at(102 + 5 * second), now), None);
        }
        members.forget_gone(now + GONE + Duration::from_secs(1));
        assert!(members.take(sent(102), at(122), now).is_some());
        assert_eq!(members.refuses(GatewayId(1)), Some(Incompatible::Clock));
    }
}
