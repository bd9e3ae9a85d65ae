//! Opening a capture file: what it is, by its first bytes, never by its name.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::input::{Input, Meter};
use super::pcap::PcapRecords;
use super::pcapng::PcapngBlocks;
use super::{CaptureFile, Fault, Format};

/// Why a file cannot be read as a capture.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("cannot read {name}: {error}")]
    Read {
        /// Path or `standard input`.
        name: String,
        /// The error of the system or the decompressor.
        #[source]
        error: io::Error,
    },
    /// A directory was named.
    #[error("{name} is a directory; name the capture files in it")]
    Directory {
        /// Path.
        name: String,
    },
    /// There is not one byte.
    #[error("{name} is empty: nothing was captured into it")]
    Empty {
        /// Path or `standard input`.
        name: String,
    },
    /// It has no known format's magic number.
    #[error("{name} is not a pcap or pcapng capture: it starts with {start}{hint}")]
    NotACapture {
        /// Path or `standard input`.
        name: String,
        /// Its first bytes in hexadecimal.
        start: String,
        /// What it is instead and how to convert it, where that is known.
        hint: &'static str,
    },
    /// It starts as a capture but stops within the file header, or the header makes no sense.
    #[error("{name} is a {format} capture without a usable file header: {what}")]
    Header {
        /// Path or `standard input`.
        name: String,
        /// Which format.
        format: &'static str,
        /// What is wrong.
        what: String,
    },
}

/// Compressed data is taken in pieces of this size: what a piece holds before damage inside it is lost with the piece.
const DECOMPRESSED_PIECE_BYTES: usize = 4 << 10;
/// Compressed bytes read from the disk at a time.
const COMPRESSED_READ_BYTES: usize = 256 << 10;
/// Largest zstd window accepted, as a power of two: 128 MiB, what `zstd --long` and `--ultra` write by default. A frame
/// that asks for more is refused before memory is taken.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Opens a capture file; `-` is standard input.
///
/// Formats: pcap (microseconds and nanoseconds, both byte orders, and Kuznetzov's modified records) and pcapng, plain
/// or as gzip (several members) or zstd (several frames). The first bytes determine the format.
pub fn open_file(path: &Path) -> Result<CaptureFile, OpenError> {
    if path.as_os_str() == "-" {
        return from_reader("standard input".to_owned(), Box::new(io::stdin()), Meter::new(None));
    }
    let name = path.display().to_string();
    let opened = File::open(path).and_then(|file| file.metadata().map(|metadata| (file, metadata)));
    let (file, metadata) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err(OpenError::Read { name, error }),
    };
    if metadata.is_dir() {
        return Err(OpenError::Directory { name });
    }
    let meter = Meter::new(metadata.is_file().then_some(metadata.len()));
    from_reader(name, Box::new(file), meter)
}

/// Reads a capture from any byte stream.
pub(crate) fn from_reader(name: String, reader: Box<dyn Read + Send>, meter: Meter) -> Result<CaptureFile, OpenError> {
    let mut reader = meter.count(reader);
    let mut start = Vec::with_capacity(4);
    if let Err(error) = reader.by_ref().take(4).read_to_end(&mut start) {
        return Err(OpenError::Read { name, error });
    }
    let magic = start.clone();
    let whole = Cursor::new(start).chain(reader);
    let reader: Box<dyn Read + Send> = match magic.as_slice() {
        [0x1f, 0x8b, ..] => {
            Box::new(Pieces(MultiGzDecoder::new(BufReader::with_capacity(COMPRESSED_READ_BYTES, whole))))
        }
        // zstd, and a frame that is to be skipped, with which a file of pzstd begins (RFC 8878, 3.1.2).
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
            let buffered = BufReader::with_capacity(COMPRESSED_READ_BYTES, whole);
            let decoder = zstd::stream::read::Decoder::with_buffer(buffered).and_then(|mut decoder| {
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Ok(decoder)
            });
            match decoder {
                Ok(decoder) => Box::new(Pieces(decoder)),
                Err(error) => return Err(OpenError::Read { name, error }),
            }
        }
        _ => Box::new(whole),
    };
    let mut input = Input::new(reader);
    let format = match detect(&name, &mut input)? {
        Magic::Pcap(records) => records.map(Format::Pcap).map_err(|fault| ("pcap", fault)),
        Magic::Pcapng(blocks) => blocks.map(Format::Pcapng).map_err(|fault| ("pcapng", fault)),
    };
    match format {
        Ok(format) => Ok(CaptureFile::new(name, input, meter, format)),
        Err((_, Fault::Read(error))) => Err(OpenError::Read { name, error }),
        Err((format, Fault::Truncated { missing, .. })) => {
            Err(OpenError::Header { name, format, what: format!("it lacks {missing} bytes") })
        }
        Err((format, Fault::Damaged(what))) => Err(OpenError::Header { name, format, what }),
    }
}

