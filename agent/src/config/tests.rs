//! The example is the truth about the options: it must parse, equal the defaults and hold every key.

use std::collections::BTreeSet;
use std::fs;
use std::num::{NonZeroU32, NonZeroU64};

use spand_proto::growth::Growth;
use spand_proto::start::{Shape, StartPolicy};
use strum::VariantArray;

use super::*;
use crate::policy::Growths;

const EXAMPLE: &str = include_str!("../../../docs/reference/agent.example.toml");

fn fault(text: &str) -> String {
    Config::parse(text, Path::new("agent.toml")).unwrap_err().to_string()
}

/// The example with its optional keys (`# key = value`) switched on.
fn example_with_optional_keys() -> String {
    let is_assignment = |line: &str| {
        line.split_once(" = ").is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
    };
    let optional = |line: &str| line.strip_prefix("# ").filter(|rest| is_assignment(rest)).map(str::to_owned);
    EXAMPLE.lines().map(|line| optional(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

fn keys(table: &toml::Table) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    for (name, value) in table {
        match value.as_table() {
            Some(section) => keys.extend(section.keys().map(|key| format!("{name}.{key}"))),
            None => {
                keys.insert(name.clone());
            }
        }
    }
    keys
}

#[test]
fn the_example_holds_the_defaults() {
    assert_eq!(Config::parse(EXAMPLE, Path::new("example")).unwrap(), Config::default());
    assert_eq!(Config::parse("", Path::new("empty")).unwrap(), Config::default());
}

#[test]
fn the_example_holds_every_key() {
    let tls = Tls {
        certificate: Some("tls/agent.pem".into()),
        key: Some("tls/agent.key".into()),
        ca: Some("tls/ca.pem".into()),
        name: Some("gateway.example.org".to_owned()),
    };
    let policy = Policy { service_bytes: NonZeroU64::new(100_000), ..Policy::default() };
    let process = Process { user: Some("spand-agent".to_owned()), ..Process::default() };
    let urls = vec!["https://gw-1.example.org:7400".to_owned(), "https://gw-2.example.org:7400".to_owned()];
    let gateway = Gateway { url: None, urls: Some(urls), ..Gateway::default() };
    let metrics = Metrics { listen: Some("127.0.0.1:7481".parse().unwrap()) };
    let socket = Some("/run/spand-agent/applications.sock".into());
    let applications = Applications { socket, ..Applications::default() };
    let full = Config { gateway, tls, policy, applications, metrics, process, ..Config::default() };
    let text = example_with_optional_keys();
    // Gateways are named in one of two ways.
    assert_eq!(text.matches("\nurl = ").count(), 1);
    let text = text.replace("\nurl = ", "\n# url = ");
    assert_eq!(Config::parse(&text, Path::new("example")).unwrap(), full);
    let every = keys(&toml::Table::try_from(full).unwrap());
    assert_eq!(keys(&toml::from_str(&text).unwrap()), every);
    assert!(every.len() > 35, "{every:?}");
}

#[test]
fn what_is_printed_as_in_force_is_a_configuration_again() {
    let start = "[start]\ngrowth = \"dbc\"\n[[start.for]]\nservice = \"192.0.2.2:443\"\ngrowth = \"burst\"\nburst_f = 16\n\
                 [[start.for]]\nprefixes = [\"::/0\", \"192.0.2.0/24\"]\ngrowth = \"dbc\"\ndbc_dmax = 3\n";
    let text = "apply = \"route\"\n[destinations]\nexclude = [\"10.1.2.3/8\"]\ncaps = { \"192.0.2.0/24\" = 20 }";
    let text = text.replace("192.0.2.0/24", "::ffff:192.0.2.0/120");
    let config = Config::parse(&(text + "\n" + start), Path::new("x")).unwrap();
    let printed = toml::to_string(&config).unwrap();
    assert!(printed.contains("10.0.0.0/8") && printed.contains("192.0.2.0/24"), "{printed}");
    assert_eq!(Config::parse(&printed, Path::new("x")).unwrap(), config);
}

#[test]
fn a_fault_in_the_text_names_file_line_and_key() {
    for (text, expected) in [
        ("mood = \"careful\"", "agent.toml, line 1: unknown field `mood`"),
        ("\n[route]\nburst = 3", "agent.toml, line 3: unknown field `burst`"),
        (
            "apply = \"xdp\"",
            "agent.toml, line 1: apply: unknown value `xdp`, expected one of `dry_run`, `route`, `bpf`",
        ),
        ("mode = \"bold\"", "line 1: mode: unknown value `bold`"),
        ("[bpf]\nbbr = \"seed\"", "line 2: bpf.bbr: unknown value `seed`, expected `window` or `full`"),
        (
            "[policy]\ncap_segments = 0",
            "line 2: policy.cap_segments: invalid value: integer `0`, expected a whole number above 0",
        ),
        ("[policy]\nfraction = 1.5", "line 2: policy.fraction: 1.5 is not a fraction"),
        ("[destinations]\nexclude = [\"10.0.0.0/40\"]", "line 2: destinations.exclude: `10.0.0.0/40` is not a network"),
        (
            "[destinations.caps]\n\"10.0.0.0/8\" = 20\n\"::ffff:10.0.0.0/104\" = 30",
            "destinations.caps: `10.0.0.0/8` is named twice",
        ),
        (
            "[start]\ngrowth = \"fast\"",
            "line 2: start.growth: unknown value `fast`, expected one of `standard`, `dbc`, `burst`",
        ),
        (
            "[start]\ndbc_dmax = 0",
            "line 2: start.dbc_dmax: invalid value: integer `0`, expected a whole number above 0",
        ),
        ("[start]\ndbc_dmax = 1025", "agent.toml, line 2: start.dbc_dmax is 1025: give 1 to 1024"),
        ("[start]\n\nburst_f = 3", "agent.toml, line 3: start.burst_f is 3: give 4 to 16"),
        ("[start]\nburst_f = 17", "agent.toml, line 2: start.burst_f is 17: give 4 to 16"),
        ("[start]\nburst_f = 7", "agent.toml, line 2: start.burst_f is 7: below 8 it is for mode `paper` only"),
        ("mode = \"observe\"\n[start]\nburst_f = 4", "agent.toml, line 3: start.burst_f is 4: below 8"),
        ("[[start.for]]\nprefixes = [\"10.0.0.0/8\"]\nburst = 8", "line 3: unknown field `burst`"),
        ("[[start.for]]\nprefixes = [\"10.0.0.0/40\"]", "line 2: start.for.prefixes: `10.0.0.0/40` is not a network"),
        (
            "[[start.for]]\nprefixes = [\"10.0.0.0/8\"]\ngrowth = \"dbc\"\n[[start.for]]\ngrowth = \"burst\"\nprefixes = \
             [\"::/0\",\n\"::ffff:10.0.0.0/104\"]",
            "agent.toml, line 7: start.for: `10.0.0.0/8` is named twice: leave one out",
        ),
        (
            "[[start.for]]\nservice = \"192.0.2.2:443\"\ngrowth = \"dbc\"\n[[start.for]]\nservice = \
             \"[::ffff:192.0.2.2]:443\"\ngrowth = \"burst\"",
            "agent.toml, line 5: start.for: the service `[::ffff:192.0.2.2]:443` is named twice",
        ),
        ("[[start.for]]\ngrowth = \"dbc\"", "agent.toml, line 1: start.for says not for which connections"),
        (
            "\n[[start.for]]\nprefixes = [\"::/0\"]",
            "agent.toml, line 2: start.for changes nothing: give shape or growth",
        ),
        (
            "[start]\nshape = \"leap\"",
            "line 2: start.shape: unknown value `leap`, expected one of `paced`, `threshold`, `jump`, `measured`, `own_threshold`, `own_paced`, `rfc9959`",
        ),
        (
            "[start]\nshape = \"measured\"",
            "agent.toml, line 2: start.shape `measured` is for comparison: it runs in mode `paper` only",
        ),
        (
            "mode = \"observe\"\n[[start.for]]\nprefixes = [\"::/0\"]\nshape = \"own_paced\"",
            "agent.toml, line 4: start.for.shape `own_paced` is for comparison: it runs in mode `paper` only",
        ),
        (
            "[[start.for]]\nservice = \"192.0.2.2:443\"\nshape = \"jump\"",
            "agent.toml, line 3: start.for gives a shape for a service: shapes are chosen by prefixes",
        ),
        (
            "[[start.for]]\nprefixes = [\"::/0\"]\nservice = \"192.0.2.2:443\"\ngrowth = \"dbc\"",
            "line 1: start.for gives prefixes and a service",
        ),
        (
            "[[start.for]]\nservice = \"0.0.0.0:443\"\ngrowth = \"dbc\"",
            "line 2: start.for.service `0.0.0.0:443` is no service",
        ),
        (
            "[[start.for]]\nservice = \"192.0.2.2:0\"\ngrowth = \"dbc\"",
            "line 2: start.for.service `192.0.2.2:0` is no service",
        ),
        (
            "[[start.for]]\nservice = \"web-1:443\"\ngrowth = \"dbc\"",
            "line 2: start.for.service: `web-1:443` is no address with a port",
        ),
        (
            "[[start.for]]\nprefixes = [\"::/0\"]\ngrowth = \"burst\"\ndbc_dmax = 2",
            "line 1: start.for gives dbc_dmax without growth = \"dbc\"",
        ),
        (
            "[[start.for]]\nprefixes = [\"::/0\"]\ngrowth = \"dbc\"\nburst_f = 8",
            "line 1: start.for gives burst_f without growth = \"burst\"",
        ),
        (
            "[[start.for]]\nprefixes = [\"::/0\"]\ngrowth = \"burst\"\nburst_f = 5",
            "line 4: start.for.burst_f is 5: below 8 it is for mode `paper` only",
        ),
        ("addresses = [\"web-1\"]", "line 1: addresses: `web-1` is no IP address"),
        ("[gateway\n", "line 1: "),
    ] {
        let fault = fault(text);
        assert!(fault.contains(expected), "{fault}");
        assert_eq!(fault.lines().count(), 1, "{fault}");
    }
}

#[test]
fn values_that_do_not_go_together_are_named() {
    for (text, expected) in [
        ("[gateway]\nurl = \"web-1:7400\"", "gateway.url `web-1:7400` is no address of a gateway"),
        ("[gateway]\nurl = \"ftp://web-1\"", "write https://HOST:PORT"),
        ("[gateway]\nurl = \"https://web-1\"", "begins with https: name tls.certificate and tls.key"),
        (
            "[gateway]\nurl = \"http://192.0.2.1:7400\"",
            "is another machine without TLS: write https, or say gateway.plain_text",
        ),
        ("[gateway]\nurl = \"http://web-1:7400\"", "is another machine without TLS"),
        (
            "[gateway]\nurl = \"unix:gateway.sock\"",
            "gateway.url `unix:gateway.sock` names no socket from the root: write unix:/",
        ),
        ("[gateway]\nurls = [\"unix:/a\", \"unix:///a\"]", "gateway.urls names `unix:///a` twice: leave one out"),
        ("[gateway]\nurl = \"\"", "gateway.url `` is no address of a gateway"),
        (
            "[gateway]\nurl = \"http://[::1]\"\nurls = [\"http://[::1]:2\"]",
            "gateway.url and gateway.urls are both given: keep",
        ),
        ("[gateway]\nurls = []", "gateway.urls names no gateway: write ["),
        (
            "[gateway]\nurls = [\"http://[::1]\", \"http://[0:0::1]:80/\"]",
            "gateway.urls names `http://[0:0::1]:80/` twice: leave one out",
        ),
        (
            "[gateway]\nurls = [\"http://[::1]\", \"http://192.0.2.1:7400\"]",
            "gateway.urls `http://192.0.2.1:7400` is another machine without TLS: write https, or say gateway.plain_text",
        ),
        (
            "[gateway]\nurls = [\"http://[::1]\", \"https://web-1\"]",
            "gateway.urls begins with https: name tls.certificate",
        ),
        ("[gateway]\nurls = [\"web-1:7400\"]", "gateway.urls `web-1:7400` is no address of a gateway"),
        ("[gateway]\nretry_min_ms = 2000\nretry_max_ms = 1000", "swap them"),
        ("[holdout]\nfraction = 1.5", "holdout.fraction is 1.5"),
        ("[holdout]\nfraction = nan", "holdout.fraction is NaN"),
        ("[policy]\nrtt_ratio_min = 1.5", "must hold 1 between them"),
        ("[policy]\nrtt_ratio_max = inf", "must hold 1 between them"),
        ("[route]\nbatch_ms = 9223372036854775807", "route.batch_ms is longer than a day"),
        ("[policy]\nlifetime_s = 86401", "policy.lifetime_s is longer than a day"),
        ("[log]\nfilter = \"loud\"", "log.filter `loud` is no level: write error, warn, info"),
        ("state_dir = \"\"", "state_dir is empty: name a folder"),
        ("[log]\nfilter = \"spand=loud\"", "log.filter `spand=loud` is no log filter"),
        ("[route]\nburst_cap_segments = 70000", "route.burst_cap_segments is 70000: give 1 to 65535"),
        ("addresses = [\"127.0.0.1\"]", "addresses: 127.0.0.1 is not an address that others reach this host by"),
    ] {
        let fault = fault(text);
        assert!(fault.contains(expected), "{fault}");
    }
}

#[test]
fn the_rules_of_slow_start_are_those_of_each_line_and_too_many_are_refused() {
    let text = "mode = \"paper\"\n[start]\ngrowth = \"burst\"\nburst_f = 4\ndbc_dmax = 3\n[[start.for]]\nprefixes = \
                [\"192.0.2.7/24\"]\ngrowth = \"dbc\"\n[[start.for]]\nservice = \"[::ffff:192.0.2.2]:443\"\ngrowth = \"burst\"\nburst_f = 16";
    let growths = Config::parse(text, Path::new("x")).unwrap().policy().growths;
    let number = |number| NonZeroU32::new(number).unwrap();
    let expected = Growths {
        by_default: Growth::Burst { f: number(4) },
        prefixes: [("192.0.2.0/24".parse().unwrap(), Growth::Dbc { dmax: number(3) })].into(),
        services: [("192.0.2.2:443".parse().unwrap(), Growth::Burst { f: number(16) })].into(),
    };
    assert_eq!(growths, expected);
    assert!(Config::default().policy().growths.is_standard());

    let of = |count: usize| {
        let prefixes: Vec<String> = (0..count).map(|n| format!("\"10.{}.{}.0/24\"", n / 256, n % 256)).collect();
        let text = format!("[[start.for]]\ngrowth = \"dbc\"\nprefixes = [{}]", prefixes.join(", "));
        Config::parse(&text, Path::new("x")).map(|_| ()).map_err(|fault| fault.to_string())
    };
    assert_eq!(of(MOST_NAMED), Ok(()));
    assert!(of(MOST_NAMED + 1).unwrap_err().contains("line 1: start.for names more than 1024 prefixes or services"));
}

#[test]
fn plain_text_to_another_machine_needs_an_option() {
    for text in [
        "[gateway]\nurl = \"http://localhost:7400\"",
        "[gateway]\nurl = \"unix:/srv/gateway.sock\"",
        "[gateway]\nurl = \"http://[::1]:7400\"",
        "[gateway]\nurl = \"http://192.0.2.1:7400\"\nplain_text = true",
        "[gateway]\nurl = \"https://web-1\"\n[tls]\ncertificate = \"a\"\nkey = \"b\"\nca = \"c\"",
    ] {
        Config::parse(text, Path::new("agent.toml")).unwrap();
    }
}

#[test]
fn several_gateways_are_bounded_and_what_is_printed_of_them_is_a_configuration_again() {
    let of = |count: usize| {
        let urls: Vec<String> = (1..=count).map(|port| format!("\"http://[::1]:{port}\"")).collect();
        Config::parse(&format!("[gateway]\nurls = [{}]", urls.join(", ")), Path::new("x"))
    };
    let most = of(gateways::MOST_GATEWAYS).unwrap();
    assert_eq!(most.gateway.list().len(), 32);
    let printed = toml::to_string(&most).unwrap();
    assert!(!printed.contains("url ="), "{printed}");
    assert_eq!(Config::parse(&printed, Path::new("x")).unwrap(), most);
    assert!(of(33).unwrap_err().to_string().contains("gateway.urls names 33 gateways: give at most 32"));
    for (text, expected) in [
        (
            "[gateway]\nurls = [[\"https://a\"], [\"https://b\"]]",
            "line 2: gateway.urls: gateways have no groups any more: write one list in order of preference, [\"https://a\", \"https://b\"]",
        ),
        ("[gateway]\nurls = \"https://a\"", "line 2: gateway.urls: write gateways in order of preference, such as ["),
        ("[gateway]\nurls = [7400]", "line 2: gateway.urls: write gateways in order of preference, such as ["),
    ] {
        let fault = fault(text);
        assert!(fault.contains(expected) && fault.lines().count() == 1, "{fault}");
    }
    let none = Config::parse("[gateway]\nplain_text = true", Path::new("x")).unwrap();
    assert_eq!(none.gateway.list(), ["unix:/run/spand/gateway.sock"]);
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    for &mode in Mode::VARIANTS {
        let config = Config { mode, ..Config::default() };
        assert_eq!(config.policy().start, StartPolicy::of(mode));
    }
}

#[test]
fn an_unpaced_way_is_bounded_more_narrowly_except_in_paper_mode() {
    let of = |mode| Config { mode, apply: ApplyMethod::Route, ..Config::default() }.policy().start;
    assert_eq!(of(Mode::Careful).fraction.map(f64::from), Some(0.5));
    assert_eq!(of(Mode::Careful).cap.map(|cap| cap.0), Some(32));
    assert_eq!(of(Mode::Paper), StartPolicy::PAPER);
}

#[test]
fn paths_are_relative_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agent.toml");
    fs::write(&path, "state_dir = \"state\"\n[tls]\nkey = \"tls/agent.key\"").unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(config.state_dir, folder.path().join("state"));
    assert_eq!(config.tls.key, Some(folder.path().join("tls/agent.key")));
    assert!(matches!(Config::load(&folder.path().join("none")), Err(ConfigError::Unreadable { .. })));
}

#[test]
fn old_names_work_and_each_is_one_warning_that_names_the_new_one() {
    let old = "[gateway]\nsilence_s = 7\n[holdout]\nshare = 0.2\n[bpf]\ncontrol_share = 0.3\n";
    let new = "[gateway]\nidle_timeout_s = 7\n[holdout]\nfraction = 0.2\n[bpf]\ncontrol_fraction = 0.3\n";
    let [with_old, with_new] = [old, new].map(|text| Config::parse(text, Path::new("x")).unwrap());
    assert_eq!(Config { renamed: Vec::new(), ..with_old.clone() }, with_new);
    assert_ne!(with_new, Config::default());
    assert_eq!(with_old.renamed.len(), RENAMED.keys.len());
    for ((section, old, new), warning) in RENAMED.keys.iter().zip(&with_old.renamed) {
        assert!(warning.contains(&format!("{section}.{old} is now {section}.{new}")), "{warning}");
    }
    assert!(fault("[gateway]\nsilence_s = 7\nidle_timeout_s = 7\n").contains("duplicate field"));
}

#[test]
fn rule_is_another_name_of_shape_and_careful_resume_runs_in_every_mode() {
    for mode in ["observe", "careful", "paper"] {
        let text = format!(
            "mode = \"{mode}\"\napply = \"bpf\"\n[start]\nrule = \"rfc9959\"\n[[start.for]]\nprefixes = [\"192.0.2.0/24\"]\nrule = \"paced\"\n"
        );
        let config = Config::parse(&text, Path::new("agent.toml")).unwrap();
        let of = |network: &str| config.policy().start_to(network.parse().unwrap()).shape;
        assert_eq!((of("192.0.2.0/24"), of("198.51.100.0/24")), (Shape::Paced, Shape::CarefulResume), "{mode}");
        assert!(toml::to_string(&config).unwrap().contains("shape = \"rfc9959\""), "one name in output");
    }
    assert!(fault("[start]\nshape = \"paced\"\nrule = \"rfc9959\"\n").contains("start: duplicate field `shape`"));
}

#[test]
fn shapes_need_congestion_controls_of_ours() {
    let shapes = |text: &str| {
        let start = "[start]\nshape = \"threshold\"\nbuffer = true\n[[start.for]]\nprefixes = [\"192.0.2.0/24\"]\nshape = \"jump\"\n";
        let policy = Config::parse(&format!("{text}{start}"), Path::new("agent.toml")).unwrap().policy();
        let of = |network: &str| policy.start_to(network.parse().unwrap());
        assert!(of("192.0.2.0/24").buffered);
        (of("192.0.2.0/24").shape, of("198.51.100.0/24").shape)
    };
    assert_eq!(shapes("apply = \"bpf\"\n"), (Shape::Jump, Shape::Threshold));
    for other in ["", "apply = \"route\"\n"] {
        assert_eq!(shapes(other), (Shape::Paced, Shape::Paced), "{other}");
    }
}
