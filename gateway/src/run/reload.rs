//! SIGHUP: the configuration is read again, and what of it says who is inside and which networks there are comes into force.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use spand_core::config::{EngineConfig, Shard};
use spand_core::shard::Partition;
use spand_proto::operator::Failure;

use super::capture::Captures;
use super::grouping::Groups;
use super::own;
use crate::config::{Config, EngineOptions, Traffic, renamed_warnings};
use crate::names::{self, Names};
use crate::publisher::Published;

/// What reads the configuration again, and brings it into force.
#[derive(Debug)]
pub(super) struct Reload {
    file: PathBuf,
    /// In force.
    config: Config,
    seed: u64,
    captures: Arc<Captures>,
    published: Published,
    names: names::InForce,
}

/// What came of it.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Reloaded {
    pub(super) in_force: Vec<String>,
    pub(super) needs_restart: Vec<String>,
}

impl Reload {
    pub(super) fn new(
        config: &Config,
        file: &Path,
        seed: u64,
        captures: &Arc<Captures>,
        published: &Published,
        names: names::InForce,
    ) -> Self {
        let (captures, published) = (Arc::clone(captures), published.clone());
        Self { file: file.to_owned(), config: config.clone(), seed, captures, published, names }
    }

    /// Reads the files and logs the result; files that cannot be used leave everything as it is.
    pub(super) fn reload(&mut self) {
        for warning in renamed_warnings(&self.file) {
            tracing::warn!("{warning}");
        }
        match self.take() {
            Ok(Reloaded { in_force, needs_restart }) => {
                let changed = in_force.join(", ");
                tracing::info!(file = %self.file.display(), changed, "the configuration is in force");
                if !needs_restart.is_empty() {
                    tracing::warn!("changed but needs a restart: {}", needs_restart.join(", "));
                }
                self.published.configuration_read(true, changed);
            }
            Err(fault) => {
                tracing::error!("{fault}; the previous configuration stays in force");
                self.published.configuration_read(false, fault.to_string());
            }
        }
    }

    pub(super) fn take(&mut self) -> Result<Reloaded, Failure> {
        let new = Config::load(&self.file)?;
        let merged = Config {
            traffic: Traffic {
                internal: new.traffic.internal.clone(),
                prefix_list: new.traffic.prefix_list.clone(),
                ..self.config.traffic.clone()
            },
            names: new.names.clone(),
            ..self.config.clone()
        };
        let count = self.config.engine.threads;
        let options =
            EngineOptions { hash_seed: self.seed, shard: Shard { index: 0, count }, ..EngineOptions::default() };
        // Addresses of this machine may have come or gone since.
        let engine = EngineConfig { own_listeners: own::listeners(&merged), ..merged.engine(options)? };
        let groups = Groups::of(&engine, Partition::new(&engine, count));
        // Also where the files have the names of before and other contents.
        self.names.replace(Names::load(&merged.names)?);
        let before = self.captures.grouping.in_force();
        let mut in_force = different(&self.config, &merged);
        if before.networks != groups.networks {
            in_force.insert("traffic.prefix_list".to_owned());
        }
        let same_own = before.own_listeners == groups.own_listeners;
        if !same_own || (&before.internal, &before.networks) != (&groups.internal, &groups.networks) {
            self.published.made_by(groups.partition.clone());
            self.captures.grouping.replace(groups);
        }
        let needs_restart = different(&merged, &new).into_iter().collect();
        self.config = merged;
        Ok(Reloaded { in_force: in_force.into_iter().collect(), needs_restart })
    }
}

/// The keys that two configurations do not have alike.
fn different(one: &Config, other: &Config) -> BTreeSet<String> {
    let values = [one, other].map(|config| serde_json::to_value(config).unwrap_or_default());
    let [one, other] = &values;
    let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let mut keys = BTreeSet::new();
    for (section, value) in members(one).into_iter().chain(members(other)) {
        for key in members(&value).into_iter().map(|(key, _)| key) {
            let of = |config: &Value| config.get(&section).and_then(|section| section.get(&key)).cloned();
            if of(one) != of(other) {
                keys.insert(format!("{section}.{key}"));
            }
        }
    }
    keys
}