/// Enough of a file's beginning for two records of a format without a magic number.
const PEEK_BYTES: usize = 2 << 10;

enum Magic {
    Pcap(Result<PcapRecords, Fault>),
    Pcapng(Result<PcapngBlocks, Fault>),
}

fn detect(name: &str, input: &mut Input) -> Result<Magic, OpenError> {
    let start = match input.peek(4) {
        Ok(start) => start,
        Err(error) => return Err(OpenError::Read { name: name.to_owned(), error }),
    };
    if start.is_empty() {
        return Err(OpenError::Empty { name: name.to_owned() });
    }
    if PcapngBlocks::recognises(start) {
        return Ok(Magic::Pcapng(PcapngBlocks::open(input)));
    }
    if PcapRecords::recognises(start) {
        return Ok(Magic::Pcap(PcapRecords::open(input)));
    }
    let first: Vec<u8> = start.iter().take(4).copied().collect();
    // What of it cannot be read is no reason to keep the rest from being recognised.
    let start = input.peek(PEEK_BYTES).unwrap_or(first.as_slice());
    let hint = match start {
        [b's', b'n', b'o', b'o', ..] => " (a Solaris snoop file; `editcap -F pcap` converts it)",
        [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] => " (compressed twice; decompress it once)",
        [0x1c, 0, 1, 0xab | 0xac, ..] | [0xab | 0xac, 1, 0, 0x1c, ..] => {
            " (Ixia's lcap; `editcap -F pcap` converts it)"
        }
        [0x04, 0x22, 0x4d, 0x18, ..] => " (lz4; decompress it first)",
        [b'B', b'Z', b'h', ..] => " (bzip2; decompress it first)",
        [0xfd, b'7', b'z', b'X', ..] => " (xz; decompress it first)",
        [b'P', b'K', ..] => " (a zip archive; unpack it first)",
        records if starts_as_erf(records) => " (Endace ERF; `editcap -F pcap` converts it)",
        _ => "",
    };
    let start = start.iter().take(4).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ");
    Err(OpenError::NotACapture { name: name.to_owned(), start, hint })
}

/// Whether these look like two records of Endace's format, which has no magic number: a time (fraction, then seconds), a type, the lengths of
/// the record and of the packet on the wire.
fn starts_as_erf(bytes: &[u8]) -> bool {
    const TYPES: std::ops::RangeInclusive<u8> = 1..=48;
    const SECONDS_APART: u32 = 86_400;
    let record = |bytes: &[u8]| {
        let &[_, _, _, _, s0, s1, s2, s3, kind, _, r0, r1, _, _, w0, w1] = bytes.first_chunk()?;
        let (len, wire_len) = (u16::from_be_bytes([r0, r1]), u16::from_be_bytes([w0, w1]));
        let sound = TYPES.contains(&(kind & 0x7f)) && len > 16 && wire_len > 0;
        sound.then_some((usize::from(len), u32::from_le_bytes([s0, s1, s2, s3])))
    };
    let Some((len, first)) = record(bytes) else { return false };
    let Some(rest) = bytes.get(len..).filter(|rest| !rest.is_empty()) else { return bytes.len() == len };
    record(rest).is_some_and(|(_, second)| second.abs_diff(first) <= SECONDS_APART)
}

/// A decompressor read in small pieces.
struct Pieces<R>(R);

impl<R: Read> Read for Pieces<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let piece = buffer.len().min(DECOMPRESSED_PIECE_BYTES);
        self.0.read(buffer.get_mut(..piece).unwrap_or_default()).map_err(|error| match error.kind() {
            kind @ io::ErrorKind::UnexpectedEof => io::Error::new(kind, "the compressed file is cut short"),
            _ => error,
        })
    }
}
