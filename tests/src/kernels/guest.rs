//! One guest: a kernel, what it boots with, and what it writes.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::fetch::Kernel;
use super::output;

/// Linux with `kmalloc_nolock`, from which 7.2 takes storage of sockets: without cmpxchg16b it finds memory in caches under debugging alone.
const SINCE_NOLOCK: (u32, u32) = (6, 18);
/// Exit code of timeout(1) where it had to end the program.
const TIMED_OUT: i32 = 124;
/// Where a guest's program leaves files for the host.
pub const OUT: &str = "/out";
/// Room for those files. The disk is a sparse file: what is not written takes no space.
const OUT_BYTES: u64 = 4 << 30;

/// Where a guest's console goes.
#[derive(Clone, Copy, Debug)]
pub enum Console<'a> {
    /// This terminal, in both directions.
    Here,
    /// A file.
    File(&'a Path),
}

/// Boots `kernel` with `parts`, one archive after another, and waits until the guest has ended. Each line of the port for findings goes to
/// `heard`. What the guest's program leaves in [`OUT`] is copied to the folder `out`. Returns the exit code of the guest's program.
///
/// # Errors
/// Where qemu does not start, or the guest ends by something else than its program, or not within `limit`.
pub fn boot(
    kernel: &Kernel,
    parts: &[&[u8]],
    limit: Duration,
    console: Console<'_>,
    out: Option<&Path>,
    mut heard: impl FnMut(&str),
) -> Result<i32> {
    let folder = tempfile::tempdir()?;
    let [initrd, kept, disk] = ["initrd", "findings", "disk"].map(|name| folder.path().join(name));
    fs::write(&initrd, parts.concat()).context("cannot write what the guest boots with")?;
    let mut command = Command::new("timeout");
    // In the foreground it may read from the terminal.
    command.args(["--foreground", "--kill-after=5"]).arg(limit.as_secs().to_string()).arg("qemu-system-x86_64");
    command.args(["-accel", "tcg", "-cpu", "max,-cx16", "-icount", "shift=1,sleep=off", "-m", "1500"]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initrd);
    // Without no_timer_check some kernels hang on a busy host. A panic ends the guest.
    let mut line = "console=ttyS0 quiet panic=-1 no_timer_check".to_owned();
    if kernel.version() >= SINCE_NOLOCK {
        line += " slab_debug=F,kmalloc-*";
    }
    command.args(["-append", &line]);
    if out.is_some() {
        fs::File::create(&disk)?.set_len(OUT_BYTES)?;
        command.arg("-drive").arg(format!("file={},format=raw,if=virtio", disk.display()));
    }
    let in_file = |path: &Path| format!("file:{}", path.display());
    match console {
        Console::Here => command.args(["-serial", "stdio", "-serial", &in_file(&kept)]),
        Console::File(file) => {
            command.args(["-serial", &in_file(file), "-serial", "stdio"]).stdin(Stdio::null()).stdout(Stdio::piped())
        }
    };
    let mut qemu = command.spawn().context("cannot run `timeout`")?;
    let mut status = None;
    let mut take = |line: &str| match line.strip_prefix("exit ") {
        Some(code) => status = code.parse().ok(),
        None => heard(line),
    };
    if let Some(findings) = qemu.stdout.take() {
        for line in BufReader::new(findings).lines() {
            take(line.context("the guest's findings cannot be read")?.trim_end());
        }
    }
    let ended = qemu.wait()?;
    fs::read_to_string(&kept).unwrap_or_default().lines().for_each(take);
    if ended.code() == Some(TIMED_OUT) {
        bail!("the guest did not end within {} s of this machine's time", limit.as_secs());
    }
    let status = status.with_context(|| format!("the guest ended before its program did ({ended})"))?;
    if let Some(out) = out {
        let mut first = [0];
        fs::File::open(&disk)?.read_exact(&mut first)?;
        ensure!(first != [0], "the guest wrote nothing to its disk");
        fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
        output(Command::new("tar").args(["-x", "--no-same-owner", "-f"]).arg(&disk).arg("-C").arg(out))?;
    }
    Ok(status)
}
