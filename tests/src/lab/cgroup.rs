//! Version 2 cgroups: where they are mounted, and a group of our own whose sockets can be distinguished from others'.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where version 2 cgroups are mounted.
pub fn root() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read /proc/self/mounts")?;
    let place = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?;
        (words.next()? == "cgroup2").then(|| PathBuf::from(place))
    });
    place.context("no cgroup2 is mounted: programs of cgroups need one (mount -t cgroup2 none DIRECTORY)")
}

/// A cgroup that lives as long as this.
#[derive(Debug)]
pub struct Cgroup {
    folder: PathBuf,
    back: PathBuf,
}

impl Cgroup {
    /// Makes one with `name` and this process's number, beside the one that this process is in.
    pub fn make(name: &str) -> Result<Self> {
        let root = root()?;
        let own = fs::read_to_string("/proc/self/cgroup").context("cannot read /proc/self/cgroup")?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).context("this process is in no cgroup2")?;
        let folder = root.join(format!("{name}-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make the cgroup {}", folder.display()))?;
        Ok(Self { folder, back: root.join(own) })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Does `work` while this process is in it: sockets made meanwhile, and those that they accept, belong to it for ever.
    pub fn enter<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        join(&self.folder)?;
        let done = work();
        join(&self.back)?;
        done
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // One that still holds a process stays behind; nothing can be done about it here.
        drop(fs::remove_dir(&self.folder));
    }
}

fn join(folder: &Path) -> Result<()> {
    let file = folder.join("cgroup.procs");
    fs::write(&file, std::process::id().to_string()).with_context(|| format!("cannot write {}", file.display()))
}
