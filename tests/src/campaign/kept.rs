//! Results on disk, and recordings packed beside them.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _, copy};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a file of JSON holds; `None` where there is none, or another thing in it.
pub fn read<T: DeserializeOwned>(file: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// Every result in `folder` and the folders in it, in order of their names.
pub fn read_all<T: DeserializeOwned>(folder: &Path) -> Result<Vec<T>> {
    let read = |file: &PathBuf| {
        let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no result: remove it", file.display()))
    };
    files(folder)?.iter().map(read).collect()
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Leaves a result: whole, or not at all.
pub fn write(file: &Path, result: &impl Serialize) -> Result<()> {
    whole(file, &serde_json::to_vec(result)?)
}

/// Writes a file, and the folders that it lies in: whole, or not at all.
pub fn whole(file: &Path, text: &[u8]) -> Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let beside = file.with_extension(format!("tmp-{}", std::process::id()));
    std::fs::write(&beside, text).with_context(|| format!("cannot write {}", beside.display()))?;
    std::fs::rename(&beside, file).with_context(|| format!("cannot write {}", file.display()))
}

/// Packs a file into another.
pub fn pack(from: &Path, to: &Path) -> Result<()> {
    let mut plain = BufReader::new(File::open(from).with_context(|| format!("cannot read {}", from.display()))?);
    let mut packed = packed(to)?;
    copy(&mut plain, &mut packed).with_context(|| format!("cannot pack {}", from.display()))?;
    packed.finish().and_then(|mut file| file.flush()).with_context(|| format!("cannot write {}", to.display()))
}

/// Writes rows as packed CSV.
pub fn write_rows(file: &Path, rows: &[impl Serialize]) -> Result<()> {
    let mut csv = csv::Writer::from_writer(packed(file)?);
    rows.iter().try_for_each(|row| csv.serialize(row))?;
    let packed = csv.into_inner().with_context(|| format!("cannot write {}", file.display()))?;
    packed.finish().and_then(|mut file| file.flush()).with_context(|| format!("cannot write {}", file.display()))
}

/// Reads what [`write_rows`] wrote.
pub fn read_rows<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>> {
    let packed = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut csv = csv::Reader::from_reader(GzDecoder::new(BufReader::new(packed)));
    csv.deserialize().collect::<Result<_, _>>().with_context(|| format!("{} has other rows", file.display()))
}

fn packed(file: &Path) -> Result<GzEncoder<BufWriter<File>>> {
    let file = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(GzEncoder::new(BufWriter::new(file), Compression::fast()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_in_order_from_folders_and_what_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for (name, value) in [("b/2.json", 2), ("a/3.json", 3), ("1.json", 1)] {
            write(&file(name), &value).unwrap();
        }
        std::fs::write(file("a/note.txt"), "no result").unwrap();
        assert_eq!(read_all::<u32>(folder.path()).unwrap(), [1, 3, 2]);
        assert_eq!((read(&file("1.json")), read(&file("4.json"))), (Some(1), None::<u32>));
        std::fs::write(file("a/4.json"), "{").unwrap();
        assert_eq!(read(&file("a/4.json")), None::<u32>);
        let fault = read_all::<u32>(folder.path()).unwrap_err().to_string();
        assert!(fault.contains("a/4.json is no result"), "{fault}");
    }

    #[test]
    fn rows_come_back_from_a_packed_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rows.csv.gz");
        write_rows(&file, &[(1, "a".to_owned()), (2, "b".to_owned())]).unwrap();
        // The first row stands for a head.
        assert_eq!(read_rows::<(u32, String)>(&file).unwrap(), [(2, "b".to_owned())]);
    }
}
