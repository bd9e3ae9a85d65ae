//! What a guest boots with: archives in the format `newc` (the kernel's buffer-format.txt), one after another.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

use super::fetch::Kernel;
use super::output;

/// The first process.
const INIT: &str = include_str!("init");
/// Modules that a lab, or the disk for what it leaves, needs where the kernel does not have them built in; what each depends on comes before it.
const MODULES: [&str; 19] = [
    "ipv6",
    "af_packet",
    "veth",
    "tun",
    "dummy",
    "sch_netem",
    "sch_tbf",
    "sch_fq",
    "sch_fq_codel",
    "sch_ingress",
    "act_mirred",
    "cls_u32",
    "cls_bpf",
    "tcp_bbr",
    "tcp_dctcp",
    "inet_diag",
    "tcp_diag",
    "virtio_pci",
    "virtio_blk",
];
/// Programs of this machine that every guest has. Debian's busybox has a shell that prefers its own `ip` to that of the path: dash does not.
const TOOLS: [&str; 6] = ["/bin/busybox", "/bin/dash", "/sbin/ip", "/sbin/tc", "/bin/ss", "/usr/bin/setpriv"];
/// Where a guest finds programs.
pub const PROGRAMS: &str = "usr/bin";
/// What the program that makes the guest is called there, whatever its name is here.
pub const OWN: &str = "own";

/// An archive.
#[derive(Clone, Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a file, and the folders above it; `name` is a path without the first slash.
    pub(super) fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.folders_of(name);
        self.entry(name, 0o100_000 | mode, content);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, name: &str, target: &str) {
        self.folders_of(name);
        self.entry(name, 0o120_777, target.as_bytes());
    }

    /// Its bytes with the end of an archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn folders_of(&mut self, name: &str) {
        for (at, _) in name.match_indices('/') {
            let folder = name.get(..at).unwrap_or_default().to_owned();
            if self.folders.insert(folder.clone()) {
                self.entry(&folder, 0o040_755, &[]);
            }
        }
    }

    /// Number, mode, user and group, links, time, size, two devices of two numbers each, size of the name, no checksum.
    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (number, size, name_size) = (self.entries, content.len(), name.len() + 1);
        let header = format!(
            "070701{number:08x}{mode:08x}{:016x}{:08x}{:08x}{size:08x}{:032x}{name_size:08x}{:08x}",
            0, 1, 0, 0, 0
        );
        self.bytes.extend(header.bytes());
        for part in [name.as_bytes(), b"\0"] {
            self.bytes.extend(part);
        }
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Adds a program of this machine without its symbols, and the libraries that it needs.
    pub(super) fn program(&mut self, path: &Path, name: &str, libraries: &mut BTreeSet<String>) -> Result<()> {
        let stripped = NamedTempFile::new()?;
        // A script has no symbols.
        let script = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        if !script.starts_with(b"\x7fELF") {
            self.file(name, 0o755, &script);
            return Ok(());
        }
        output(Command::new("strip").arg("-o").arg(stripped.path()).arg(path))?;
        self.file(name, 0o755, &fs::read(stripped.path())?);
        // It fails on programs without libraries.
        let printed = Command::new("ldd").arg(path).output().context("cannot run `ldd`")?.stdout;
        let printed = String::from_utf8(printed)?;
        for library in printed.split_whitespace().filter(|word| word.starts_with('/')) {
            if libraries.insert(library.to_owned()) {
                self.file(library.trim_start_matches('/'), 0o755, &fs::read(library)?);
            }
        }
        Ok(())
    }
}

/// The part that guests of all kernels share: the first process, this machine's tools, this program under the names of the product's, and
/// `programs`.
pub fn common(programs: &[&Path]) -> Result<Vec<u8>> {
    let (mut archive, mut libraries) = (Archive::default(), BTreeSet::new());
    archive.file("init", 0o755, INIT.as_bytes());
    let users = "root:x:0:0:root:/:/bin/sh\nspand-agent:x:990:990::/:/bin/sh\nspand-gateway:x:991:991::/:/bin/sh\n";
    archive.file("etc/passwd", 0o644, users.as_bytes());
    archive.file("etc/group", 0o644, b"root:x:0:\nspand-agent:x:990:\nspand-gateway:x:991:\n");
    for tool in TOOLS {
        let path = Path::new(tool).canonicalize().with_context(|| format!("there is no {tool} on this machine"))?;
        archive.program(&path, tool.trim_start_matches('/'), &mut libraries)?;
    }
    archive.link("bin/sh", "dash");
    let own = std::env::current_exe().context("cannot find this program")?;
    archive.program(&own, &format!("{PROGRAMS}/{OWN}"), &mut libraries)?;
    for program in programs {
        let name = program.file_name().and_then(|name| name.to_str()).context("a program has a name")?;
        archive.program(program, &format!("{PROGRAMS}/{name}"), &mut libraries)?;
    }
    for name in ["spand-gateway", "spand-agent"] {
        if !programs.iter().any(|program| program.ends_with(name)) {
            archive.link(&format!("{PROGRAMS}/{name}"), OWN);
        }
    }
    Ok(archive.finish())
}

/// The modules of a kernel, and the order to load them in.
pub fn modules(kernel: &Kernel) -> Result<Vec<u8>> {
    let (mut archive, mut order) = (Archive::default(), Vec::new());
    let dependencies = fs::read_to_string(kernel.modules.join("modules.dep"))?;
    for name in MODULES {
        let is_it = |path: &str| path.rsplit('/').next().is_some_and(|file| file.split('.').next() == Some(name));
        // Built in where there is none.
        let Some((path, needs)) = dependencies.lines().filter_map(|l| l.split_once(':')).find(|(path, _)| is_it(path))
        else {
            continue;
        };
        // The last is needed first.
        for path in needs.split_whitespace().rev().chain([path]) {
            let file = path.rsplit('/').next().unwrap_or(path).split(".ko").next().unwrap_or(path).to_owned();
            if !order.contains(&file) {
                archive.file(&format!("guest/{file}.ko"), 0o644, &unpacked(&kernel.modules.join(path))?);
                order.push(file);
            }
        }
    }
    archive.file("guest/modules", 0o644, (order.join("\n") + "\n").as_bytes());
    Ok(archive.finish())
}

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => Ok(fs::read(path)?),
        Some("xz") => output(Command::new("xz").arg("-dc").arg(path)),
        Some("zst") => Ok(zstd::decode_all(fs::File::open(path)?)?),
        _ => bail!("{} is packed in a way that is not known here", path.display()),
    }
}

/// What one run adds: the command, its environment, and further files under their own paths.
pub fn run(command: &[String], files: &[&Path]) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    let words: Vec<String> = command.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    archive.file("guest/command", 0o755, format!("exec {}\n", words.join(" ")).as_bytes());
    for file in files {
        let path = file.canonicalize().with_context(|| format!("there is no {}", file.display()))?;
        let mode = fs::metadata(&path)?.permissions().mode() & 0o777;
        let name = path.to_str().context("a path of UTF-8")?.trim_start_matches('/').to_owned();
        archive.file(&name, mode, &fs::read(&path)?);
    }
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_each_folder_once_and_everything_at_multiples_of_four() {
        let mut archive = Archive::default();
        archive.file("a/b/c", 0o644, b"three");
        archive.link("a/link", "b/c");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).unwrap();
        // Two folders once, a file, a link and the trailer.
        assert_eq!(text.matches("070701").count(), 5);
        assert!(text.contains("a/b/c\0") && text.contains("three\0\0\x00070701"));
    }
}
