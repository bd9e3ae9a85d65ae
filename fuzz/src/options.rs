//! Configurations that are put together from the options that there are: a fuzzer of text hits on few keys, and on two that
//! contradict each other hardly ever.

use toml::{Table, Value};

/// The options of a program: section, which is empty at the top, and key.
#[derive(Debug)]
pub struct Options(Vec<(String, String)>);

/// What options are set to.
const VALUES: &str = r#"v = [
    0, 1, 2, 3, 10, 64, 65, 117, 118, 1000, 1001, 2048, 4097, 65536, 100000000, 4294967295, 9223372036854775807, -1,
    0.0, 0.1, 0.5, 1.0, 1.5, 10.0, 1e300, -0.5, nan, inf, true, false, 2026-11-22,
    "", "a", "eth1", "0", "auto", "none", "certificate", "peer_address", "af_packet", "libpcap", "pf_ring", "two_tuple",
    "five_tuple", "robust", "spand", "probe", "liss", "miss", "cached", "observe", "careful", "paper", "dry_run", "route", "bpf", "cubic", "reno",
    "cgroup", "text", "json", "info", "info,spand_gateway::run=debug", "=[", "tls/own.pem", "/own.pem", "../own",
    "127.0.0.1:0", "127.0.0.1:7400", "127.0.0.2:7400", "0.0.0.0:7400", "[::]:7400", "[::1]:7480", "192.0.2.1:7480", ":7480",
    "http://127.0.0.1:7400", "http://localhost:1", "http://[::1]", "http://192.0.2.1:7400", "https://gateway.example.org:7400",
    "unix:/run/spand/gateway.sock", "unix:a", "unix:", "ftp://127.0.0.1", "/v1", "gateway.example.org", "192.0.2.0/24", "2001:db8::/32", "0.0.0.0/0",
    [], ["eth1"], ["eth1", "eth1"], ["eth1", ""], ["eth1", "eth2"], ["a\u0000b"],
    ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17"],
    ["gre"], [{ kind = "gre", endpoints = ["192.0.2.0/24"] }], [{ kind = "vxlan", endpoints = [] }],
    [{ kind = "gtp", endpoints = ["0.0.0.0/0", "::/0"] }, { kind = "gtp", endpoints = ["192.0.2.1/32", "2001:db8::/32"] }], ["192.0.2.1"], ["192.0.2.1", "2001:db8::1"], ["127.0.0.1"],
    ["0.0.0.0"], ["224.0.0.1"], ["192.0.2.0/24", "2001:db8::/32"], ["192.0.2.1/24"], ["10.0.0.0/40"],
    {}, { "web-1.example.org" = ["192.0.2.0/24"] }, { "*" = ["::/0"] }, { "192.0.2.0/24" = 20 }, { "2001:db8::/48" = 0 },
]"#;

impl Options {
    /// Those that an example names, commented out or not.
    pub fn of(example: &str) -> Self {
        let mut section = String::new();
        let mut options = Vec::new();
        for line in example.lines() {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = name.to_owned();
                // A table of names is an option of the section above it.
                options.extend(name.split_once('.').map(|(section, key)| (section.to_owned(), key.to_owned())));
                continue;
            }
            let Some((key, _)) = line.trim_start_matches("# ").split_once(" = ") else { continue };
            if key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
                options.push((section.clone(), key.to_owned()));
            }
        }
        Self(options)
    }

    /// The text of a configuration in which every two bytes set an option.
    pub fn text(&self, bytes: &[u8]) -> String {
        let values: Table = VALUES.parse().expect("values");
        let values = values["v"].as_array().expect("a list of values");
        let mut config = Table::new();
        for pair in bytes.chunks_exact(2) {
            let (section, key) = &self.0[usize::from(pair[0]) % self.0.len()];
            let value = values[usize::from(pair[1]) % values.len()].clone();
            let table = match section.as_str() {
                "" => Some(&mut config),
                name => config.entry(name).or_insert_with(|| Value::Table(Table::new())).as_table_mut(),
            };
            // An option of the top may have taken a section's place.
            if let Some(table) = table {
                table.insert(key.clone(), value);
            }
        }
        toml::to_string(&config).expect("a table is a configuration")
    }
}
