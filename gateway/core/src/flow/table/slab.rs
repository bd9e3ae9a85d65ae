//! Entries under a number that stays theirs, in chunks so that growing never moves one.

/// Entries per chunk: enough that the list of chunks stays in the cache.
const CHUNK: usize = 4_096;

/// A slab: what is taken out leaves a place that the next entry fills.
#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Stores `entry`; `None` (and the entry is dropped) past 2^32 entries.
    pub(super) fn insert(&mut self, entry: T) -> Option<u32> {
        let index = self.free.pop().or_else(|| self.append())?;
        *self.place_mut(index)? = Some(entry);
        self.len += 1;
        Some(index)
    }

    fn append(&mut self) -> Option<u32> {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let full_chunks = self.chunks.len().checked_sub(1)?;
        let chunk = self.chunks.last_mut()?;
        let index = u32::try_from(full_chunks * CHUNK + chunk.len()).ok()?;
        chunk.push(None);
        Some(index)
    }

    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let entry = self.place_mut(index)?.take()?;
        self.free.push(index);
        self.len -= 1;
        Some(entry)
    }

    pub(super) fn get(&self, index: u32) -> Option<&T> {
        let (chunk, place) = split(index);
        self.chunks.get(chunk)?.get(place)?.as_ref()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().flatten()
    }

    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.place_mut(index)?.as_mut()
    }

    fn place_mut(&mut self, index: u32) -> Option<&mut Option<T>> {
        let (chunk, place) = split(index);
        self.chunks.get_mut(chunk)?.get_mut(place)
    }
}

fn split(index: u32) -> (usize, usize) {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    (index / CHUNK, index % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_and_the_others_stay() {
        let mut slab = Slab::new();
        let indices: Vec<u32> = (0..1_000).map(|n| slab.insert(n).unwrap()).collect();
        assert_eq!(slab.remove(indices[300]), Some(300));
        assert_eq!(slab.remove(indices[300]), None);
        assert_eq!(slab.get(indices[300]), None);
        assert_eq!(slab.insert(7), Some(indices[300]));
        assert_eq!(slab.get(indices[999]), Some(&999));
        assert_eq!(slab.len(), 1_000);
    }
}
