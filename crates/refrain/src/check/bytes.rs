//! Exact sets of bytes.

use crate::plan::{Block, Operand, Range};

/// Maximum number of pieces per operand. An operand with more counts as everything between its first and its last byte,
/// which may report a conflict that does not exist, but misses none.
const MAX_PIECES: usize = 1 << 16;

/// A set of bytes of one block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Bytes {
    pub block: Block,
    /// Start and end of each piece, ascending, with gaps in between.
    pieces: Vec<(u64, u64)>,
}

impl Bytes {
    /// The bytes of an operand's elements, without the gaps between them.
    pub fn of(operand: &Operand) -> Bytes {
        let (layout, size) = (&operand.layout, operand.dtype.size() as u64);
        let block = operand.place.block;
        if layout.count() == 0 {
            return Bytes { block, pieces: vec![] };
        }
        let mut dimensions: Vec<(u64, u64)> = layout
            .shape
            .iter()
            .zip(&layout.strides)
            .filter(|&(&n, &stride)| n > 1 && stride > 0)
            .map(|(&n, &stride)| (n as u64, stride as u64 * size))
            .collect();
        dimensions.sort_by_key(|&(_, stride)| stride);
        // The innermost dimensions without gaps form one piece, which the other dimensions repeat.
        let mut piece = size;
        let mut repeated = dimensions.as_slice();
        while let Some((&(n, stride), rest)) = repeated.split_first().filter(|((_, stride), _)| *stride <= piece) {
            piece += stride * (n - 1);
            repeated = rest;
        }
        let count = repeated.iter().map(|&(n, _)| n as usize).product::<usize>();
        if count > MAX_PIECES {
            let Range { start, end, .. } = operand.range();
            return Bytes::whole(block, start, end);
        }
        let mut starts = vec![operand.place.offset + layout.offset as u64 * size];
        for &(n, stride) in repeated {
            starts = (0..n)
                .flat_map(|i| starts.iter().map(move |start| start + i * stride))
                .collect();
        }
        starts.sort_unstable();
        let mut pieces: Vec<(u64, u64)> = Vec::with_capacity(starts.len());
        for start in starts {
            match pieces.last_mut() {
                Some((_, end)) if *end >= start => *end = (*end).max(start + piece),
                _ => pieces.push((start, start + piece)),
            }
        }
        Bytes { block, pieces }
    }

    /// Bytes `start..end`.
    pub fn whole(block: Block, start: u64, end: u64) -> Bytes {
        let pieces = if start < end { vec![(start, end)] } else { vec![] };
        Bytes { block, pieces }
    }

    /// Start and end of each piece, ascending.
    pub fn pieces(&self) -> &[(u64, u64)] {
        &self.pieces
    }

    /// The first bytes that are in both sets.
    pub fn common(&self, other: &Bytes) -> Option<Range> {
        let (Some(mine), Some(theirs)) = (self.hull(), other.hull()) else {
            return None;
        };
        if self.block != other.block || mine.1 <= theirs.0 || theirs.1 <= mine.0 {
            return None;
        }
        let (mut a, mut b) = (self.pieces.iter().peekable(), other.pieces.iter().peekable());
        while let (Some(&&(start, end)), Some(&&(other_start, other_end))) = (a.peek(), b.peek()) {
            let (first, last) = (start.max(other_start), end.min(other_end));
            if first < last {
                return Some(Range {
                    block: self.block,
                    start: first,
                    end: last,
                });
            }
            if end <= other_end {
                a.next();
            } else {
                b.next();
            }
        }
        None
    }

    fn hull(&self) -> Option<(u64, u64)> {
        Some((self.pieces.first()?.0, self.pieces.last()?.1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::Bytes;
    use crate::plan::{Block, Operand, Place, Range};
    use crate::{DType, Layout};

    fn operand(dtype: DType, offset: u64, layout: Layout) -> Operand {
        let place = Place {
            block: Block::Scratch,
            offset,
        };
        Operand { place, dtype, layout }
    }

    /// Layouts with gaps, overlaps, repetitions and transpositions.
    fn layouts() -> Vec<Layout> {
        let whole = Layout::contiguous(&[3, 4, 5]);
        vec![
            whole.clone(),
            whole.permute(&[2, 0, 1]),
            whole.slice(&[1, 1, 2], &[3, 4, 4], &[1, 1, 1]),
            whole.slice(&[0, 0, 0], &[3, 4, 5], &[2, 3, 2]).permute(&[1, 2, 0]),
            whole.slice(&[2, 0, 1], &[3, 4, 2], &[1, 2, 1]),
            whole.slice(&[1, 0, 0], &[1, 4, 5], &[1, 1, 1]),
            Layout::contiguous(&[1, 5]).broadcast(&[4, 5]).expect("rows repeat"),
            Layout {
                shape: vec![4, 3].into(),
                strides: vec![2, 3].into(),
                offset: 1,
            },
            Layout::contiguous(&[]),
        ]
    }

    #[test]
    fn bytes_of_an_operand_are_exactly_those_of_its_elements() {
        for layout in layouts() {
            let operand = operand(DType::F16, 6, layout.clone());
            let mut each = HashSet::new();
            layout.for_each(|index| each.extend([6 + 2 * index as u64, 7 + 2 * index as u64]));
            let found = Bytes::of(&operand);
            let held: Vec<u64> = found.pieces.iter().flat_map(|&(start, end)| start..end).collect();
            assert_eq!(held.len(), each.len(), "{layout}: {found:?}");
            assert!(held.iter().all(|at| each.contains(at)), "{layout}: {found:?}");
        }
    }

    #[test]
    fn common_bytes_match_a_bytewise_intersection() {
        let sets: Vec<Bytes> = (layouts().into_iter().enumerate())
            .map(|(number, layout)| Bytes::of(&operand(DType::U8, 3 * number as u64, layout)))
            .collect();
        for a in &sets {
            for b in &sets {
                let held = |set: &Bytes| set.pieces.iter().flat_map(|&(s, e)| s..e).collect::<HashSet<u64>>();
                let first = held(a).intersection(&held(b)).min().copied();
                assert_eq!(a.common(b).map(|range| range.start), first, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn adjacent_columns_and_different_blocks_share_no_bytes() {
        let rows = Layout::contiguous(&[8, 6]);
        let columns = |first, last| operand(DType::F32, 0, rows.slice(&[0, first], &[8, last], &[1, 1]));
        let (left, right) = (Bytes::of(&columns(0, 2)), Bytes::of(&columns(2, 6)));
        assert_eq!(left.common(&right), None);
        let wider = Bytes::of(&columns(1, 3));
        let (block, start, end) = (Block::Scratch, 8, 12);
        assert_eq!(wider.common(&right), Some(Range { block, start, end }));
        let elsewhere = Bytes {
            block: Block::Control,
            ..wider.clone()
        };
        assert_eq!(elsewhere.common(&wider), None);
    }
}
