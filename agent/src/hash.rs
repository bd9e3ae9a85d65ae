//! A hash that is fixed for ever, since hosts of different releases must agree by it. No secret is in it.

/// FNV-1a over the bytes, then the finaliser of splitmix64, which spreads what the last bytes change over all bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedHash(u64);

impl FixedHash {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    #[must_use]
    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self
    }

    pub(crate) const fn finish(self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::FixedHash;

    #[test]
    fn it_is_the_same_in_every_release() {
        assert_eq!(FixedHash::new().bytes(b"web-1").bytes(b"\0").finish(), FixedHash::new().bytes(b"web-1\0").finish());
        assert_eq!(FixedHash::new().bytes(b"web-1").finish(), 0xf576_b188_329f_7edd);
    }
}
