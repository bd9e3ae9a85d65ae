//! What is kept of a case: the capture cut to its headers, the kernel's account, and how the lab did.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use spand_capture::{LinkType, Next, PacketSource, PcapWriter, open_file};

use super::list::folder;
use crate::accuracy::cell::Recording;
use crate::accuracy::result::Health;
use crate::lab::truth::Row;

/// Recorded once and read by every test run: the slowest but one.
const ZSTD_LEVEL: i32 = 19;
/// Link, IPv6 and TCP headers with all options.
const HEADERS_MOST: u32 = 14 + 40 + 60;
/// What stands before the name of a case, in the line above its account.
const ACCOUNT: &str = "# ";

/// What the lab says of the recording of one case.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Recorded {
    /// The guest's kernel, as `uname -r` prints it; none where it was this machine's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Network of the clients.
    pub network: IpNet,
    /// How the lab did.
    pub health: Health,
}

/// By name of the case.
pub type AllRecorded = BTreeMap<String, Recorded>;

/// Where the capture of a case lies.
pub fn capture_file(name: &str) -> PathBuf {
    folder().join(format!("{name}.pcap.zst"))
}

/// Where the accounts of all cases of one congestion control lie, which is the first word of their names.
fn truth_file(name: &str) -> PathBuf {
    let control = name.split('-').next().unwrap_or(name);
    folder().join(format!("{control}.truth.csv.zst"))
}

/// The accounts in a file, by name of the case; none where there is no such file.
fn read_accounts(file: &Path) -> Result<BTreeMap<String, String>> {
    if !file.exists() {
        return Ok(BTreeMap::new());
    }
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let text = String::from_utf8(zstd::decode_all(opened)?)?;
    let accounts = text.split(ACCOUNT).filter_map(|account| account.split_once('\n'));
    Ok(accounts.map(|(name, csv)| (name.to_owned(), csv.to_owned())).collect())
}

fn recorded_file() -> PathBuf {
    folder().join("recorded.json")
}

/// Puts the account of a case into its file, in place of the one that is there.
fn keep_account(file: &Path, name: &str, account: String) -> Result<()> {
    let mut accounts = read_accounts(file)?;
    accounts.insert(name.to_owned(), account);
    let mut out = compressed(file)?;
    for (name, csv) in &accounts {
        write!(out, "{ACCOUNT}{name}\n{csv}")?;
    }
    out.finish()?.flush()?;
    Ok(())
}

/// What was recorded so far; nothing where there is no such file.
pub fn read_recorded() -> Result<AllRecorded> {
    let file = recorded_file();
    if !file.exists() {
        return Ok(AllRecorded::new());
    }
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} does not say what was recorded", file.display()))
}

/// Writes what [`read_recorded`] reads.
pub fn write_recorded(recorded: &AllRecorded) -> Result<()> {
    let file = recorded_file();
    let text = serde_json::to_string_pretty(recorded)? + "\n";
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Keeps the capture and the account of a case.
pub fn keep(name: &str, capture: &Path, recording: &Recording) -> Result<()> {
    keep_capture(capture, &capture_file(name))?;
    let mut csv = csv::Writer::from_writer(Vec::new());
    for row in &recording.rows {
        csv.serialize(slim(row))?;
    }
    let account = String::from_utf8(csv.into_inner().context("cannot end the account")?)?;
    keep_account(&truth_file(name), name, account)
}

/// Reads what [`keep`] wrote.
pub fn read(name: &str, recorded: &Recorded) -> Result<Recording> {
    let file = truth_file(name);
    let accounts = read_accounts(&file)?;
    let account = accounts.get(name).with_context(|| format!("{} has no account of {name}", file.display()))?;
    let mut csv = csv::Reader::from_reader(account.as_bytes());
    let rows: Vec<Row> =
        csv.deserialize().collect::<Result<_, _>>().with_context(|| format!("{name} in {}", file.display()))?;
    Ok(Recording { rows, health: recorded.health, network: recorded.network })
}

/// What the account says twice, or finer than anybody asks, and what packs badly: whole microseconds, no pacing rate, and
/// no bytes acknowledged (`snd_una` says so).
fn slim(row: &Row) -> Row {
    Row { time_ns: row.time_ns / 1_000 * 1_000, pacing_rate: None, bytes_acked: None, ..*row }
}

fn compressed(file: &Path) -> Result<zstd::Encoder<'static, BufWriter<File>>> {
    let out = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(zstd::Encoder::new(BufWriter::new(out), ZSTD_LEVEL)?)
}

fn keep_capture(from: &Path, to: &Path) -> Result<()> {
    let mut out = PcapWriter::new(compressed(to)?, LinkType::ETHERNET, HEADERS_MOST)?;
    let mut source = open_file(from)?;
    loop {
        match source.next_packet()? {
            Next::Packet(packet) => {
                let mut headers = packet.data.to_vec();
                headers.truncate(headers_bytes(packet.data));
                let tcp = headers.len() - tcp_bytes(packet.data).min(headers.len());
                // Nobody could check it without the payload, and it packs badly.
                headers.get_mut(tcp + 16..tcp + 18).unwrap_or_default().fill(0);
                out.write(packet.timestamp, packet.wire_len, &headers)?;
            }
            Next::Idle => {}
            Next::End => break,
        }
    }
    out.finish()?.finish()?;
    Ok(())
}

/// Bytes of the Ethernet, IP and TCP headers. For any other frame: all that may be kept of it.
fn headers_bytes(frame: &[u8]) -> usize {
    ip_end(frame).map_or(frame.len(), |end| end + tcp_bytes(frame))
}

fn tcp_bytes(frame: &[u8]) -> usize {
    ip_end(frame).and_then(|end| frame.get(end + 12)).map_or(0, |byte| usize::from(byte >> 4) * 4)
}

/// Where the IP header without extensions ends.
fn ip_end(frame: &[u8]) -> Option<usize> {
    let first = frame.get(14)?;
    match first >> 4 {
        4 => Some(14 + usize::from(first & 15) * 4),
        6 => Some(14 + 40),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_replaced_and_the_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reno.truth.csv.zst");
        assert_eq!(read_accounts(&file).unwrap(), BTreeMap::new());
        for (name, account) in [("reno-b", "a,b\n1,2\n"), ("reno-a", "a,b\n3,4\n"), ("reno-b", "a,b\n5,6\n")] {
            keep_account(&file, name, account.to_owned()).unwrap();
        }
        let expected = [("reno-a", "a,b\n3,4\n"), ("reno-b", "a,b\n5,6\n")].map(|(n, a)| (n.to_owned(), a.to_owned()));
        assert_eq!(read_accounts(&file).unwrap(), expected.into());
    }

    #[test]
    fn payload_is_cut_off() {
        let mut frame = vec![0; 14];
        frame.extend([0x45; 20]);
        frame.extend([0; 12]);
        frame.extend([0x80; 100]);
        assert_eq!(headers_bytes(&frame), 14 + 20 + 32);
        frame[14] = 0x60;
        frame[14 + 40 + 12] = 0x50;
        assert_eq!(headers_bytes(&frame), 14 + 40 + 20);
        assert_eq!(headers_bytes(&[]), 0);
    }
}
