//! Which directions of connections other gateways saw, compared with what this one saw: connections that are divided between two
//! gateways, and taps that see the same packets although nobody declared it. It changes no estimate.

mod kept;
mod measure;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use spand_core::halves::{Direction, Half, Halves, HashSample, Seen};
use spand_core::sharing::GatewayId;
use spand_proto::units::{Micros, Timestamp};

use self::kept::Kept;
pub use self::measure::HalfMeasures;
use super::format::{FormatError, HALVES_AT_ONCE, Member, read_halves, write_halves};

/// How often a gateway sends what it found.
pub(super) const EVERY: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(2) };
/// What another gateway saw of a connection is here so long after what this one saw, where it is sent.
const SETTLED: Micros = Micros::from_secs(20);
/// Connections are compared that began within the last minutes, fewer than are kept of others.
const COMPARED: Micros = Micros::from_secs(240);
/// Fewest connections of which something is found.
const FEW: u64 = 10;
/// Connections divided between two gateways are named from this share of those of which one direction is here, and of all, in percent.
const DIVIDED: u64 = 10;
const DIVIDED_OF_ALL: u64 = 1;
/// Taps are named from this share of connections that both see whole, in percent.
const DUPLICATES: u64 = 20;

/// Bytes of the connections that are kept of this gateway and of N others.
pub(super) const fn most_bytes(others: usize) -> usize {
    Kept::most_bytes().saturating_mul(others + 1)
}

/// What is found with one other gateway, in connections of the sample that both have.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Compared {
    /// Of which this gateway saw one direction, and something of the other end's was acknowledged.
    pub one_direction: u64,
    /// Those of which the other gateway saw the other direction and not this one.
    pub other_direction: u64,
    /// Those of them whose outgoing direction is lacking here.
    pub lacks_outgoing: u64,
    /// Those whose incoming direction is lacking here.
    pub lacks_incoming: u64,
    /// Of which this gateway saw both directions.
    pub both_directions: u64,
    /// Those of which the other gateway saw both, too.
    pub seen_by_both: u64,
    /// More than a few connections are divided between the two, as was logged.
    pub is_divided: bool,
    /// The two see the same packets and are no mirror group, as was logged.
    pub is_duplicate: bool,
}

/// Another gateway.
#[derive(Debug, Default)]
struct Other {
    kept: Kept,
    found: Compared,
}

/// Compares with all of them.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    own: Kept,
    unsent: Vec<Half>,
    others: BTreeMap<GatewayId, Other>,
}

impl Comparison {
    /// Takes what the engines found; how many had no room.
    pub(super) fn found(&mut self, halves: &Halves, now: Timestamp) -> u64 {
        let dropped = self.own.take(halves, now);
        let room = HALVES_AT_ONCE.saturating_sub(self.unsent.len());
        self.unsent.extend(halves.found.iter().take(room));
        dropped + halves.found.len().saturating_sub(room) as u64
    }

    /// The message for the others. It leaves without connections, too: otherwise nobody would know that none were seen.
    /// With how many there are in it.
    pub(super) fn message(&mut self) -> (Vec<u8>, u64) {
        let unsent = std::mem::take(&mut self.unsent);
        (write_halves(self.own.sample(), &unsent), unsent.len() as u64)
    }

    /// Which of all connections are compared.
    pub(super) fn sample(&self) -> HashSample {
        self.own.sample()
    }

    /// Takes a message of a gateway that is a member; how many had no room.
    pub(super) fn take(&mut self, from: GatewayId, message: &[u8], now: Timestamp) -> Result<u64, FormatError> {
        let halves = read_halves(message)?;
        Ok(self.others.entry(from).or_default().kept.take(&halves, now))
    }

    /// What is found with each.
    pub(super) fn all(&self) -> impl Iterator<Item = (GatewayId, Compared)> {
        self.others.iter().map(|(gateway, other)| (*gateway, other.found))
    }

