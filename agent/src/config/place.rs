//! Where a command finds the running agent and its records, also while the configuration is at fault: that is when advice may have
//! to be turned off.

use std::path::{Path, PathBuf};

use spand_proto::operator::{ConfigError, or_default, salvage};

use super::{Config, DEFAULT_PATH};

/// Where a running agent and its records are.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    /// The socket at which the agent answers.
    pub(crate) socket: PathBuf,
    /// The record of what it changed.
    pub(crate) ledger: PathBuf,
    /// The cgroup of its programs; empty for the root.
    pub(crate) cgroup: PathBuf,
    /// The configuration, if it cannot be read and so does not show where the agent is.
    unread: Option<PathBuf>,
    /// The options that lead a command here.
    options: String,
}

impl Place {
    /// The place by the configuration in `file`, or of the agent that answers at `socket`, and a warning where the
    /// configuration cannot be used.
    pub(crate) fn find(file: &Path, socket: Option<&Path>) -> (Self, Option<String>) {
        let (mut config, fault) = match or_default(Config::load(file), Path::new(DEFAULT_PATH)) {
            Ok((config, _)) => (config, None),
            Err(error) => {
                let (config, is_toml) = Config::salvaged(file);
                (config, Some((error, is_toml)))
            }
        };
        if let Some(socket) = socket {
            socket.parent().unwrap_or(Path::new("")).clone_into(&mut config.state_dir);
        }
        let place = Self {
            socket: socket.map_or_else(|| config.control_socket(), Path::to_owned),
            ledger: config.ledger_file(),
            unread: matches!(&fault, Some((_, false)) if socket.is_none()).then(|| file.to_owned()),
            cgroup: config.bpf.cgroup,
            options: options(file, socket),
        };
        let warning = fault.map(|(error, _)| warning(&error, &place.socket));
        (place, warning)
    }

    /// Why an agent may run although none answers here.
    pub(crate) fn doubt(&self) -> Option<String> {
        let file = self.unread.as_ref()?;
        Some(format!(
            "no agent answers at {}, and one may run with another state_dir, since {} cannot be read: name its socket with --socket",
            self.socket.display(),
            file.display()
        ))
    }

    /// A command of this program for this place, to be pasted.
    pub(crate) fn command(&self, command: &str) -> String {
        format!("spand-agent {command}{}", self.options)
    }
}

fn warning(fault: &ConfigError, socket: &Path) -> String {
    format!("{fault}; going on with the agent at {}", socket.display())
}

fn options(file: &Path, socket: Option<&Path>) -> String {
    let config = Some(("--config", file)).filter(|(_, file)| *file != Path::new(DEFAULT_PATH));
    let option = |(option, path): (&str, &Path)| {
        let quoted = path.display().to_string().replace('\'', "'\\''");
        format!(" {option} '{quoted}'")
    };
    let options = [config, socket.map(|socket| ("--socket", socket))];
    options.into_iter().flatten().map(option).collect::<Vec<_>>().concat()
}

impl Config {
    /// The defaults, with the state directory that the file at `path` names, where it can be read out of it. The other half is
    /// whether the file is TOML, so that a directory that is not named is the default one.
    pub(crate) fn salvaged(path: &Path) -> (Self, bool) {
        let mut config = Self::default();
        let Ok(text) = spand_confine::read_to_string(path) else { return (config, false) };
        let (state_dir, is_toml) = salvage::<PathBuf>(&text, &["state_dir"]);
        if let Some(state_dir) = state_dir.filter(|state_dir| !state_dir.as_os_str().is_empty()) {
            config.state_dir = path.parent().unwrap_or(Path::new("")).join(state_dir);
        }
        (config, is_toml)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str, socket: Option<&str>) -> (Place, Option<String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.toml");
        std::fs::write(&file, text).unwrap();
        let (place, warning) = Place::find(&file, socket.map(Path::new));
        (place, warning, folder.path().display().to_string())
    }

    #[test]
    fn the_state_directory_is_read_out_of_a_configuration_that_is_at_fault_elsewhere() {
        for fault in ["[route]\nspeed = 3\n", "mode = \"quick\"\n", "[route]\nsettle_ms = \"soon\"\n"] {
            let (place, warning, folder) = place(&format!("state_dir = \"st'ate\"\n{fault}"), None);
            assert_eq!(place.socket, Path::new(&folder).join("st'ate/control.sock"));
            assert_eq!(place.ledger, Path::new(&folder).join("st'ate/ledger.jsonl"));
            assert_eq!(place.doubt(), None);
            let warning = warning.unwrap();
            assert_eq!(warning.lines().count(), 1, "{warning}");
            assert!(warning.contains("agent.toml, line ") && warning.ends_with("st'ate/control.sock"), "{warning}");
            assert_eq!(place.command("resume"), format!("spand-agent resume --config '{folder}/agent.toml'"));
        }
        let (none, warning, _) = place("state_dir = \"state\"\n", None);
        assert_eq!((none.doubt(), warning), (None, None));
    }

    #[test]
    fn the_default_directory_is_in_doubt_where_the_file_cannot_be_read() {
        let default = Config::default().control_socket();
        for (text, in_doubt) in [("mode = careful\n", true), ("mode = \"quick\"\n", false), ("state_dir = 3\n", false)]
        {
            let (place, warning, _) = place(text, None);
            assert_eq!((&place.socket, place.doubt().is_some()), (&default, in_doubt), "{text}");
            assert!(warning.is_some());
        }
        let (place, warning) = Place::find(Path::new("/nonexistent/agent.toml"), None);
        assert!(place.socket == default && place.doubt().is_some());
        assert!(warning.unwrap().contains("/nonexistent/agent.toml"));
    }

    #[test]
    fn a_socket_that_is_given_needs_no_configuration() {
        let (place, warning, folder) = place("state_dir = [", Some("/srv/a/control.sock"));
        assert_eq!((place.socket.as_path(), place.doubt()), (Path::new("/srv/a/control.sock"), None));
        assert_eq!(place.ledger, Path::new("/srv/a/ledger.jsonl"));
        let expected = format!("spand-agent undo --run --config '{folder}/agent.toml' --socket '/srv/a/control.sock'");
        assert_eq!(place.command("undo --run"), expected);
        assert!(warning.unwrap().contains("agent.toml, line 1"));
    }
}
