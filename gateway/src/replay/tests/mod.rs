//! A replay as its caller sees it.

mod files;
mod moments;
mod output;
mod width;

use std::fs;
use std::path::{Path, PathBuf};

use spand_capture::{LinkType, PcapWriter};
use spand_core::config::EngineConfig;
use spand_proto::units::Micros;

use super::*;

const NOW: Timestamp = Timestamp(1_500_000_100_000_000_000);

#[derive(Default)]
struct States(Vec<State>);

impl Sink for States {
    fn state(&mut self, state: &State) -> io::Result<()> {
        self.0.push(state.clone());
        Ok(())
    }

    fn progress(&mut self, _: Progress) {}
}

fn options(files: &[&Path]) -> Options {
    let files = files.iter().map(|&path| PathBuf::from(path)).collect();
    Options { files, engine: EngineConfig::default(), moments: Moments::End }
}

/// A capture of `packets` frames that are no TCP, one a second.
fn capture(path: &Path, packets: u64) {
    let file = fs::File::create(path).unwrap();
    let mut writer = PcapWriter::new(file, LinkType::ETHERNET, 65_535).unwrap();
    for second in 0..packets {
        writer.write(Timestamp(NOW.0 + second * 1_000_000_000), 60, &[0; 60]).unwrap();
    }
}
