//! What a program goes on to need.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Capability;

/// Everything that a program needs once it runs; the rest is dropped.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Capabilities, of those that the process has.
    pub keep: Vec<Capability>,
    /// Files and folders that it reads. What is not there is left out.
    pub read: Vec<PathBuf>,
    /// Folders that it changes, made where they are missing.
    pub write: Vec<PathBuf>,
    /// Files that it writes to and neither makes nor removes, such as `/dev/null`.
    pub write_to: Vec<PathBuf>,
    /// Programs and libraries that it starts. With one of them it may start processes, which get what it has itself.
    pub start: Vec<PathBuf>,
    /// TCP ports that it connects to. It listens on none but those that are open already.
    pub connect: Vec<u16>,
    /// Whether it goes on to make sockets that others connect to, until [`Confined::listen_no_more`](crate::Confined). It could
    /// have a TCP port that the kernel chooses until then.
    pub listens: bool,
    /// Whether it changes programs and tables in the kernel (bpf(2)).
    pub kernel_programs: bool,
}

impl Plan {
    /// Adds a file that is replaced now and then, so that its successor can be read too: the folder that it lies in, and where
    /// it is a link the one of what that leads to. Of the root folder the file alone.
    pub fn read_as_replaced(&mut self, file: &Path) {
        let target = file.canonicalize().ok();
        for file in [Some(file), target.as_deref()].into_iter().flatten() {
            let folder = file.parent().filter(|folder| *folder != Path::new("/"));
            let path = folder.unwrap_or(file).to_owned();
            if !self.read.contains(&path) {
                self.read.push(path);
            }
        }
    }

    /// Whether it starts processes.
    pub(crate) const fn starts(&self) -> bool {
        !self.start.is_empty()
    }
}

// The section `[process]` of both configurations.

/// `[process]`: what the program may still do once it runs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// User that the program becomes where it was started as root. Default none: it stays who it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Give up what is not needed. Default on.
    pub confine: bool,
}

impl Default for Process {
    fn default() -> Self {
        Self { user: None, confine: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_opens_its_folder_and_that_of_its_target_but_never_all() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        for folder in ["archive", "live"] {
            std::fs::create_dir(place.join(folder)).unwrap();
        }
        std::fs::write(place.join("archive/key1.pem"), "").unwrap();
        std::os::unix::fs::symlink("../archive/key1.pem", place.join("live/key.pem")).unwrap();
        let mut plan = Plan::default();
        plan.read_as_replaced(&place.join("live/key.pem"));
        assert_eq!(plan.read, [place.join("live"), place.join("archive")]);
        let mut plan = Plan::default();
        plan.read_as_replaced(Path::new("/key.pem"));
        assert_eq!(plan.read, [Path::new("/key.pem")]);
    }
}
