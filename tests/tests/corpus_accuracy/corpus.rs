//! Where the captures lie, and where the list of differences goes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::compare::Difference;
use crate::reference::Reference;

/// A capture file.
pub(crate) struct CaptureFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// The captures with reference numbers.
pub(crate) struct RealCorpus {
    pub(crate) files: Vec<CaptureFile>,
    pub(crate) reference: Reference,
}

/// `SPAND_CORPUS`, or `../shared/corpus` beside the repository.
fn root() -> PathBuf {
    std::env::var_os("SPAND_CORPUS").map_or_else(|| repository().join("../shared/corpus"), PathBuf::from)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The real captures, or nothing after saying loudly what is not tested.
pub(crate) fn real() -> Option<RealCorpus> {
    let folder = present(&root().join("captures-real"), 244)?;
    let reference = Reference::read(&folder.join("reference/ref_conn.tsv"));
    Some(RealCorpus { files: files_in(&folder.join("captures")), reference })
}

/// The damaged captures, or nothing after saying loudly what is not tested.
pub(crate) fn malformed() -> Option<Vec<CaptureFile>> {
    present(&root().join("captures-malformed"), 301).map(|folder| files_in(&folder.join("captures")))
}

fn present(folder: &Path, files: usize) -> Option<PathBuf> {
    if folder.is_dir() {
        return Some(folder.to_path_buf());
    }
    println!("NOT TESTED: {files} captures are missing because {} is not there", folder.display());
    assert!(std::env::var_os("SPAND_CORPUS").is_none(), "SPAND_CORPUS is set, but {} is not there", folder.display());
    None
}

fn files_in(folder: &Path) -> Vec<CaptureFile> {
    let mut files: Vec<CaptureFile> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| CaptureFile { name: path.file_name().unwrap().to_string_lossy().into_owned(), path })
        .collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

/// Writes the list of differences beside the build; returns where.
pub(crate) fn write_differences(differences: &[Difference]) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    fs::create_dir_all(&target).unwrap();
    let path = target.join("corpus-accuracy.tsv");
    let mut text = String::from("file\tsrc\tsport\tdst\tdport\tmetric\tours\ttheirs\tclass\n");
    for difference in differences {
        text.push_str(&difference.line());
        text.push('\n');
    }
    fs::write(&path, text).unwrap();
    path
}

/// The largest resident set of this process so far (`VmHWM`).
pub(crate) fn peak_memory_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1_024
}
