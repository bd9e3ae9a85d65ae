//! Numbers in the byte order of the machine that wrote the file.

/// A file's, or a pcapng section's, byte order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// The number at `at`; `None` where the bytes end before it does.
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(raw),
            Self::Big => u16::from_be_bytes(raw),
        })
    }

    /// As [`Self::u16`], four bytes.
    #[inline]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(raw),
            Self::Big => u32::from_be_bytes(raw),
        })
    }

    /// As [`Self::u16`], eight bytes, signed.
    pub(super) fn i64(self, bytes: &[u8], at: usize) -> Option<i64> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => i64::from_le_bytes(raw),
            Self::Big => i64::from_be_bytes(raw),
        })
    }
}
