//! Numbers as bytes: whole ones as LEB128 (seven bits a byte, the lowest first), fractions as IEEE 754, little endian.

use std::net::IpAddr;

/// Why an entry was left out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum RecordError {
    /// Too short to hold anything.
    #[error("the entry is cut short")]
    Short,
    /// Key, format and payload do not match the checksum.
    #[error("the entry's checksum is wrong")]
    Checksum,
    /// A format of another gateway, or none at all.
    #[error("the entry has format {0}, which this gateway does not know")]
    Format(u8),
    /// The checksum is right and the payload still makes no record.
    #[error("the entry holds nonsense")]
    Nonsense,
}

/// Bytes being written.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(super) fn whole(&mut self, mut number: u64) {
        while number >= 0x80 {
            // The low seven bits, and that more follow.
            self.bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }

    pub(super) fn fraction(&mut self, number: f64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// An address without its family.
    pub(super) fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.bytes.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => self.bytes.extend_from_slice(&address.octets()),
        }
    }
}

/// Bytes being read.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl Reader<'_> {
    pub(super) fn byte(&mut self) -> Result<u8, RecordError> {
        let (byte, rest) = self.rest.split_first().ok_or(RecordError::Nonsense)?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(super) fn whole(&mut self) -> Result<u64, RecordError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let placed = bits << shift;
            if placed >> shift != bits {
                return Err(RecordError::Nonsense);
            }
            number |= placed;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(RecordError::Nonsense)
    }

    pub(super) fn whole_u32(&mut self) -> Result<u32, RecordError> {
        u32::try_from(self.whole()?).map_err(|_| RecordError::Nonsense)
    }

    pub(super) fn fraction(&mut self) -> Result<f64, RecordError> {
        self.array().map(f64::from_le_bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(RecordError::Nonsense)?;
        self.rest = rest;
        Ok(*array)
    }

    /// A list of entries that take at least `least` bytes each: a count that the bytes cannot hold allocates nothing.
    pub(super) fn list<T>(
        &mut self,
        least: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, RecordError>,
    ) -> Result<Vec<T>, RecordError> {
        let count = usize::try_from(self.whole()?).map_err(|_| RecordError::Nonsense)?;
        if count > self.rest.len() / least {
            return Err(RecordError::Nonsense);
        }
        (0..count).map(|_| entry(self)).collect()
    }
}
