//! Accounts and sums of memory in bytes. An account counts what is held, entries times their size, and a limit bounds it. A sum is the
//! most that tables take, with what the allocator adds.

/// What the allocator's own account adds to a piece of memory, and the step in which pieces grow (glibc's `malloc` on 64 bits).
const HEADER: usize = 8;
const STEP: usize = 16;
const LEAST: usize = 32;

/// Bytes that a piece of memory of `bytes` takes; none for an empty one.
#[must_use]
pub const fn allocated(bytes: usize) -> usize {
    if bytes == 0 {
        return 0;
    }
    let whole = (bytes + HEADER).next_multiple_of(STEP);
    if whole < LEAST { LEAST } else { whole }
}

/// The same for room for `count` of `T`.
#[must_use]
pub const fn allocated_for<T>(count: usize) -> usize {
    allocated(count.saturating_mul(size_of::<T>()))
}

/// The same for a `T` by itself.
#[must_use]
pub const fn boxed<T>() -> usize {
    allocated(size_of::<T>())
}

/// What one connection holds in addition to its slot in the table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Held {
    /// Outstanding segments and ranges of sequence space that there is room for.
    pub(crate) segments: u32,
    /// Bytes of its senders, with all else that they may allocate.
    pub(crate) sender_bytes: u32,
    /// Some data of a sender that holds more than [`FEW_SEGMENTS`] was never acknowledged, nor any other.
    pub(crate) unacknowledged: bool,
}

/// Segments of a sender for which there is always room: what is left of one that had to give some.
pub(crate) const FEW_SEGMENTS: usize = 4;

impl Held {
    /// Of both senders.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            segments: self.segments.saturating_add(other.segments),
            sender_bytes: self.sender_bytes.saturating_add(other.sender_bytes),
            unacknowledged: self.unacknowledged || other.unacknowledged,
        }
    }

    /// Whether it has segments to give.
    pub(crate) fn is_much(self) -> bool {
        self.segments > number(2 * FEW_SEGMENTS)
    }
}

/// What an engine's accounts in bytes have come to, and how far they may.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemoryUse {
    /// Of outstanding segments and ranges of sequence space.
    pub segments: Account,
    /// Of all else that is kept of senders.
    pub senders: Account,
    /// Of the samples in networks' windows.
    pub networks: Account,
}

/// Bytes in use, and how many may be.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Account {
    /// In use.
    pub used_bytes: usize,
    /// At most.
    pub limit_bytes: usize,
}

impl Account {
    pub(crate) const fn up_to(limit_bytes: usize) -> Self {
        Self { used_bytes: 0, limit_bytes }
    }

    /// What took `before` takes `now`.
    pub(crate) fn change(&mut self, before: u32, now: u32) {
        let more = self.used_bytes + usize::try_from(now).unwrap_or(usize::MAX);
        self.used_bytes = more.saturating_sub(usize::try_from(before).unwrap_or(usize::MAX));
    }

    pub(crate) const fn is_over(&self) -> bool {
        self.used_bytes > self.limit_bytes
    }

    /// Both together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            used_bytes: self.used_bytes.saturating_add(other.used_bytes),
            limit_bytes: self.limit_bytes.saturating_add(other.limit_bytes),
        }
    }
}

impl MemoryUse {
    /// Of several engines together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self {
            segments: self.segments.with(other.segments),
            senders: self.senders.with(other.senders),
            networks: self.networks.with(other.networks),
        }
    }
}

/// Bytes of room for `count` of `T` in a list that grew to it: such lists double.
#[must_use]
pub const fn listed<T>(count: usize) -> usize {
    if count == 0 { 0 } else { allocated_for::<T>(count.next_power_of_two()) }
}

/// The same for a hash table of `T`, which is at most seven eighths full.
#[must_use]
pub const fn hashed<T>(count: usize) -> usize {
    let places = (count.saturating_mul(8) / 7).next_power_of_two();
    places.saturating_mul(size_of::<T>() + 1)
}

/// The same for a B-tree of `K` and `V`: with 11 places a node, of which about half are taken where entries come in order.
#[must_use]
pub const fn treed<K, V>(count: usize) -> usize {
    const LINKS: usize = 4;
    count.saturating_mul(2 * (size_of::<K>() + size_of::<V>() + LINKS))
}

/// As the number that an entry keeps.
pub(crate) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_takes_what_the_allocator_hands_out() {
        assert_eq!([0, 1, 24, 25, 40, 128, 400].map(allocated), [0, 32, 32, 48, 48, 144, 416]);
    }
}
