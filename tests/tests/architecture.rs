//! The rules of the house that the compiler does not see: who may depend on whom, and where `unsafe` may stand.
//!
//! `docs/explain/ARCHITECTURE.md` says why. A new dependency is entered here together with its reason in the commit.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// Direct dependencies that a crate may name, apart from those of its tests.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "spand-proto",
        &[
            "humantime",
            "ipnet",
            "prost",
            "rustls-pki-types",
            "serde",
            "strsim",
            "strum",
            "thiserror",
            "toml",
            "tonic",
            "tonic-prost",
            "tracing",
            "tracing-subscriber",
            "x509-parser",
        ],
    ),
    (
        "spand-confine",
        &["caps", "landlock", "libc", "nix", "seccompiler", "serde", "spand-proto", "strum", "thiserror", "tracing"],
    ),
    ("spand-core", &["arrayvec", "hashbrown", "ipnet", "prefix-trie", "serde", "smallvec", "spand-proto", "strum"]),
    ("spand-cells", &["ipnet", "serde", "siphasher", "smallvec", "spand-core", "spand-proto", "strum"]),
    ("spand-openings", &["spand-core", "spand-proto"]),
    ("spand-advice", &["ipnet", "quinn-proto", "serde", "serde_json", "spand-proto", "strum", "thiserror"]),
    ("spand-capture", &["flate2", "libc", "libloading", "nix", "pcap", "spand-proto", "strum", "thiserror", "zstd"]),
];

/// Crates that nobody may reach, whatever the path: (crate, what it must never contain, why).
const FORBIDDEN: &[(&str, &[&str], &str)] = &[
    (
        "spand-core",
        &["tokio", "tonic", "prost", "toml", "libc", "pcap", "sled", "spand-capture", "spand-gateway", "spand-agent"],
        "the core does no IO",
    ),
    ("spand-capture", &["tokio", "tonic", "sled", "spand-core"], "a packet source knows nothing of flows"),
    ("spand-gateway", &["spand-agent", "rtnetlink", "libbpf-rs"], "gateway and agent meet only in the contract"),
    (
        "spand-agent",
        &["spand-gateway", "spand-core", "spand-capture", "pcap", "sled"],
        "gateway and agent meet only in the contract",
    ),
    (
        "spand-advice",
        &["tokio", "tonic", "prost", "spand-agent", "spand-core", "spand-gateway"],
        "applications link it, whatever runtime they have",
    ),
    (
        "spand-confine",
        &["spand-core", "spand-capture", "spand-gateway", "spand-agent", "tokio"],
        "which privileges are dropped does not depend on who drops them",
    ),
    (
        "spand-cells",
        &["tokio", "async-nats", "sled", "spand-capture", "spand-gateway", "spand-agent"],
        "tests and replays of the engine share without a runtime",
    ),
    (
        "spand-share",
        &["spand-capture", "spand-gateway", "spand-agent", "sled", "tonic"],
        "what gateways share depends on no gateway's API or store",
    ),
    (
        "spand-proto",
        &["spand-core", "spand-capture", "spand-gateway", "spand-agent", "pcap", "sled"],
        "the contract stands on its own",
    ),
];

/// Outside crates that belong to one crate of ours alone, so that they can be replaced there.
const OWNED: &[(&str, &str)] = &[
    ("async-nats", "spand-share"),
    ("sled", "spand-gateway"),
    ("pcap", "spand-capture"),
    ("rtnetlink", "spand-agent"),
    ("caps", "spand-confine"),
    ("landlock", "spand-confine"),
    ("seccompiler", "spand-confine"),
    ("plotters", "spand-tests"),
];

/// Files and folders of `gateway/core/src`: none imports what stands to its right. The tests of each are free.
const CORE_ORDER: [&str; 17] = [
    "mem", "hash", "recency", "types", "opening", "counters", "config", "wire", "service", "flow", "window",
    "estimate", "networks", "shard", "event", "engine", "fuzzing",
];

