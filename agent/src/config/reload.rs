//! What of a configuration that was read again can come into force in a running agent.

use serde_json::Value;

use super::{Config, Policy, Route};

/// What a configuration that was read again comes to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reloaded {
    /// What is in force with it.
    pub(crate) config: Config,
    /// Keys whose new value is in force.
    pub(crate) in_force: Vec<String>,
    /// Keys that changed and wait for a restart.
    pub(crate) needs_restart: Vec<String>,
}

impl Config {
    /// Takes over what can change while the agent runs: how it decides. Everything else is named.
    pub(crate) fn reloaded(&self, new: &Self) -> Reloaded {
        let mut config = Self {
            mode: new.mode,
            start: new.start.clone(),
            destinations: new.destinations.clone(),
            // How long advice is held is a matter of the advice that is held already.
            policy: Policy { lifetime_s: self.policy.lifetime_s, ..new.policy.clone() },
            route: Route {
                burst_fraction: new.route.burst_fraction,
                burst_cap_segments: new.route.burst_cap_segments,
                ..self.route.clone()
            },
            ..self.clone()
        };
        config.holdout.fraction = new.holdout.fraction;
        config.bpf.control_fraction = new.bpf.control_fraction;
        let in_force = different(self, &config);
        let needs_restart = different(&config, new);
        Reloaded { config, in_force, needs_restart }
    }
}

/// The keys that two configurations do not have alike, in the order of their names.
fn different(one: &Config, other: &Config) -> Vec<String> {
    let values = [one, other].map(|config| serde_json::to_value(config).unwrap_or_default());
    let [one, other] = &values;
    let mut keys = Vec::new();
    for (name, value) in members(one).chain(members(other)) {
        if value.is_object() {
            let of = |config: &Value, key: &str| config.get(name).and_then(|section| section.get(key)).cloned();
            let inner = members(value).map(|(key, _)| key.as_str());
            keys.extend(inner.filter(|key| of(one, key) != of(other, key)).map(|key| format!("{name}.{key}")));
        } else if one.get(name) != other.get(name) {
            keys.push(name.clone());
        }
    }
    keys.sort();
    keys.dedup();
    keys
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text, Path::new("agent.toml")).unwrap()
    }

    #[test]
    fn how_it_decides_comes_into_force_and_everything_else_is_named() {
        let old = config("apply = \"bpf\"\n[bpf]\nname = \"one\"");
        let new = config(
            "apply = \"route\"\nmode = \"observe\"\nstate_dir = \"/srv/a\"\n[gateway]\nurl = \"http://[::1]:1\"\n\
             [policy]\ncap_segments = 20\nlifetime_s = 30\n[destinations]\nexclude = [\"192.0.2.0/24\"]\n\
             caps = { \"10.0.0.0/8\" = 9 }\n[start]\ngrowth = \"dbc\"\n[[start.for]]\nprefixes = [\"10.0.0.0/8\"]\ngrowth = \"standard\"\n[holdout]\nfraction = 0.5\nseed = 3\n[bpf]\ncontrol_fraction = 0.5\n\
             bbr = \"window\"\ncgroup = \"/srv/c\"\n[tls]\nkey = \"k\"\n[process]\nuser = \"u\"\n[log]\nfilter = \"debug\"",
        );
        let Reloaded { config: after, in_force, needs_restart } = old.reloaded(&new);
        let decides = [
            "bpf.control_fraction",
            "destinations.caps",
            "destinations.exclude",
            "holdout.fraction",
            "mode",
            "policy.cap_segments",
            "start.for",
            "start.growth",
        ];
        assert_eq!(in_force, decides);
        let rest = [
            "apply",
            "bpf.bbr",
            "bpf.cgroup",
            "bpf.name",
            "gateway.url",
            "holdout.seed",
            "log.filter",
            "policy.lifetime_s",
            "process.user",
            "state_dir",
            "tls.key",
        ];
        assert_eq!(needs_restart, rest);
        assert_eq!((after.mode, &after.destinations), (new.mode, &new.destinations));
        assert_eq!((after.apply, &after.gateway, &after.bpf.name), (old.apply, &old.gateway, &old.bpf.name));
        assert_eq!(after.policy.lifetime_s, old.policy.lifetime_s);
        let several = config("[gateway]\nurls = [\"http://[::1]:1\", \"http://[::1]:2\"]");
        assert_eq!(config("").reloaded(&several).needs_restart, ["gateway.url", "gateway.urls"]);
        // Named again for as long as it waits.
        let again = after.reloaded(&new);
        assert_eq!((again.in_force, again.needs_restart), (Vec::new(), rest.map(str::to_owned).to_vec()));
        let back = after.reloaded(&old);
        assert!(back.needs_restart.is_empty() && back.in_force == decides, "{back:?}");
    }
}
