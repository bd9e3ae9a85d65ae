//! What a gateway that runs found when it compared connections with others. Pure.

use spand_proto::operator::{Check, Verdict};

use super::judge::percent;
use super::shared::{Member, named};

/// One line for all other gateways; none where there is none.
pub(super) fn judge(members: &[Member]) -> Option<Check> {
    let faults: Vec<String> = members
        .iter()
        .filter(|member| member.duplicate)
        .map(|member| {
            let share = percent(member.seen_by_both, member.connections_compared);
            format!("{share:.0} % of the connections of {} are seen here too, undeclared", named(member))
        })
        .collect();
    match (members, faults.as_slice()) {
        ([], _) => None,
        ([one], []) => Some(Check::ok("gateways", format!("no packets are doubled by {}", named(one)))),
        (_, []) => Some(Check::ok("gateways", format!("no packets are doubled by {} others", members.len()))),
        (_, faults) => {
            let to_do = "give gateways that see the same packets one share.mirror_group";
            Some(Check::to_do("gateways", Verdict::Warn, faults.join("; "), to_do))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(gateway: u16, name: &str, seen_by_both: u64) -> Member {
        let (name, duplicate) = (name.to_owned(), seen_by_both > 20);
        Member { gateway, name, connections_compared: 100, seen_by_both, duplicate, ..Member::default() }
    }

    #[test]
    fn each_other_gateway_is_named_with_what_to_do() {
        assert!(judge(&[]).is_none());
        assert_eq!(judge(&[member(4, "d", 3)]).unwrap().verdict, Verdict::Ok);
        let check = judge(&[member(4, "d", 3), member(3, "c", 97)]).unwrap();
        assert_eq!(check.verdict, Verdict::Warn);
        assert!(check.found.contains("97 % of the connections of gateway 3 (c)"), "{check:?}");
        assert!(check.to_do.unwrap().contains("share.mirror_group"));
    }
}
