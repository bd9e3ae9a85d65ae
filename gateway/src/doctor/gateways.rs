//! What a gateway that runs found when it compared connections with others. Pure.

use serde::Deserialize;
use spand_proto::operator::{Check, Verdict};

use super::judge::percent;
use super::shared::{Member, named};

/// What was found with one other gateway.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Halves {
    one_direction: u64,
    other_direction: u64,
    both_directions: u64,
    seen_by_both: u64,
    divided: bool,
    duplicate: bool,
}

/// One line for all other gateways; none where nothing was compared.
pub(super) fn judge(members: &[Member]) -> Option<Check> {
    let all: Vec<_> = members.iter().filter_map(|one| Some((one, one.halves.as_ref()?))).collect();
    let faults: Vec<String> = all.iter().flat_map(|(member, halves)| faults(member, halves)).collect();
    match (all.as_slice(), faults.as_slice()) {
        ([], _) => None,
        ([(one, _)], []) => {
            Some(Check::ok("gateways", format!("no packets are divided with or doubled by {}", named(one))))
        }
        (_, []) => {
            Some(Check::ok("gateways", format!("no packets are divided with or doubled by {} others", all.len())))
        }
        (_, faults) => {
            let mut to_do = Vec::new();
            if all.iter().any(|(_, halves)| halves.divided) {
                to_do.push(
                    "mirror both directions to one gateway, or bring the packets of one direction there in a tunnel",
                );
            }
            if all.iter().any(|(_, halves)| halves.duplicate) {
                to_do.push("give gateways that see the same packets one share.mirror_group");
            }
            Some(Check::to_do("gateways", Verdict::Warn, faults.join("; "), to_do.join("; ")))
        }
    }
}

fn faults(member: &Member, halves: &Halves) -> Vec<String> {
    let mut faults = Vec::new();
    if halves.divided {
        let share = percent(halves.other_direction, halves.one_direction);
        faults.push(format!(
            "{share:.0} % of connections of which only one direction is seen have the other one at {}",
            named(member)
        ));
    }
    if halves.duplicate {
        let share = percent(halves.seen_by_both, halves.both_directions);
        faults.push(format!("{} sees {share:.0} % of the same connections, undeclared", named(member)));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(gateway: u16, name: &str, halves: Halves) -> Member {
        Member { gateway, name: name.to_owned(), halves: Some(halves), ..Member::default() }
    }

    #[test]
    fn each_other_gateway_is_named_with_what_to_do() {
        assert!(judge(&[]).is_none());
        assert!(judge(&[Member::default()]).is_none(), "nothing is compared with it yet");
        let sound = Halves { both_directions: 100, ..Halves::default() };
        assert_eq!(judge(&[member(4, "d", sound.clone())]).unwrap().verdict, Verdict::Ok);
        let divided = Halves { one_direction: 100, other_direction: 38, divided: true, ..sound.clone() };
        let duplicate = Halves { seen_by_both: 97, duplicate: true, ..sound.clone() };
        let check = judge(&[member(4, "d", sound), member(2, "b", divided), member(3, "c", duplicate)]).unwrap();
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.found.contains("38 % of connections") && check.found.contains("at gateway 2 (b)"), "{check:?}");
        assert!(check.found.contains("gateway 3 (c) sees 97 %"), "{check:?}");
        let to_do = check.to_do.unwrap();
        assert!(to_do.contains("both directions") && to_do.contains("share.mirror_group"), "{to_do}");
    }
}
