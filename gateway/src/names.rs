//! What networks are called: by a list of the operator's, and by a database of autonomous systems. Names decide nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ipnet::IpNet;
use maxminddb::{MaxMindDbError, Reader};
use parking_lot::RwLock;
use prefix_trie::joint::JointPrefixMap;
use serde::{Deserialize, Serialize};
use spand_confine::read_at_most;
use spand_proto::network::Network;
use spand_proto::operator::{Failure, printable};

use crate::config::{MOST_MIB, Names as Config, PrefixListError, read_prefixes};

/// Longest name that is kept, in characters.
const MAX_CHARACTERS: usize = 64;

/// What networks are called. A database is held as it is in its file. It reads no network's traffic and changes no estimate.
#[derive(Debug, Default)]
pub struct Names {
    list: JointPrefixMap<IpNet, Box<str>>,
    systems: Option<Reader<Vec<u8>>>,
}

/// What a network is called.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub(crate) struct Named {
    /// By the operator's list: the longest prefix around the network.
    pub(crate) name: Option<String>,
    /// The autonomous system that announces its first address.
    pub(crate) as_number: Option<u32>,
    /// Who that is.
    pub(crate) as_organisation: Option<String>,
}

/// The names in force, which a reload replaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct InForce(Arc<RwLock<Arc<Names>>>);

impl InForce {
    /// The names of now.
    pub(crate) fn get(&self) -> Arc<Names> {
        Arc::clone(&self.0.read())
    }

    /// Puts others in their place.
    pub(crate) fn replace(&self, names: Names) {
        *self.0.write() = Arc::new(names);
    }
}

/// A database that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the database {}: {source}; give one of autonomous systems in MaxMind's format (names.asn_database)", path.display())]
struct DatabaseError {
    path: PathBuf,
    source: MaxMindDbError,
}

/// An entry of a database: the fields of GeoLite2-ASN and DB-IP, or those that `as_name` and `asn` belong to.
#[derive(Deserialize)]
struct System {
    autonomous_system_number: Option<u32>,
    #[serde(alias = "as_name", alias = "name")]
    autonomous_system_organization: Option<String>,
    asn: Option<String>,
}

impl Names {
    /// Reads what is configured.
    pub(crate) fn load(config: &Config) -> Result<Self, Failure> {
        let list = config.list.as_deref().map(read_list).transpose()?.unwrap_or_default();
        let open = |path: &PathBuf| {
            let fault = |source| DatabaseError { path: path.clone(), source };
            let bytes = read_at_most(path, MOST_MIB).map_err(MaxMindDbError::Io);
            bytes.and_then(Reader::from_source).map_err(|error| match error {
                MaxMindDbError::Io(_) => Failure::environment(fault(error)),
                _ => Failure::Usage(fault(error).to_string()),
            })
        };
        Ok(Self { list, systems: config.asn_database.as_ref().map(open).transpose()? })
    }