/// The same for those of `gateway/core/src/flow`.
const FLOW_ORDER: [&str; 28] = [
    "coverage",
    "handshake",
    "maybe",
    "observation",
    "passed",
    "prefixes",
    "push_ledger",
    "reported_window",
    "rtt",
    "segment_size",
    "sequence",
    "tuple",
    "acceptance",
    "evidence",
    "pending",
    "recovery",
    "scoreboard",
    "timestamps",
    "copies",
    "hosts",
    "report",
    "sink",
    "seq_state",
    "tracked",
    "sender",
    "connection_end",
    "connection",
    "table",
];

#[test]
fn direct_dependencies_are_the_allowed_ones() {
    let metadata = metadata();
    for (name, allowed) in ALLOWED {
        let package = metadata.packages.iter().find(|package| package.name.as_str() == *name).unwrap();
        for dependency in package.dependencies.iter().filter(|d| d.kind == DependencyKind::Normal) {
            assert!(
                allowed.contains(&dependency.name.as_str()),
                "{name} depends on {}, which tests/tests/architecture.rs does not allow",
                dependency.name
            );
        }
    }
}

#[test]
fn nobody_reaches_what_is_forbidden_to_it() {
    for (name, forbidden, why) in FORBIDDEN {
        let reached = reachable(name);
        // A renamed crate would make this pass for ever; the crate itself must be among what it reaches.
        assert!(reached.contains(*name), "{name} is not in this workspace");
        for crate_name in *forbidden {
            assert!(!reached.contains(*crate_name), "{name} reaches {crate_name}, but {why}");
        }
    }
}

#[test]
fn no_module_of_the_core_imports_what_stands_to_its_right() {
    assert_in_order("gateway/core/src", "crate::", &CORE_ORDER, 200);
}

#[test]
fn no_module_of_flow_imports_what_stands_to_its_right() {
    assert_in_order("gateway/core/src/flow", "crate::flow::", &FLOW_ORDER, 100);
}

/// Fails where a file of this folder, of which its crate's `path` names the modules, imports what stands to its right in `order`, or where
/// there are not `least` imports.
fn assert_in_order(folder: &str, path: &str, order: &[&str], least: usize) {
    let root = workspace().join(folder);
    let (mut seen, mut imports) = (BTreeSet::new(), 0);
    for file in rust_files(&root) {
        let name = file.strip_prefix(&root).expect("a file of it").with_extension("");
        let parts: Vec<_> = name.iter().map(|part| part.to_str().expect("a name in ASCII")).collect();
        if parts == ["lib"] || parts == ["mod"] || parts.contains(&"tests") {
            continue;
        }
        let place = |module: &str| {
            let place = order.iter().position(|other| *other == module);
            place.unwrap_or_else(|| {
                panic!("{} is in or imports `{module}`, which the order does not have", name.display())
            })
        };
        let own = place(parts[0]);
        seen.insert(own);
        let text = fs::read_to_string(&file).expect("a source");
        let depth = parts.iter().filter(|part| **part != "mod").count();
        for module in modules_named(&text, path, depth) {
            let name = name.display();
            assert!(place(module) <= own, "{name} imports `{module}`, which stands to the right of `{}`", parts[0]);
            imports += 1;
        }
    }
    assert_eq!(seen.len(), order.len(), "the order of {folder} has what it has not");
    assert!(imports > least, "only {imports} imports found: the walk is broken");
}

#[test]
fn fenced_crates_are_named_by_their_owner_only() {
    let metadata = metadata();
    for (fenced, owner) in OWNED {
        for package in metadata.workspace_packages() {
            let names_it = package.dependencies.iter().any(|d| d.name == *fenced && d.kind == DependencyKind::Normal);
            // Tests may name anything: no program depends on them.
            let is_owner =
                [*owner, "spand-tests", "spand-engine-tests", "spand-needs"].contains(&package.name.as_str());
            assert!(!names_it || is_owner, "{} names {fenced}, which belongs to {owner}", package.name);
        }
    }
}

