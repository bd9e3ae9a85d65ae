//! What stands in the routes. Pure.

use spand_proto::operator::{Check, Verdict};

use crate::apply::route::Survey;
use crate::config::ApplyMethod;

/// Judges what was found; `running` is whether an agent answers.
pub(super) fn judge(survey: &Survey, method: ApplyMethod, running: bool) -> Vec<Check> {
    let mut checks = vec![others(survey, method), left(survey, running)];
    if method == ApplyMethod::Route {
        checks.push(rules(survey));
    }
    checks
}

fn others(survey: &Survey, method: ApplyMethod) -> Check {
    const NAME: &str = "routes_of_others";
    let Some((prefix, window)) = survey.others.first() else {
        return Check::ok(NAME, "nobody else sets initial windows by routes");
    };
    let more = match survey.others.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let found = format!("someone else's route to {prefix} has initcwnd {window}{more}");
    match method {
        ApplyMethod::Route => {
            let to_do = "remove initcwnd from it (`ip route change`): below such a route ours stay away";
            Check::warn(NAME, found, to_do)
        }
        ApplyMethod::Bpf | ApplyMethod::DryRun => {
            let to_do = "remove initcwnd from it: it is what connections without advice, and those after an idle time, start with";
            Check::warn(NAME, found, to_do)
        }
    }
}

fn left(survey: &Survey, running: bool) -> Check {
    const NAME: &str = "routes_of_ours";
    if survey.ours > 0 && !running {
        let found = format!("{} routes of an agent are there, but no agent answers", survey.ours);
        return Check::fail(NAME, found, "spand-agent undo --run");
    }
    Check::ok(NAME, format!("{} in force", survey.ours))
}

fn rules(survey: &Survey) -> Check {
    const NAME: &str = "policy_routing";
    let families = match survey.plain_rules {
        (true, true) => return Check::ok(NAME, "the kernel's own rules choose the table"),
        (false, true) => "IPv4",
        (true, false) => "IPv6",
        (false, false) => "IPv4 and IPv6",
    };
    let found = format!("rules of someone else choose the table for {families}: no route of ours is set there");
    Check::to_do(NAME, Verdict::Warn, found, "use apply = \"bpf\", which needs no routes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_of_the_routes_has_its_check() {
        let calm = Survey { others: Vec::new(), ours: 3, plain_rules: (true, true) };
        let verdict = |survey: &Survey, method, running, name| {
            judge(survey, method, running).into_iter().find(|check| check.name == name).map(|check| check.verdict)
        };
        assert!(judge(&calm, ApplyMethod::Route, true).iter().all(|check| check.verdict == Verdict::Ok));
        assert_eq!(verdict(&calm, ApplyMethod::Route, false, "routes_of_ours"), Some(Verdict::Fail));
        let theirs = Survey { others: vec![("0.0.0.0/0".parse().unwrap(), 40)], ..calm.clone() };
        for method in [ApplyMethod::Route, ApplyMethod::Bpf, ApplyMethod::DryRun] {
            assert_eq!(verdict(&theirs, method, true, "routes_of_others"), Some(Verdict::Warn));
        }
        let ruled = Survey { plain_rules: (true, false), ..calm };
        assert_eq!(verdict(&ruled, ApplyMethod::Route, true, "policy_routing"), Some(Verdict::Warn));
        assert_eq!(verdict(&ruled, ApplyMethod::Bpf, true, "policy_routing"), None);
    }
}
