//! Network namespaces without a name: held open by this process only, so they vanish with it, whatever ends it.
//!
//! A named namespace (`ip netns add`) is a mount that outlives a killed process. Here a person reaches one through
//! [`Namespace::path`] and `nsenter --net=PATH`.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::{fs, thread};

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace that lives as long as the last clone of this handle or a process in it.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
    file: Arc<OwnedFd>,
}

impl Namespace {
    /// Makes a fresh namespace with its loopback up; `name` is for messages and thread names only.
    pub fn create(name: &str) -> Result<Self> {
        let made = thread::scope(|scope| {
            let worker = scope.spawn(|| -> Result<File> {
                unshare(CloneFlags::CLONE_NEWNET).map_err(|e| match e {
                    Errno::EPERM => anyhow!("the lab makes network namespaces and needs root: run it with sudo"),
                    e => anyhow!("cannot make the network namespace {name}: {e}"),
                })?;
                File::open("/proc/thread-self/ns/net").context("cannot open the new network namespace")
            });
            joined(worker.join())
        })??;
        let namespace = Self { name: name.to_owned(), file: Arc::new(made.into()) };
        namespace.ip(&["link set lo up"])?;
        Ok(namespace)
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path that `nsenter --net=` takes while this process lives.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Runs `work` inside, on a thread of its own, and waits for it. Sockets and TUN devices opened there stay inside.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.join_thread()?;
                work()
            });
            joined(worker.join())
        })?
    }

    /// Starts a thread inside.
    pub fn spawn<T: Send + 'static>(
        &self,
        thread_name: &str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let namespace = self.clone();
        thread::Builder::new()
            .name(thread_name.to_owned())
            .spawn(move || {
                namespace.join_thread()?;
                work()
            })
            .with_context(|| format!("cannot start the thread {thread_name}"))
    }

    /// A command that will run inside and is killed when the thread that starts it ends: start it from a thread that
    /// lives as long as the command should.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let file = Arc::clone(&self.file);
        // SAFETY: between fork and exec only the async-signal-safe system calls setns and prctl are made; nothing
        // is allocated (an errno converts to io::Error in place).
        unsafe {
            command.pre_exec(move || {
                setns(&*file, CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from)?;
                nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).map_err(std::io::Error::from)
            });
        }
        command
    }

    /// Runs `ip` with these lines as one batch.
    pub fn ip(&self, lines: &[&str]) -> Result<()> {
        self.batch("ip", lines)
    }

    /// Runs `tc` with these lines as one batch.
    pub fn tc(&self, lines: &[&str]) -> Result<()> {
        self.batch("tc", lines)
    }

    /// Writes one setting under `/proc/sys/net` of this namespace, `key` given as a path below it.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<()> {
        self.enter(|| {
            let path = PathBuf::from("/proc/sys/net").join(key);
            fs::write(&path, value).with_context(|| format!("cannot set {} to {value}", path.display()))
        })
    }

    /// Makes `name` the congestion control of connections that choose none.
    ///
    /// The kernel lets a namespace take only what the whole machine allows to everyone. Where `name` is not on that list
    /// it stands there for the moment of the change, and the list is then as before: the default outlasts it.
    pub fn default_congestion_control(&self, name: &str) -> Result<()> {
        const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
        let key = "ipv4/tcp_congestion_control";
        if self.sysctl(key, name).is_ok() {
            return Ok(());
        }
        // Another process that does the same would take the name off the list again in between.
        let list = File::open(ALLOWED).with_context(|| format!("cannot open {ALLOWED}"))?;
        let _alone = Flock::lock(list, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .with_context(|| format!("cannot lock {ALLOWED}"))?;
        let before = fs::read_to_string(ALLOWED).with_context(|| format!("cannot read {ALLOWED}"))?;
        let with = format!("{} {name}", before.trim());
        fs::write(ALLOWED, with).with_context(|| format!("this kernel has no congestion control {name}"))?;
        let made = self.sysctl(key, name);
        fs::write(ALLOWED, before).with_context(|| format!("cannot restore {ALLOWED}"))?;
        made
    }

    fn batch(&self, program: &str, lines: &[&str]) -> Result<()> {
        use std::io::Write as _;
        use std::process::Stdio;

        let mut child = self
            .command(program)
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run `{program}`: install iproute2"))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(lines.join("\n").as_bytes()).with_context(|| format!("cannot write to `{program}`"))?;
        }
        let output = child.wait_with_output().with_context(|| format!("cannot wait for `{program}`"))?;
        if output.status.success() {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        Err(anyhow!("`{program}` in namespace {} failed: {} (lines: {})", self.name, stderr.trim(), lines.join("; ")))
    }

    /// Moves the calling thread inside, for as long as it lives.
    pub fn join_thread(&self) -> Result<()> {
        setns(&*self.file, CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("cannot enter the network namespace {}", self.name))
    }
}

/// Passes a worker's panic on to the thread that waits for it.
fn joined<T>(result: thread::Result<T>) -> Result<T> {
    result.map_err(|panic| std::panic::resume_unwind(panic))
}

// Version 2 cgroups: where they are mounted, and a group of our own whose sockets can be distinguished from others'.

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
