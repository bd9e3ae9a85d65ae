//! Hashes with a secret, so that no one can aim many keys at one place of a table.

use std::hash::{BuildHasher, Hasher};

/// Builds [`SeededHasher`]s: the same hash for keys of the standard library's types.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeededState(pub(crate) u64);

/// A hasher with a secret, for small keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeededHasher(u64);

impl BuildHasher for SeededState {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(self.0 ^ 0xa076_1d64_78bd_642f)
    }
}

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word, 0xe703_7ed1_a0b4_28db);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        fold(self.0 ^ 0x1d8e_4e27_c47d_124f, 0x8ebc_6af0_9c88_c6e3)
    }
}

/// Both halves of the 128-bit product, folded into one.
pub(crate) fn fold(a: u64, b: u64) -> u64 {
    let product = (u128::from(a) * u128::from(b)).to_le_bytes();
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = product;
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) ^ u64::from_le_bytes([i, j, k, l, m, n, o, p])
}
