//! Numbers as bytes: whole ones as LEB128 (seven bits a byte, the lowest first), fractions as IEEE 754, little endian.

use std::net::IpAddr;

/// Why bytes make no value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Malformed {
    /// They end too early.
    Short,
    /// No value has these.
    Nonsense,
}

/// Bytes being written.
#[derive(Debug, Default)]
pub struct Writer {
    /// Written so far.
    pub bytes: Vec<u8>,
}

impl Writer {
    /// A byte.
    pub fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// A whole number, the shorter the smaller it is.
    pub fn whole(&mut self, mut number: u64) {
        while number >= 0x80 {
            // The low seven bits, and that more follow.
            self.bytes.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.bytes.push(number.to_le_bytes()[0]);
    }

    /// A whole number in eight bytes: shorter where most bits are random.
    pub fn fixed(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// A fraction.
    pub fn fraction(&mut self, number: f64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// An address without its family.
    pub fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.bytes.extend_from_slice(&address.octets()),
            IpAddr::V6(address) => self.bytes.extend_from_slice(&address.octets()),
        }
    }
}

/// Bytes being read.
#[derive(Debug)]
pub struct Reader<'a> {
    /// Not read yet.
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A byte.
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.rest.split_first().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*byte)
    }

    /// A whole number, the shorter the smaller it is.
    pub fn whole(&mut self) -> Result<u64, Malformed> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            let placed = bits << shift;
            if placed >> shift != bits {
                return Err(Malformed::Nonsense);
            }
            number |= placed;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed::Nonsense)
    }

    /// A whole number of a narrower type.
    pub fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, Malformed> {
        T::try_from(self.whole()?).map_err(|_| Malformed::Nonsense)
    }

    /// A whole number in eight bytes.
    pub fn fixed(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    /// A fraction.
    pub fn fraction(&mut self) -> Result<f64, Malformed> {
        self.array().map(f64::from_le_bytes)
    }

    /// As many bytes as the array has.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(*array)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// That nothing follows.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Nonsense) }
    }

    /// A list of entries that take at least `least` bytes each: a count that the bytes cannot hold allocates nothing.
    pub fn list<T, E: From<Malformed>>(
        &mut self,
        least: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let count = usize::try_from(self.whole()?).map_err(|_| Malformed::Short)?;
        if count > self.rest.len() / least {
            return Err(Malformed::Short.into());
        }
        (0..count).map(|_| entry(self)).collect()
    }
}

/// Values after a presence byte, which has a bit for each, from the lowest.
pub fn optional<T: Copy, const N: usize>(out: &mut Writer, values: &[Option<T>; N], write: impl Fn(&mut Writer, T)) {
    out.byte(bits(values.each_ref().map(Option::is_some)));
    for value in values.iter().flatten() {
        write(out, *value);
    }
}

/// Values after a presence byte.
pub fn read_optional<T: Copy, const N: usize>(
    input: &mut Reader<'_>,
    read: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<[Option<T>; N], Malformed> {
    let present: [bool; N] = flags(input.byte()?)?;
    let mut values = [None; N];
    for (value, present) in values.iter_mut().zip(present) {
        *value = present.then(|| read(input)).transpose()?;
    }
    Ok(values)
}

/// One bit for each flag, from the lowest.
pub fn bits<const N: usize>(flags: [bool; N]) -> u8 {
    flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag))
}

/// The flags of a byte that has no other bit set.
pub fn flags<const N: usize>(byte: u8) -> Result<[bool; N], Malformed> {
    if u32::from(byte) >> N != 0 {
        return Err(Malformed::Nonsense);
    }
    Ok(std::array::from_fn(|place| byte >> place & 1 == 1))
}
