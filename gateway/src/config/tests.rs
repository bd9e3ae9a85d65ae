//! The example is the truth about the options: it must parse, equal the defaults and hold every key.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::num::NonZeroU16;
use std::path::PathBuf;

use spand_capture::{Cluster, ClusterKind, PfRingOptions};
use spand_core::config::Tunnels;
use spand_core::types::TunnelKind as EngineKind;
use spand_proto::operator::Failure;

use super::*;

const EXAMPLE: &str = include_str!("../../../docs/reference/gateway.example.toml");
const MANUAL: &str = include_str!("../../../docs/reference/configuration.md");

fn fault(text: &str) -> String {
    Config::parse(text, Path::new("gateway.toml")).unwrap_err().to_string()
}

/// The example with its optional keys (`# key = value`, no blank before the equals sign missing) switched on.
fn example_with_optional_keys() -> String {
    let optional = |line: &str| line.strip_prefix("# ").filter(|rest| is_assignment(rest)).map(str::to_owned);
    EXAMPLE.lines().map(|line| optional(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

fn is_assignment(line: &str) -> bool {
    line.split_once(" = ").is_some_and(|(key, _)| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

fn keys(table: &toml::Table) -> BTreeSet<String> {
    let section = |(name, value): (&String, &toml::Value)| {
        let name = name.clone();
        value.as_table().unwrap().keys().map(|key| format!("{name}.{key}")).collect::<Vec<_>>()
    };
    table.iter().flat_map(section).collect()
}

/// Every key there is: the defaults, and what is absent from them.
fn every_key() -> BTreeSet<String> {
    let full = Config {
        capture: Capture {
            pf_ring_library: Some(PathBuf::from("libpfring.so")),
            pf_ring_cluster: Some(1),
            ..Capture::default()
        },
        admin: Admin { passwords: Some(PathBuf::from("passwords")), ..Admin::default() },
        process: Process { user: Some("spand-gateway".to_owned()), ..Process::default() },
        tls: Tls {
            certificate: Some(PathBuf::from("tls/gateway.pem")),
            key: Some(PathBuf::from("tls/gateway.key")),
            ca: Some(PathBuf::from("tls/agents-ca.pem")),
            revoked: Some(PathBuf::from("tls/revoked.pem")),
        },
        traffic: Traffic { prefix_list: Some(PathBuf::from("routes.txt")), ..Traffic::default() },
        names: Names { list: Some(PathBuf::from("names.txt")), asn_database: Some(PathBuf::from("asn.mmdb")) },
        api: Api { grpc_listen: Some("127.0.0.1:7400".to_owned().try_into().unwrap()), ..Api::default() },
        share: Share {
            servers: vec!["tls://nats-1:4222".to_owned()],
            gateway: NonZeroU16::new(1),
            mirror_group: NonZeroU16::new(1),
            secret: Some(PathBuf::from("share.secret")),
            user: Some("gateway-1".to_owned()),
            password: Some(PathBuf::from("share.password")),
            credentials: Some(PathBuf::from("share.creds")),
            ca: Some(PathBuf::from("share-ca.pem")),
            certificate: Some(PathBuf::from("share.pem")),
            key: Some(PathBuf::from("share-key.pem")),
            replicas: NonZeroU16::new(3),
            ..Share::default()
        },
        ..Config::default()
    };
    keys(&toml::Table::try_from(full).unwrap())
}

#[test]
fn the_example_holds_the_defaults() {
    let example = Config::parse(EXAMPLE, Path::new("example")).unwrap();
    assert!(example.check_runnable().is_ok(), "the example names an interface");
    let capture = Capture { interfaces: Vec::new(), ..example.capture.clone() };
    assert_eq!(Config { capture, ..example }, Config::default());
}

#[test]
fn the_example_and_the_manual_hold_every_key() {
    let text = example_with_optional_keys();
    // It stands in place of two others.
    Config::parse(&text.replace("\ncredentials = ", "\n# credentials = "), Path::new("example")).unwrap();
    assert_eq!(keys(&toml::from_str(&text).unwrap()), every_key());
    for key in every_key() {
        assert!(MANUAL.contains(&format!("`{key}`")), "docs/reference/configuration.md does not name `{key}`");
    }
}

#[test]
fn agents_ask_at_the_socket_unless_the_file_names_a_port_alone() {
    let of = |text: &str| {
        let api = Config::parse(&format!("[api]\n{text}"), Path::new("x")).unwrap().api;
        (api.grpc_socket, api.grpc_listen.is_some())
    };
    let [default, other] = ["/run/spand/gateway.sock", "/srv/a.sock"].map(|path| Some(PathBuf::from(path)));
    let port = "grpc_listen = \"127.0.0.1:7400\"\n";
    assert_eq!(of(""), (default, false));
    assert_eq!(of(port), (None, true));
    assert_eq!(of(&format!("{port}grpc_socket = \"/srv/a.sock\"")), (other, true));
}

#[test]
fn what_is_printed_as_in_force_is_a_configuration_again() {
    let config = Config::parse("[traffic]\ninternal = [\"10.1.2.3/8\"]", Path::new("x")).unwrap();
    let printed = toml::to_string(&config).unwrap();
    assert!(printed.contains("10.0.0.0/8"), "{printed}");
    assert_eq!(Config::parse(&printed, Path::new("x")).unwrap(), config);
}

#[test]
fn a_fault_in_the_text_names_file_line_and_key() {
    for (text, expected) in [
        ("\n[capture]\nsnaplen = 3", "gateway.toml, line 3: unknown field `snaplen`"),
        ("[captures]\n", "gateway.toml, line 1: unknown field `captures`"),
        (
            "[limits]\nconnections = 0",
            "gateway.toml, line 2: limits.connections: invalid value: integer `0`, expected a whole number above 0",
        ),
        (
            "[limits]\nnetworks = \"many\"",
            "line 2: limits.networks: invalid type: string \"many\", expected a whole number above 0",
        ),
        ("[traffic]\n\ninternal = [\"10.0.0.0/33\"]", "line 3: traffic.internal: `10.0.0.0/33` is not a network"),
        ("[api]\ngrpc_listen = \"localhost\"", "line 2: api.grpc_listen: `localhost` is no address to listen on"),
        (
            "[estimate]\nrule = \"median\"",
            "line 2: estimate.rule: unknown value `median`, expected one of `spand`, `probe`, `robust`, `liss`, `iss`, `miss`, `cached`, `averaged`",
        ),
        (
            "[[traffic.tunnel]]\nkind = \"gue\"",
            "line 2: traffic.tunnel.kind: `gue` is no kind of tunnel: choose among gre, vxlan, geneve, gtp, ip_in_ip, tzsp",
        ),
        ("[[traffic.tunnel]]\nkind = \"gre\"", "line 1: traffic.tunnel: missing field `endpoints`"),
        ("[[traffic.tunnel]]\nendpoint = []", "line 2: unknown field `endpoint`"),
        (
            "[capture]\nbackend = \"dpdk\"",
            "line 2: capture.backend: unknown value `dpdk`, expected one of `auto`, `af_packet`, `libpcap`, `pf_ring`",
        ),
        ("[capture\n", "gateway.toml, line 1: "),
        ("[capture]\ninterfaces = \"eth0\"", "line 2: capture.interfaces: invalid type: string"),
    ] {
        let message = fault(text);
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        assert_eq!(message.lines().count(), 1, "{message:?}");
    }
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    for (text, expected) in [
        ("[api]\ngrpc_listen = \"127.0.0.1:7480\"", "same port"),
        ("[api]\ngrpc_listen = \"127.0.0.1:7400\"\nhttp_listen = \"0.0.0.0:7400\"\n[admin]\nopen = true", "same port"),
        ("[api]\ngrpc_socket = \"\"", "api.grpc_socket is empty: name a file, or leave it out"),
        ("[capture]\ninterfaces = [\"a\", \"a\"]", "names a twice"),
        ("[capture]\nsnap_length_bytes = 60", "snap_length_bytes is 60"),
        ("[capture]\nqueue_packets = 511", "capture.queue_packets is 511: choose at least 512"),
        ("[capture]\nbuffer_mib = 4096", "buffer_mib is 4096"),
        ("[estimate]\ncompare = [\"liss\", \"iss\", \"liss\"]", "estimate.compare names `liss`: it is there twice"),
        ("[estimate]\ncompare = [\"robust\"]", "estimate.compare names `robust`: it is estimate.rule"),
        ("[estimate]\nchange = 0.0", "estimate.change is 0"),
        ("[estimate]\nchange = nan", "estimate.change is NaN"),
        ("[[traffic.tunnel]]\nkind = \"gtp\"\nendpoints = []", "traffic.tunnel of kind gtp names no endpoints"),
        ("[publish]\nrenewal_s = 60", "renewal_s 60 is not shorter"),
        ("[limits]\nidle_established_s = 40000000", "limits.idle_established_s is longer than a year"),
        ("[tls]\nkey = \"a\"", "tls.certificate and tls.key go together"),
        ("[tls]\nca = \"a\"", "the gateway has nothing to show them"),
        (
            "[tls]\nkey = \"a\"\ncertificate = \"b\"\nrevoked = \"c\"",
            "tls.revoked is a list of the authority in tls.ca",
        ),
        (
            "[tls]\nkey = \"a\"\ncertificate = \"b\"\nca = \"c\"\n[agents]\nplain_text = true",
            "agents.plain_text is on although",
        ),
        ("[api]\ngrpc_listen = \"192.0.2.1:7400\"", "api.grpc_listen 192.0.2.1:7400 is reached by other machines"),
        ("[api]\ngrpc_listen = \"[::]:7400\"", "or say agents.plain_text = true where that network is trusted"),
        ("[admin]\ntls = true", "admin.tls is on without a certificate"),
        ("[admin]\nopen = true\npasswords = \"p\"", "admin.open lets everyone in although"),
        ("[api]\nhttp_listen = \"192.0.2.1:7480\"", "nobody has to prove anything there: name admin.passwords"),
        (
            "[api]\nhttp_listen = \"0.0.0.0:7480\"\n[admin]\npasswords = \"p\"",
            "passwords that others on the way can read",
        ),
        ("[agents]\nidentity = \"certificate\"", "but agents show none: name tls.ca"),
        (
            "[agents.addresses]\n\"web-1\" = [\"192.0.2.0/24\"]",
            "agents.addresses gives addresses to the hosts of certificates",
        ),
        ("[log]\nfilter = \"loud\"", "log.filter `loud` is no level"),
        ("[log]\nfilter = \"spand=loud\"", "log.filter `spand=loud`"),
        ("[store]\ndirectory = \"\"", "store.directory is empty"),
    ] {
        let message = fault(text);
        assert!(message.contains(expected), "{message:?} lacks {expected:?}");
    }
    for text in [
        "[api]\ngrpc_listen = \"192.0.2.1:7400\"\n[agents]\nplain_text = true",
        "[api]\ngrpc_listen = \"[::]:7400\"\n[tls]\nkey = \"a\"\ncertificate = \"b\"\nca = \"c\"",
        "[api]\ngrpc_listen = \"127.9.9.9:7400\"",
        "[api]\nhttp_listen = \"0.0.0.0:7480\"\n[admin]\nopen = true",
        "[api]\nhttp_listen = \"0.0.0.0:7480\"\n[admin]\npasswords = \"p\"\nplain_text = true",
        "[tls]\nkey = \"a\"\ncertificate = \"b\"\n[admin]\npasswords = \"p\"\ntls = true",
    ] {
        Config::parse(text, Path::new("gateway.toml")).unwrap();
    }
    assert!(Config::default().check_runnable().unwrap_err().contains("capture.interfaces"));
}

/// An entry of `traffic.tunnel` between these prefixes.
fn tunnel(endpoints: &[String]) -> String {
    format!("[[traffic.tunnel]]\nkind = \"vxlan\"\nendpoints = {endpoints:?}\n")
}

#[test]
fn tunnels_are_looked_into_between_named_endpoints_alone() {
    let in_force = |text: &str| {
        let config = Config::parse(text, Path::new("x")).unwrap();
        config.engine(EngineOptions::default()).unwrap().tunnels
    };
    let prefix = |text: &str| text.parse().unwrap();
    assert_eq!(in_force(""), Tunnels::NONE);
    let text = "[traffic]\ntunnel = [{ kind = \"vxlan\", endpoints = [\"192.0.2.0/24\", \"2001:db8::/64\"] }, \
                { kind = \"ip_in_ip\", endpoints = [\"198.51.100.1/32\"] }]";
    let expected = Tunnels::NONE
        .between(EngineKind::Vxlan, &[prefix("192.0.2.0/24"), prefix("2001:db8::/64")])
        .between(EngineKind::IpInIp, &[prefix("198.51.100.1/32")]);
    assert_eq!(in_force(text), expected);
    let config = Config::parse(text, Path::new("x")).unwrap();
    let printed = toml::to_string(&config).unwrap();
    assert_eq!(Config::parse(&printed, Path::new("x")).unwrap(), config, "{printed}");
    let on_ports = "[traffic]\ntunnel = [{ kind = \"vxlan\", port = 8472, endpoints = [\"192.0.2.0/24\"] }, \
                    { kind = \"tzsp\", port = 37008, endpoints = [\"192.0.2.0/24\"] }]";
    let expected = Tunnels::NONE
        .between((EngineKind::Vxlan, 8472), &[prefix("192.0.2.0/24")])
        .between(EngineKind::Tzsp, &[prefix("192.0.2.0/24")]);
    assert_eq!(in_force(on_ports), expected);
    let twice = fault(&on_ports.replace("37008", "8472"));
    assert!(twice.contains("UDP port 8472 for vxlan and for tzsp: a port is one kind's"), "{twice}");
    assert!(fault(&on_ports.replace("37008", "0")).contains("port"));
    let one = ["192.0.2.0/24".to_owned()];
    assert!(fault(&tunnel(&one).repeat(33)).contains("traffic.tunnel has 33 entries: at most 32"));
    let many: Vec<String> = (0..257).map(|n| format!("10.0.{}.{}/32", n / 256, n % 256)).collect();
    assert!(fault(&tunnel(&many)).contains("traffic.tunnel of kind vxlan names 257 endpoints: at most 256"));
    in_force(&(tunnel(&one).repeat(31) + &tunnel(&many[1..])));
}

#[test]
fn the_option_that_took_tunnels_of_anyone_is_refused_with_what_to_write_instead() {
    let message = fault("[traffic]\ntunnels = [\"vxlan\", \"gre\", \"gre\"]\nread_window_option = true");
    let line =
        "tunnel = [{ kind = \"gre\", endpoints = [\"PREFIX\"] }, { kind = \"vxlan\", endpoints = [\"PREFIX\"] }]";
    assert!(message.contains(line), "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    let written = |prefix: &str| format!("[traffic]\n{}\nread_window_option = true", line.replace("PREFIX", prefix));
    Config::parse(&written("192.0.2.0/24"), Path::new("x")).unwrap();
    assert!(fault(&written("PREFIX")).contains("`PREFIX` is not a network"), "as proposed it lets nobody in");
    assert!(fault("[traffic]\ntunnels = []").contains("remove the line"));
    let failure = Failure::from(Config::parse("[traffic]\ntunnels = []", Path::new("x")).unwrap_err());
    assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
}

#[test]
fn endpoints_that_are_anyone_s_are_warned_of() {
    let wide = |endpoints: &[&str]| {
        let endpoints: Vec<String> = endpoints.iter().map(|&prefix| prefix.to_owned()).collect();
        Config::parse(&tunnel(&endpoints), Path::new("x")).unwrap().traffic.wide_tunnels()
    };
    for sound in [&["10.0.0.0/8", "192.0.2.1/32"][..], &["2001:db8::/32"], &["fd00::/8"], &["fe80::/10"], &["fc00::/7"]]
    {
        assert_eq!(wide(sound), Vec::<String>::new(), "{sound:?}");
    }
    for anyone in
        [&["0.0.0.0/0"][..], &["::/0"], &["0.0.0.0/1", "128.0.0.0/1"], &["2000::/3"], &["10.0.0.0/8", "11.0.0.0/8"]]
    {
        let warnings = wide(anyone);
        assert!(
            warnings.len() == 1 && warnings[0].contains("traffic.tunnel of kind vxlan"),
            "{anyone:?}: {warnings:?}"
        );
    }
}

#[test]
fn paths_start_at_the_folder_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.toml");
    let text = "[capture]\npf_ring_library = \"lib/libpfring.so\"\npf_ring_cluster = 7\n\
                [traffic]\nprefix_list = \"routes.txt\"\n[store]\ndirectory = \"state\"";
    fs::write(&path, text).unwrap();
    fs::write(folder.path().join("routes.txt"), "# table\n198.51.100.0/22 via 192.0.2.1\n\n2001:db8::/32\n").unwrap();
    let config = Config::load(&path).unwrap();
    assert_eq!(config.store.directory, folder.path().join("state"));
    let cluster = Some(Cluster { id: 7, kind: ClusterKind::TwoTuple });
    let library = folder.path().join("lib/libpfring.so");
    assert_eq!(config.capture.pf_ring(), PfRingOptions { library, cluster });
    assert_eq!(Config::default().capture.pf_ring(), PfRingOptions::default(), "a name, no path");
    let engine = config.engine(EngineOptions::default()).unwrap();
    assert_eq!(engine.prefixes, vec!["198.51.100.0/22".parse().unwrap(), "2001:db8::/32".parse().unwrap()]);
}

#[test]
fn an_engine_keeps_senders_under_way_where_a_rule_looks_at_them() {
    let kept = |keys: &str| {
        let config: Config = toml::from_str(&format!("[estimate]\n{keys}")).unwrap();
        config.engine(EngineOptions::default()).unwrap().openings.is_some()
    };
    assert!(kept("rule = 'iss'") && kept("compare = ['spand', 'averaged']"));
    assert!(!kept("") && !kept("rule = 'spand'\ncompare = ['robust']"));
}

#[test]
fn a_bad_prefix_list_names_its_line() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "192.0.2.0/24\nnonsense").unwrap();
    let message = load_prefix_list(file.path()).unwrap_err().to_string();
    assert!(message.contains("line 2: `nonsense` is not a network"), "{message}");
    assert!(matches!(load_prefix_list(Path::new("/nowhere")), Err(PrefixListError::Unreadable { .. })));
}

#[test]
fn engine_publisher_and_api_get_the_defaults_they_have() {
    let engine = Config::default().engine(EngineOptions::default()).unwrap();
    assert_eq!(format!("{engine:?}"), format!("{:?}", spand_core::config::EngineConfig::default()));
    assert_eq!(Config::default().publisher(), crate::publisher::PublisherConfig::default());
    assert_eq!(Config::default().api(), crate::api::ApiConfig::default());
}