    /// Compares with these members, and forgets all others; gives a sentence for each change that matters to people, with
    /// whether it is one to the worse.
    pub(super) fn compare<'a>(
        &mut self,
        own: &Member,
        members: impl Iterator<Item = &'a Member>,
        now: Timestamp,
    ) -> Vec<(bool, String)> {
        let members: BTreeMap<GatewayId, &Member> = members.map(|member| (member.gateway, member)).collect();
        self.others.retain(|gateway, _| members.contains_key(gateway));
        let mut news = Vec::new();
        for (gateway, other) in &mut self.others {
            let Some(member) = members.get(gateway) else { continue };
            let before = other.found;
            let mut found = compared(&self.own, &other.kept, now);
            found.is_divided = is_divided(found, before.is_divided);
            // Of one mirror group it is what was declared.
            found.is_duplicate = own.tap != member.tap
                && is_part(found.seen_by_both, found.both_directions, DUPLICATES, before.is_duplicate);
            if found.is_divided != before.is_divided {
                news.push((found.is_divided, divided(member, found)));
            }
            if found.is_duplicate != before.is_duplicate {
                news.push((found.is_duplicate, duplicate(member, found)));
            }
            other.found = found;
        }
        news
    }
}

fn compared(own: &Kept, other: &Kept, now: Timestamp) -> Compared {
    let sample = own.sample().max(other.sample());
    let from = own.since().max(other.since().after(SETTLED));
    let own = own.all().filter(|(at, half)| {
        sample.has(half.hash) && *at >= from && now.since(*at) <= COMPARED && other.heard().since(*at) >= SETTLED
    });
    let mut found = Compared::default();
    for (_, half) in own {
        let there = other.get(half.hash).map(|other| other.seen);
        if half.seen == Seen::Both {
            found.both_directions += 1;
            found.seen_by_both += u64::from(there == Some(Seen::Both));
            continue;
        }
        found.one_direction += 1;
        if there.is_some_and(|there| there != Seen::Both && there != half.seen) {
            found.other_direction += 1;
            found.lacks_outgoing += u64::from(half.lacks == Some(Direction::Outgoing));
            found.lacks_incoming += u64::from(half.lacks == Some(Direction::Incoming));
        }
    }
    found
}

/// Whether connections are divided between the two, more than a few.
fn is_divided(found: Compared, before: bool) -> bool {
    let all = found.one_direction + found.both_directions;
    is_part(found.other_direction, found.one_direction, DIVIDED, before)
        && is_part(found.other_direction, all, DIVIDED_OF_ALL, before)
}

/// Whether a part is N percent of all, or half of that where it was `before`: what lies between says nothing new.
fn is_part(part: u64, all: u64, percent: u64, before: bool) -> bool {
    let (few, part_of_all) = if before { (FEW / 2, part * 2) } else { (FEW, part) };
    part >= few && part_of_all.saturating_mul(100) >= all.saturating_mul(percent)
}

fn percent(part: u64, all: u64) -> u64 {
    (part * 100 + all / 2).checked_div(all).unwrap_or_default()
}

fn divided(Member { gateway: GatewayId(number), name, .. }: &Member, found: Compared) -> String {
    if !found.is_divided {
        return format!("hardly any connections are divided between this gateway and gateway {number} ({name})");
    }
    let lacking = match (found.lacks_outgoing, found.lacks_incoming) {
        (0, 1..) => ", the incoming one,",
        (1.., 0) => ", the outgoing one,",
        _ => "",
    };
    let share = percent(found.other_direction, found.one_direction);
    format!(
        "{share} % of the connections of which this gateway saw one direction have their other direction{lacking} at gateway {number} \
         ({name}): mirror both directions to one gateway, see docs/share.md; from one direction alone nothing is estimated"
    )
}

fn duplicate(Member { gateway: GatewayId(number), name, .. }: &Member, found: Compared) -> String {
    if !found.is_duplicate {
        return format!("gateway {number} ({name}) sees hardly any connections that this gateway sees");
    }
    let share = percent(found.seen_by_both, found.both_directions);
    format!(
        "gateway {number} ({name}) sees {share} % of the connections that this gateway sees, whose round trips and losses count twice: give \
         both the same share.mirror_group, or mirror each packet to one of them, see docs/share.md"
    )
}
