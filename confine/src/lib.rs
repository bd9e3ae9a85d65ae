//! What gateway and agent give up once what needs it is open: the user root, capabilities, files, ways to other machines,
//! system calls.
//!
//! ```text
//! open interfaces, ports ─► confine(plan) ─► read keys, open the store, start threads
//!                             user · capabilities · no_new_privs · Landlock · seccomp
//! ```
//!
//! Capabilities and Landlock belong to a thread and pass on to the threads that it starts: [`confine`] is called by a process
//! that has one thread. The only crate that names `caps`, `landlock` and `seccompiler`.
//!
//! Does not: know what either program needs. Each says so in a [`Plan`].

#![forbid(unsafe_code)]

mod calls;
mod capabilities;
mod files;
mod plan;
mod user;

use std::os::fd::OwnedFd;
use std::sync::Arc;

pub use capabilities::{Capability, take_up};
pub use files::{exposed, read, read_at_most, read_to_string, text};
pub use plan::{Plan, Process};
pub use user::UserError;

use spand_proto::operator::Failure;
use strum::{IntoStaticStr, VariantArray};

/// What a process can drop, as metrics and `status` name it, in the order of dropping.
#[derive(Clone, Copy, Debug, Eq, IntoStaticStr, PartialEq, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Part {
    /// The process does not run as root.
    User,
    /// Capabilities beyond those that are needed, and ways to get some back (capabilities(7)).
    Capabilities,
    /// Programs that are started get no more rights than this one (`PR_SET_NO_NEW_PRIVS`).
    NoNewPrivileges,
    /// Files and folders (Landlock, Linux 5.13).
    Files,
    /// TCP ports (Landlock, Linux 6.7, and seccomp for what Landlock does not look at).
    Tcp,
    /// Signals and abstract sockets of others (Landlock, Linux 6.12).
    Signals,
    /// System calls (seccomp(2)).
    SystemCalls,
}

impl Part {
    /// Its name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// What a process has dropped. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Confined {
    dropped: [bool; Part::VARIANTS.len()],
    /// Why not, for what is not.
    lacks: Vec<String>,
    /// Inodes of `/proc` may be freed and created again under memory pressure, and a rule holds for the one that it was made with.
    _pinned: Arc<Vec<OwnedFd>>,
}

impl Confined {
    /// Every part with whether it is dropped, by its name.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, bool)> {
        Part::VARIANTS.iter().map(|part| (part.name(), self.has(*part)))
    }

    /// Whether a part is dropped.
    pub const fn has(&self, part: Part) -> bool {
        self.dropped[part as usize]
    }

    /// Logs in one line what is dropped and what is not.
    pub fn say(&self) {
        let dropped: Vec<_> = self.parts().filter_map(|(name, done)| done.then_some(name)).collect();
        let dropped = dropped.join(", ");
        if self.lacks.is_empty() {
            tracing::info!("sandbox: {dropped} dropped");
        } else {
            tracing::warn!(dropped = dropped, "sandbox incomplete: {}", self.lacks.join("; "));
        }
    }

    /// Drops a capability that only the beginning needed, in the calling thread and in those that it starts from now on. A process that stays
    /// root, and is not confined, keeps it.
    pub fn keep_no_more(&mut self, capability: Capability) {
        if (self.has(Part::Capabilities) || self.has(Part::User))
            && let Err(why) = capabilities::give_up(capability)
        {
            self.dropped[Part::Capabilities as usize] = false;
            self.lacks.push(format!("{}: {why}", Part::Capabilities.name()));
        }
    }

    /// Drops the capabilities that the process kept, in the calling thread and in those that it starts from now on.
    pub fn keep_none_here(&mut self) {
        if !self.has(Part::Capabilities) {
            return;
        }
        if let Err(why) = capabilities::drop_all() {
            self.dropped[Part::Capabilities as usize] = false;
            self.lacks.push(format!("{}: {why}", Part::Capabilities.name()));
        }
    }

    /// Drops the right to listen, for a plan that [`listens`](Plan::listens) and now does: in every thread.
    pub fn listen_no_more(&mut self) {
        if !self.has(Part::SystemCalls) {
            return;
        }
        if let Err(why) = calls::forbid_listening() {
            self.dropped[Part::Tcp as usize] = false;
            self.lacks.push(format!("{}: {why}", Part::Tcp.name()));
        }
    }

    const fn note(&mut self, part: Part) {
        self.dropped[part as usize] = true;
    }
}

/// Drops what `plan` does not name, and becomes the configured user where the process runs as root.
///
/// A process that becomes another user has the capabilities of the plan and no others, even with `process.confine` off.
///
/// What the kernel has no means for is left, and [`Confined::say`] says so: an older kernel is no reason to stand still.
///
/// # Errors
///
/// A user that is not there, or that this process may not become.
pub fn confine(process: &Process, plan: &Plan) -> Result<Confined, Failure> {
    let mut confined = Confined::default();
    let mut lacks = Vec::new();
    // First of all: bounding takes a capability that goes with the user.
    if process.confine {
        capabilities::bound(plan);
    }
    let changed = user::become_user(process.user.as_deref(), &plan.write)?;
    if !nix::unistd::geteuid().is_root() {
        confined.note(Part::User);
    }
    if !process.confine {
        confined.lacks.push("process.confine is off: what this process may do now it may do for ever".to_owned());
        // Those of root go with root, but for what the program cannot work without.
        if changed && let Err(why) = capabilities::keep(plan) {
            confined.lacks.push(format!("{}: {why}", Part::Capabilities.name()));
        }
        return Ok(confined);
    }
    let mut note = |part, done: Result<(), String>| match done {
        Ok(()) => confined.note(part),
        Err(why) => lacks.push(format!("{}: {why}", part.name())),
    };
    note(Part::Capabilities, capabilities::keep(plan));
    let no_new = nix::sys::prctl::set_no_new_privs().map_err(|error| error.to_string());
    note(Part::NoNewPrivileges, no_new);
    let mut pinned = Vec::new();
    for (part, done) in files::restrict(plan, &mut pinned) {
        note(part, done);
    }
    note(Part::SystemCalls, calls::forbid(plan));
    if !confined.has(Part::User) {
        lacks.push("user: running as root; set process.user, or User= of the service".to_owned());
    }
    Ok(Confined { lacks, _pinned: Arc::new(pinned), ..confined })
}
