//! `deny.toml` against what the programs are made of: licences, sources, crates that are banned, and two versions of one crate. Advisories need a
//! network: `cargo deny check` looks for those.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use serde::Deserialize;

#[derive(Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
}

#[derive(Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Bans {
    deny: Vec<Named>,
    skip: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn rules() -> Deny {
    let text = fs::read_to_string(workspace().join("deny.toml")).expect("deny.toml is there");
    toml::from_str(&text).expect("deny.toml is one")
}

fn metadata(target: &str) -> Metadata {
    let options = ["--locked", "--filter-platform", target].map(str::to_owned);
    MetadataCommand::new().current_dir(workspace()).other_options(options).exec().expect("cargo metadata runs")
}

/// All packages that both programs are built from, on the machines for which they are released.
fn packages() -> Vec<Package> {
    let mut all = BTreeMap::<PackageId, Package>::new();
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
        let metadata = metadata(target);
        let nodes: BTreeMap<_, _> =
            metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| (&node.id, node)).collect();
        let programs =
            metadata.packages.iter().filter(|of| ["spand-gateway", "spand-agent"].contains(&of.name.as_str()));
        let mut open: Vec<_> = programs.map(|package| &package.id).collect();
        let mut seen = BTreeSet::new();
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                let is_built = |kind: &DependencyKind| *kind != DependencyKind::Development;
                let deps = nodes[id].deps.iter().filter(|dep| dep.dep_kinds.iter().any(|of| is_built(&of.kind)));
                open.extend(deps.map(|dep| &dep.pkg));
            }
        }
        let built = metadata.packages.iter().filter(|package| seen.contains(&package.id));
        all.extend(built.map(|package| (package.id.clone(), package.clone())));
    }
    assert!(all.len() > 200, "{} packages: the walk is broken", all.len());
    all.into_values().collect()
}

#[test]
fn every_licence_is_an_allowed_one() {
    let allowed = rules().licenses.allow;
    for package in packages() {
        let written = package.license.clone().unwrap_or_default();
        let licence = spdx::Expression::parse_mode(&written, spdx::ParseMode::LAX);
        let licence = licence.unwrap_or_else(|error| panic!("{}: `{written}`: {error}", package.name));
        let is_allowed = licence.evaluate(|one| one.license.id().is_some_and(|id| allowed.contains(id.name)));
        assert!(is_allowed, "{} has the licence {written}, which deny.toml does not allow", package.name);
    }
}

#[test]
fn every_crate_is_of_this_workspace_or_the_registry_and_none_is_banned() {
    let banned = rules().bans.deny;
    for package in packages() {
        let source = package.source.as_ref().map(|source| source.repr.as_str());
        let is_known = source.is_none_or(|of| of == "registry+https://github.com/rust-lang/crates.io-index");
        assert!(is_known, "{} comes from {source:?}", package.name);
        if let Some(rule) = banned.iter().find(|rule| rule.name == package.name.as_str()) {
            panic!("{} is banned: {}", package.name, rule.reason);
        }
    }
}

#[test]
fn two_versions_of_a_crate_are_there_only_for_a_reason_and_every_reason_is_needed() {
    let mut versions = BTreeMap::<String, Vec<String>>::new();
    for package in packages() {
        versions.entry(package.name.to_string()).or_default().push(package.version.to_string());
    }
    versions.retain(|_, versions| versions.len() > 1);
    let mut skipped = BTreeSet::new();
    for Named { name: rule, .. } in rules().bans.skip {
        let (name, version) = rule.split_once('@').unwrap_or((&rule, ""));
        let of =
            versions.get_mut(name).unwrap_or_else(|| panic!("deny.toml skips {rule}, of which there is one version"));
        let before = of.len();
        of.retain(|found| !format!("{found}.").starts_with(&format!("{version}.")));
        assert!(of.len() < before, "deny.toml skips {rule}, and no such version is there");
        skipped.insert(name.to_owned());
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert_eq!(versions, BTreeMap::new(), "name one of each in deny.toml with the reason, or remove it");
}
