//! What a gateway that runs found when it compared connections with others. Pure.

use spand_proto::operator::{Check, Verdict};

use super::judge::percent;
use super::running::Compared;

/// One line for all other gateways; none where nothing is shared.
pub(super) fn judge(all: &[Compared]) -> Option<Check> {
    let faults: Vec<String> = all.iter().flat_map(faults).collect();
    match (all, faults.as_slice()) {
        ([], _) => None,
        ([one], []) => Some(Check::ok("gateways", format!("no packets are divided with or doubled by {}", named(one)))),
        (_, []) => {
            Some(Check::ok("gateways", format!("no packets are divided with or doubled by {} others", all.len())))
        }
        (_, faults) => {
            let mut to_do = Vec::new();
            if all.iter().any(|one| one.divided) {
                to_do.push(
                    "mirror both directions to one gateway, or bring the packets of one direction there in a tunnel",
                );
            }
            if all.iter().any(|one| one.duplicate) {
                to_do.push("give gateways that see the same packets one share.mirror_group");
            }
            Some(Check::to_do("gateways", Verdict::Warn, faults.join("; "), to_do.join("; ")))
        }
    }
}

fn faults(one: &Compared) -> Vec<String> {
    let mut faults = Vec::new();
    if one.divided {
        let share = percent(one.other_direction, one.one_direction);
        faults.push(format!(
            "{share:.0} % of connections of which only one direction is seen have the other one at {}",
            named(one)
        ));
    }
    if one.duplicate {
        let share = percent(one.seen_by_both, one.both_directions);
        faults.push(format!("{} sees {share:.0} % of the same connections, undeclared", named(one)));
    }
    faults
}

fn named(one: &Compared) -> String {
    format!("gateway {} ({})", one.gateway, one.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_other_gateway_is_named_with_what_to_do() {
        assert!(judge(&[]).is_none());
        let sound = Compared { gateway: 2, name: "b".to_owned(), both_directions: 100, ..Compared::default() };
        assert_eq!(judge(std::slice::from_ref(&sound)).unwrap().verdict, Verdict::Ok);
        let divided = Compared { one_direction: 100, other_direction: 38, divided: true, ..sound.clone() };
        let duplicate = Compared { gateway: 3, seen_by_both: 97, duplicate: true, ..sound.clone() };
        let check = judge(&[sound, divided, duplicate]).unwrap();
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.found.contains("38 % of connections") && check.found.contains("at gateway 2 (b)"), "{check:?}");
        assert!(check.found.contains("gateway 3 (b) sees 97 %"), "{check:?}");
        let to_do = check.to_do.unwrap();
        assert!(to_do.contains("both directions") && to_do.contains("share.mirror_group"), "{to_do}");
    }
}
