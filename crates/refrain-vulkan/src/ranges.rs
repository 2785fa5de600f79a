//! Sub-allocation of a block: which of its byte ranges are free.

use std::collections::BTreeMap;

/// Every range starts at a multiple of this many bytes.
pub(crate) const ALIGNMENT: u64 = 256;

/// `bytes` rounded up to the alignment; a range is never empty.
pub(crate) fn aligned(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(ALIGNMENT)
}

/// The free ranges of a block, first fit, neighbours joined.
#[derive(Debug)]
pub(crate) struct Ranges {
    total: u64,
    /// Start to length.
    free: BTreeMap<u64, u64>,
}

impl Ranges {
    /// A block that is free from end to end. `total` is a multiple of [`ALIGNMENT`].
    pub fn new(total: u64) -> Self {
        debug_assert_eq!(total % ALIGNMENT, 0);
        Self {
            total,
            free: BTreeMap::from([(0, total)]),
        }
    }

    /// Takes a range of `bytes`, a multiple of [`ALIGNMENT`]; its start, or `None` if no free
    /// range is long enough.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let (&start, &length) = self.free.iter().find(|(_, length)| **length >= bytes)?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    /// Gives a range back.
    pub fn give(&mut self, start: u64, bytes: u64) {
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

    /// Whether nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.free.get(&0) == Some(&self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_are_rounded_up_and_never_empty() {
        assert_eq!(
            [aligned(0), aligned(1), aligned(256), aligned(257)],
            [256, 256, 256, 512]
        );
    }

    proptest! {
        #[test]
        fn taken_ranges_never_overlap_and_all_comes_back(
            steps in prop::collection::vec((any::<bool>(), 0..20u64), 1..200)
        ) {
            let total = 64 * ALIGNMENT;
            let mut ranges = Ranges::new(total);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (take, pick) in steps {
                if take || taken.is_empty() {
                    let bytes = aligned(pick * ALIGNMENT);
                    if let Some(start) = ranges.take(bytes) {
                        prop_assert!(start + bytes <= total);
                        let apart = |&(s, b): &(u64, u64)| s + b <= start || start + bytes <= s;
                        prop_assert!(taken.iter().all(apart));
                        taken.push((start, bytes));
                    }
                } else {
                    let (start, bytes) = taken.swap_remove(pick as usize % taken.len());
                    ranges.give(start, bytes);
                }
            }
            for (start, bytes) in taken {
                ranges.give(start, bytes);
            }
            prop_assert!(ranges.is_empty());
            prop_assert_eq!(ranges.take(total), Some(0));
        }
    }
}
