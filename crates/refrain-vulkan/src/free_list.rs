//! The free list of a memory block.

use std::collections::BTreeMap;

/// Alignment of every range in bytes.
pub(crate) const ALIGNMENT: u64 = 256;

/// Rounds `bytes` up to the alignment. Returns at least [`ALIGNMENT`].
pub(crate) fn align_up(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(ALIGNMENT)
}

/// The free ranges of a block: first fit, adjacent ranges merged.
#[derive(Debug)]
pub(crate) struct FreeList {
    total: u64,
    /// Start of each free range to its length.
    free: BTreeMap<u64, u64>,
}

impl FreeList {
    /// Creates the list of an empty block. `total` is a multiple of [`ALIGNMENT`].
    pub fn new(total: u64) -> Self {
        debug_assert_eq!(total % ALIGNMENT, 0);
        Self {
            total,
            free: BTreeMap::from([(0, total)]),
        }
    }

    /// Allocates `bytes`, a multiple of [`ALIGNMENT`]. Returns the start, or `None` if no free range is long enough.
    pub fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let (&start, &length) = self.free.iter().find(|(_, length)| **length >= bytes)?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Frees a range.
    pub fn free(&mut self, start: u64, bytes: u64) {
        let (mut start, mut bytes) = (start, bytes);
        if let Some(next) = self.free.remove(&(start + bytes)) {
            bytes += next;
        }
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            self.free.remove(&before);
            (start, bytes) = (before, bytes + length);
        }
        self.free.insert(start, bytes);
    }

    /// Whether the whole block is free.
    pub fn is_empty(&self) -> bool {
        self.free.get(&0) == Some(&self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rounds_lengths_up_to_the_alignment() {
        assert_eq!(
            [align_up(0), align_up(1), align_up(256), align_up(257)],
            [256, 256, 256, 512]
        );
    }

    proptest! {
        #[test]
        fn allocated_ranges_never_overlap_and_merge_when_freed(
            steps in prop::collection::vec((any::<bool>(), 0..20u64), 1..200)
        ) {
            let total = 64 * ALIGNMENT;
            let mut list = FreeList::new(total);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (take, pick) in steps {
                if take || taken.is_empty() {
                    let bytes = align_up(pick * ALIGNMENT);
                    if let Some(start) = list.allocate(bytes) {
                        prop_assert!(start + bytes <= total);
                        let disjoint = |&(s, b): &(u64, u64)| s + b <= start || start + bytes <= s;
                        prop_assert!(taken.iter().all(disjoint));
                        taken.push((start, bytes));
                    }
                } else {
                    let (start, bytes) = taken.swap_remove(pick as usize % taken.len());
                    list.free(start, bytes);
                }
            }
            for (start, bytes) in taken {
                list.free(start, bytes);
            }
            prop_assert!(list.is_empty());
            prop_assert_eq!(list.allocate(total), Some(0));
        }
    }
}