#[test]
fn unsafe_code_stands_only_where_it_may() {
    for (crate_dir, may) in [
        ("proto", false),
        ("confine", false),
        ("gateway/core", false),
        ("gateway/openings", false),
        ("gateway/cells", false),
        ("gateway/capture", true),
        ("gateway/share", false),
        ("gateway", false),
        ("agent", false),
        ("agent/advice", false),
        ("tests", true),
        ("tests/engine", false),
        ("tests/needs", false),
    ] {
        let root = fs::read_to_string(workspace().join(crate_dir).join("src/lib.rs")).unwrap();
        let forbids = root.contains("#![forbid(unsafe_code)]");
        assert!(may || forbids, "{crate_dir}/src/lib.rs lacks #![forbid(unsafe_code)]");
    }
}

#[test]
fn no_program_that_people_run_ends_in_a_debug_form() {
    let mut programs = 0;
    for folder in ["tests/src/bin", "tests/engine/src/bin", "gateway/src", "agent/src"] {
        for file in rust_files(&workspace().join(folder)) {
            let text = fs::read_to_string(&file).unwrap();
            programs += usize::from(text.contains("\nfn main() -> ExitCode"));
            // `main` prints the error that it returns with `{:?}`.
            assert!(
                !text.contains("\nfn main() -> Result") && !text.contains("\nfn main() -> anyhow"),
                "{}",
                file.display()
            );
        }
    }
    assert!(programs > 10, "only {programs} programs found: the walk is broken");
}

#[test]
fn no_file_has_grown_past_its_subject() {
    const MOST_LINES: usize = 600;
    let mut checked = 0;
    for dir in ["proto", "confine", "gateway", "agent", "tests"] {
        for file in rust_files(&workspace().join(dir)) {
            let text = fs::read_to_string(&file).unwrap();
            let code_lines = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().lines().count();
            assert!(
                code_lines <= MOST_LINES,
                "{} has {code_lines} lines: split it at its second subject",
                file.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} files found: the walk is broken");
}

#[test]
fn a_program_whose_tests_do_not_run_has_none() {
    let metadata = metadata();
    let programs = metadata.workspace_packages().into_iter().flat_map(|package| &package.targets);
    let mut checked = 0;
    for program in programs.filter(|target| target.is_bin() && !target.test) {
        let source = program.src_path.as_std_path();
        // Beside the `main.rs` of a crate is its library.
        let is_folder = source.ends_with("main.rs") && !source.ends_with("src/main.rs");
        let files = if is_folder { rust_files(source.parent().unwrap()) } else { vec![source.to_owned()] };
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            assert!(!text.contains("#[test]"), "{} has a test that `test = false` keeps from running", file.display());
            checked += 1;
        }
    }
    assert!(checked > 20, "only {checked} files found");
}

fn metadata() -> Metadata {
    MetadataCommand::new().current_dir(workspace()).exec().expect("cargo metadata of this workspace")
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests crate lies in the workspace").to_owned()
}

/// Names of all packages that `name` pulls into its own build, itself included. `cargo metadata` unites the features of
/// the whole workspace, so it cannot tell that the core takes the contract without its gRPC half; `cargo tree` can.
fn reachable(name: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", name, "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout)
        .expect("crate names are UTF-8")
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The modules below `path` that a file names in its code, as of that path or, `depth` modules below it, of `super`.
fn modules_named<'a>(text: &'a str, path: &str, depth: usize) -> impl Iterator<Item = &'a str> {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let roots = [path.to_owned(), "super::".repeat(depth)];
    lines.flat_map(move |line| {
        let paths = roots.iter().flat_map(|root| line.match_indices(root.as_str()));
        let whole = paths.filter(|(at, _)| !line[..*at].ends_with(|before| is_of_name(before) || before == ':'));
        let names =
            whole.map(|(at, root)| line[at + root.len()..].split(|c| !is_of_name(c)).next().unwrap_or_default());
        names.collect::<Vec<_>>()
    })
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).expect("a folder of this workspace") {
            let path = entry.expect("an entry of it").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