    /// The same for a gateway that starts: names decide nothing, so of a file that cannot be read there are none, and a warning.
    pub(crate) fn load_readable(config: &Config) -> Result<(Self, Vec<String>), Failure> {
        let (mut names, mut warnings) = (Self::default(), Vec::new());
        for one in [Config { asn_database: None, ..config.clone() }, Config { list: None, ..config.clone() }] {
            match Self::load(&one) {
                Ok(loaded) if one.asn_database.is_none() => names.list = loaded.list,
                Ok(loaded) => names.systems = loaded.systems,
                Err(Failure::Environment(why)) => {
                    warnings.push(format!("{why}; until then networks have no names by it"));
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok((names, warnings))
    }

    /// What a configuration's names are counted with: a database as its file, a list as a dozen times its file.
    pub(crate) fn most_bytes(config: &Config) -> usize {
        let bytes = |path: &Option<PathBuf>| {
            let length = path.as_ref().and_then(|path| fs::metadata(path).ok()).map_or(0, |file| file.len());
            usize::try_from(length).unwrap_or(usize::MAX)
        };
        bytes(&config.list).saturating_mul(12).saturating_add(bytes(&config.asn_database))
    }

    /// What a network is called.
    pub(crate) fn of(&self, network: Network) -> Named {
        let name = self.list.get_lpm(&network.prefix()).map(|(_, name)| name.to_string());
        // What a damaged database has of it is not known.
        let system = self
            .systems
            .as_ref()
            .and_then(|systems| systems.lookup(network.prefix().addr()).ok()?.decode::<System>().ok()?);
        let Some(system) = system else { return Named { name, ..Named::default() } };
        let number = || system.asn.as_deref()?.trim_start_matches("AS").parse().ok();
        Named {
            name,
            as_number: system.autonomous_system_number.or_else(number),
            as_organisation: system.autonomous_system_organization.as_deref().map(shortened),
        }
    }

    /// Whether there are none at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty() && self.systems.is_none()
    }
}

impl Named {
    /// Whether a text that somebody looks for is part of a name, or is the number, written `AS64500`. Capitals make no difference.
    pub(crate) fn matches(&self, lowercase: &str) -> bool {
        let part = |text: &Option<String>| text.as_ref().is_some_and(|text| text.to_lowercase().contains(lowercase));
        part(&self.name)
            || part(&self.as_organisation)
            || self.as_number.is_some_and(|number| lowercase.strip_prefix("as") == Some(number.to_string().as_str()))
    }
}

fn read_list(path: &Path) -> Result<JointPrefixMap<IpNet, Box<str>>, PrefixListError> {
    let mut list = JointPrefixMap::new();
    read_prefixes(path, |network, name| {
        if !name.is_empty() {
            list.insert(network.prefix(), shortened(name).into());
        }
    })?;
    Ok(list)
}

/// A name as a table for people has it: twenty characters.
pub(crate) fn in_short(name: &str) -> String {
    name.chars().take(20).collect()
}

fn shortened(name: &str) -> String {
    printable(name).chars().take(MAX_CHARACTERS).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use super::*;

    /// Three networks with the first fields of [`System`], and 198.51.100.0/25 with the others.
    const DATABASE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/asn.mmdb");

    /// By this list, and by the database of the tests.
    pub(crate) fn names(list: &str) -> Names {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        fs::write(&path, list).unwrap();
        Names::load(&Config { list: Some(path), asn_database: Some(DATABASE.into()) }).unwrap()
    }

    fn named(name: Option<&str>, as_number: Option<u32>, as_organisation: Option<&str>) -> Named {
        let [name, as_organisation] = [name, as_organisation].map(|text| text.map(str::to_owned));
        Named { name, as_number, as_organisation }
    }

    #[test]
    fn the_longest_prefix_names_a_network_and_a_database_who_announces_it() {
        let names = names(
            "# ours\n192.0.0.0/8 all of it\n192.0.2.0/23 Branch office 7 # and why\n2001:db8::/32\tv6\n10.0.0.0/8\n",
        );
        let of = |network: &str| names.of(network.parse().unwrap());
        assert_eq!(of("192.0.2.0/24"), named(Some("Branch office 7"), Some(64_500), Some("Example One")));
        assert_eq!(of("192.9.2.0/24"), named(Some("all of it"), None, None));
        assert_eq!(of("2001:db8:1::/48"), named(Some("v6"), Some(64_500), Some("Example One")));
        assert_eq!(of("198.51.100.0/24"), named(None, Some(64_501), Some("Example Two")));
        // A line without a name names nothing, and a network around a prefix is not inside it.
        assert_eq!([of("10.1.2.0/24"), of("192.0.0.0/7")], [Named::default(), Named::default()]);
        assert_eq!(Names::default().of("192.0.2.0/24".parse().unwrap()), Named::default());
    }

    #[test]
    fn a_network_is_found_by_parts_of_its_names_and_by_its_number() {
        let named = named(Some("Branch office 7"), Some(64_500), Some("Example One"));
        for text in ["office", "example", "as64500"] {
            assert!(named.matches(text), "{text}");
        }
        for text in ["as645", "as64", "64500", "two"] {
            assert!(!named.matches(text), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_missing_takes_only_its_own_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        fs::write(&path, "192.0.2.0/24 one\n").unwrap();
        let missing = folder.path().join("gone.mmdb");
        let both = Config { list: Some(path.clone()), asn_database: Some(missing.clone()) };
        let (names, warnings) = Names::load_readable(&both).unwrap();
        assert_eq!(names.of("192.0.2.0/24".parse().unwrap()).name.as_deref(), Some("one"));
        assert!(
            matches!(&warnings[..], [one] if one.contains("gone.mmdb") && one.contains("names.asn_database")),
            "{warnings:?}"
        );
        let both = Config { list: Some(missing), asn_database: Some(DATABASE.into()) };
        let (names, warnings) = Names::load_readable(&both).unwrap();
        assert!(names.systems.is_some() && warnings.len() == 1, "{warnings:?}");
        // A file that is none is a fault of the configuration.
        assert!(Names::load_readable(&Config { list: None, asn_database: Some(path) }).is_err());
    }

    #[test]
    fn files_that_cannot_be_used_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names");
        fs::write(&path, "192.0.2.0/24 one\nnowhere two\n").unwrap();
        let fault = |config: Config| Names::load(&config).unwrap_err().to_string();
        let list = Config { list: Some(path.clone()), asn_database: None };
        assert!(fault(list).contains("names, line 2"), "a line that names no network");
        let database = Config { list: None, asn_database: Some(path) };
        assert!(fault(database).contains("names.asn_database"), "a file that is no database");
        let endless = || Some(PathBuf::from("/dev/zero"));
        for config in [Config { list: endless(), asn_database: None }, Config { list: None, asn_database: endless() }] {
            assert!(fault(config).contains("it has more than 256 MiB"));
        }
    }
}
