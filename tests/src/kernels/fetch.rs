//! The kernels: of the Debian mirror that this machine's own packages come from, by a state of apt's that is ours alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::output;

/// Debian's releases whose kernels are tried.
pub const SUITES: [&str; 4] = ["bullseye", "bookworm", "trixie", "sid"];
/// Where kernels are kept, in place of `target/kernels`.
pub const FOLDER_ENV: &str = "SPAND_KERNELS";
/// Depends on the newest cloud kernel of each release.
const NEWEST: &str = "linux-image-cloud-amd64";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A kernel that is there.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Debian's release.
    pub suite: String,
    /// The compressed kernel.
    pub image: PathBuf,
    /// The folder of its modules, with `modules.dep`.
    pub modules: PathBuf,
}

impl Kernel {
    /// As `uname -r` prints it.
    pub fn release(&self) -> &str {
        self.modules.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Linux's version, its first two numbers.
    pub(super) fn version(&self) -> (u32, u32) {
        let mut numbers =
            self.release().split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or_default());
        (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
    }
}

/// Where kernels are kept.
pub fn folder() -> PathBuf {
    let target = || std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::env::var_os(FOLDER_ENV).map_or_else(|| target().join("kernels"), PathBuf::from)
}

/// The kernel of a release: the one that was fetched before, or the newest of the mirror.
pub fn kernel(folder: &Path, suite: &str) -> Result<Kernel> {
    let tree = folder.join(suite);
    if !tree.exists() {
        let scratch = folder.join(format!("{suite}.partial"));
        // Of a run that was ended.
        drop(fs::remove_dir_all(&scratch));
        fetch(&scratch, suite).with_context(|| format!("the kernel of {suite} cannot be fetched"))?;
        fs::rename(scratch.join("tree"), &tree)?;
        fs::remove_dir_all(&scratch)?;
    }
    let modules = only_entry(&tree.join("lib/modules"))?;
    let release = modules.file_name().and_then(|name| name.to_str()).context("a release")?.to_owned();
    let places = [tree.join("boot").join(format!("vmlinuz-{release}")), modules.join("vmlinuz")];
    let image = places.into_iter().find(|place| place.exists());
    let image = image.with_context(|| format!("{} has no vmlinuz: remove it to fetch it again", tree.display()))?;
    Ok(Kernel { suite: suite.to_owned(), image, modules })
}

fn fetch(scratch: &Path, suite: &str) -> Result<()> {
    for part in ["lists/partial", "cache/archives/partial", "packages", "tree/usr/lib"] {
        fs::create_dir_all(scratch.join(part))?;
    }
    let scratch = scratch.canonicalize()?;
    // As where /usr is merged, for packages from before and after.
    std::os::unix::fs::symlink("usr/lib", scratch.join("tree/lib"))?;
    let mirror = mirror()?;
    fs::write(scratch.join("status"), "")?;
    let source = format!("deb [arch=amd64 signed-by={KEYRING}] {mirror} {suite} main\n");
    fs::write(scratch.join("sources.list"), source)?;
    let apt = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        let places = [
            ("Dir::State", ""),
            ("Dir::State::Lists", "lists"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc::SourceList", "sources.list"),
        ];
        for (key, place) in places {
            command.arg("-o").arg(format!("{key}={}", scratch.join(place).display()));
        }
        for option in [
            "Dir::Etc::SourceParts=-",
            "APT::Architecture=amd64",
            "APT::Architectures::=amd64",
            "APT::Sandbox::User=root",
            "APT::Update::Error-Mode=any",
            "Acquire::Languages=none",
        ] {
            command.args(["-o", option]);
        }
        command.args(arguments).current_dir(scratch.join("packages")).env("LC_ALL", "C");
        Ok::<_, anyhow::Error>(String::from_utf8(output(&mut command)?)?)
    };
    apt("apt-get", &["-qq", "update"])?;
    let dependencies = |package: &str| -> Result<Vec<String>> {
        let printed = apt("apt-cache", &["depends", "--no-recommends", "--no-suggests", package])?;
        let names = printed.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
        // The kernel's own packages alone: in sid image and modules are in two more.
        let own = names.filter(|name| name.starts_with("linux-") && name.ends_with("-cloud-amd64"));
        Ok(own.map(str::to_owned).collect())
    };
    let Some(newest) = dependencies(NEWEST)?.into_iter().find(|name| name.starts_with("linux-image-")) else {
        bail!("{NEWEST} of {suite} depends on no kernel")
    };
    let mut packages = dependencies(&newest)?;
    packages.push(newest);
    let mut download = vec!["-qq", "download"];
    download.extend(packages.iter().map(String::as_str));
    apt("apt-get", &download)?;
    let tree = scratch.join("tree");
    for package in fs::read_dir(scratch.join("packages"))? {
        // Through tar, which keeps the link from lib to usr/lib.
        let script = "dpkg-deb --fsys-tarfile \"$0\" | tar -x --keep-directory-symlink -C \"$1\"";
        output(Command::new("sh").args(["-c", script]).arg(package?.path()).arg(&tree))?;
    }
    let modules = only_entry(&tree.join("lib/modules"))?;
    output(Command::new("depmod").arg("-b").arg(&tree).arg(modules.file_name().context("a release")?))?;
    Ok(())
}

/// The address of the mirror, of the source that this machine's own release comes from.
fn mirror() -> Result<String> {
    let system = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let release = system.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).unwrap_or_default();
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]);
    let targets = String::from_utf8(output(&mut command)?)?;
    let mirror = targets.lines().find_map(|line| line.strip_prefix(&format!("{release} main ")));
    Ok(mirror
        .with_context(|| format!("apt has no source for {release} main, whose mirror has the kernels"))?
        .to_owned())
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let entries: Vec<_> = entries.collect::<Result<_, _>>()?;
    let [entry] = entries.as_slice() else { bail!("{} has {} entries, not one", folder.display(), entries.len()) };
    Ok(entry.path())
}
