use std::fmt;

use smallvec::{SmallVec, smallvec};

/// Dimensions or strides. Up to four are stored inline, since programs hold them for every use of every result.
pub type Dimensions = SmallVec<[usize; 4]>;

/// Position of an operand's elements in its buffer: element `(i0, i1, …)` is at `offset + Σ strides[d] · i_d`, counted
/// in elements. A stride of 0 broadcasts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// Extent of each dimension; empty for a scalar.
    pub shape: Dimensions,
    /// Stride of each dimension, in elements.
    pub strides: Dimensions,
    /// Position of the first element.
    pub offset: usize,
}

impl Layout {
    /// Dense row-major layout from the start of the buffer.
    pub fn contiguous(shape: &[usize]) -> Layout {
        let mut strides: Dimensions = smallvec![1; shape.len()];
        for d in (1..shape.len()).rev() {
            strides[d - 1] = strides[d] * shape[d].max(1);
        }
        Layout {
            shape: shape.into(),
            strides,
            offset: 0,
        }
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements (1 for a scalar).
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the layout is dense and row-major, at any offset. Strides of dimensions with extent 1 do not matter. An
    /// empty layout is contiguous.
    pub fn is_contiguous(&self) -> bool {
        if self.count() == 0 {
            return true;
        }
        let mut expected = 1;
        for (&n, &s) in self.shape.iter().zip(&self.strides).rev() {
            if n != 1 && s != expected {
                return false;
            }
            expected *= n;
        }
        true
    }

    /// Position just after the last element, from the start of the buffer; 0 if there are no elements.
    pub fn end(&self) -> usize {
        if self.count() == 0 {
            return 0;
        }
        let last: usize = self.shape.iter().zip(&self.strides).map(|(&n, &s)| (n - 1) * s).sum();
        self.offset + last + 1
    }

    /// Merges adjacent dimensions where strides allow, and drops dimensions of extent 1. The result has the minimum
    /// number of nested loops that visit the elements in the same order.
    pub fn collapsed(&self) -> Layout {
        let mut shape = Dimensions::new();
        let mut strides = Dimensions::new();
        for (&n, &s) in self.shape.iter().zip(&self.strides) {
            if n == 1 {
                continue;
            }
            match (shape.last_mut(), strides.last_mut()) {
                (Some(outer), Some(stride)) if *stride == s * n => {
                    *outer *= n;
                    *stride = s;
                }
                _ => {
                    shape.push(n);
                    strides.push(s);
                }
            }
        }
        Layout {
            shape,
            strides,
            offset: self.offset,
        }
    }

    /// The same elements with another shape; `None` if that needs a copy.
    pub fn reshape(&self, shape: &[usize]) -> Option<Layout> {
        if shape.iter().product::<usize>() != self.count() {
            return None;
        }
        if self.count() == 0 {
            return Some(Layout {
                offset: self.offset,
                ..Layout::contiguous(shape)
            });
        }
        // Split the collapsed dimensions, innermost first; each new extent must divide its run.
        let runs = self.collapsed();
        let mut runs: Vec<(usize, usize)> = runs.shape.into_iter().zip(runs.strides).collect();
        let mut strides: Dimensions = smallvec![1; shape.len()];
        let (mut left, mut stride) = runs.pop().unwrap_or((1, 1));
        for d in (0..shape.len()).rev() {
            if shape[d] == 1 {
                strides[d] = stride;
                continue;
            }
            if left == 1 {
                (left, stride) = runs.pop()?;
            }
            if left % shape[d] != 0 {
                return None;
            }
            strides[d] = stride;
            stride *= shape[d];
            left /= shape[d];
        }
        Some(Layout {
            shape: shape.into(),
            strides,
            offset: self.offset,
        })
    }

    /// The same elements with permuted dimensions; `axes` is the permutation.
    pub fn permute(&self, axes: &[usize]) -> Layout {
        Layout {
            shape: axes.iter().map(|&a| self.shape[a]).collect(),
            strides: axes.iter().map(|&a| self.strides[a]).collect(),
            offset: self.offset,
        }
    }

    /// The layout that reads here what `view` reads of a contiguous array of the same shape; `None` unless that is all
    /// of it, with its dimensions in some order.
    pub fn permuted_as(&self, view: &Layout) -> Option<Layout> {
        let contiguous = Layout::contiguous(&self.shape);
        let is_dimension_of = |own: usize, d: usize| {
            let extents = [self.shape[own], view.shape[d]];
            extents[0] == extents[1] && extents[0] > 1 && contiguous.strides[own] == view.strides[d]
        };
        let mut strides: Dimensions = smallvec![0; view.rank()];
        let mut taken: Dimensions = smallvec![];
        for d in (0..view.rank()).filter(|&d| view.shape[d] != 1) {
            let own = (0..self.rank()).find(|own| is_dimension_of(*own, d) && !taken.contains(own))?;
            strides[d] = self.strides[own];
            taken.push(own);
        }
        (view.offset == 0 && view.count() == self.count()).then(|| Layout {
            shape: view.shape.clone(),
            strides,
            offset: self.offset,
        })
    }

    /// Broadcasts to `shape` by NumPy's rules; `None` if they do not allow it.
    pub fn broadcast(&self, shape: &[usize]) -> Option<Layout> {
        let missing = shape.len().checked_sub(self.rank())?;
        let mut strides: Dimensions = smallvec![0; shape.len()];
        for d in 0..self.rank() {
            match (self.shape[d], shape[missing + d]) {
                (a, b) if a == b => strides[missing + d] = self.strides[d],
                (1, _) => {}
                _ => return None,
            }
        }
        Some(Layout {
            shape: shape.into(),
            strides,
            offset: self.offset,
        })
    }

    /// Slices each dimension: elements `start[d], start[d] + step[d], …` before `stop[d]`. Steps are at least 1.
    pub fn slice(&self, start: &[usize], stop: &[usize], step: &[usize]) -> Layout {
        let mut out = self.clone();
        for d in 0..self.rank() {
            out.shape[d] = stop[d].saturating_sub(start[d]).div_ceil(step[d]);
            out.strides[d] = self.strides[d] * step[d];
            out.offset += self.strides[d] * start[d];
        }
        if out.count() == 0 {
            out.offset = self.offset;
        }
        out
    }

    /// Calls `visit` with the buffer index of every element, in row-major order.
    pub fn for_each(&self, mut visit: impl FnMut(usize)) {
        let runs = self.collapsed();
        if runs.count() == 0 {
            return;
        }
        let Some((&inner, outer)) = runs.shape.split_last() else {
            return visit(runs.offset);
        };
        let step = *runs.strides.last().expect("as many strides as extents");
        let mut index = vec![0; outer.len()];
        loop {
            let base: usize = index.iter().zip(&runs.strides).map(|(i, s)| i * s).sum::<usize>() + runs.offset;
            (0..inner).for_each(|i| visit(base + i * step));
            let Some(d) = (0..outer.len()).rev().find(|&d| index[d] + 1 < outer[d]) else {
                return;
            };
            index[d] += 1;
            index[d + 1..].fill(0);
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shape)?;
        if !self.is_contiguous() {
            write!(f, "/{:?}", self.strides)?;
        }
        if self.offset != 0 {
            write!(f, "+{}", self.offset)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshape_of_a_transposed_matrix_can_split_but_not_merge_dimensions() {
        let t = Layout::contiguous(&[4, 6]).permute(&[1, 0]);
        assert!(t.reshape(&[24]).is_none());
        let split = t.reshape(&[2, 3, 4]).expect("6 splits into 2 and 3");
        assert_eq!(split.strides[..], [3, 1, 6]);
    }

    #[test]
    fn permuted_view_of_a_copy_reads_the_same_elements_of_the_source() {
        let indices = |layout: &Layout| {
            let mut found = vec![];
            layout.for_each(|index| found.push(index));
            found
        };
        let source = Layout::contiguous(&[5, 3, 4]).permute(&[1, 0, 2]);
        let copied = indices(&source);
        let copy = Layout::contiguous(&source.shape);
        for view in [
            copy.permute(&[1, 0, 2]),
            copy.permute(&[2, 1, 0]).reshape(&[1, 4, 5, 1, 3]).expect("splits"),
        ] {
            let expected: Vec<usize> = indices(&view).into_iter().map(|index| copied[index]).collect();
            assert_eq!(indices(&source.permuted_as(&view).expect("permutes")), expected);
        }
        let part = copy.slice(&[0, 0, 0], &[3, 4, 4], &[1, 1, 1]);
        let merged = copy.reshape(&[15, 4]).expect("merges");
        let repeated = Layout::contiguous(&[1, 5, 4])
            .broadcast(&[3, 5, 4])
            .expect("broadcasts");
        for view in [part, merged, repeated] {
            assert_eq!(source.permuted_as(&view), None);
        }
        let windows = Layout {
            strides: smallvec![1, 1],
            ..Layout::contiguous(&[2, 2])
        };
        assert_eq!(Layout::contiguous(&[2, 2]).permute(&[1, 0]).permuted_as(&windows), None);
    }

    #[test]
    fn collapsed_merges_adjacent_dimensions() {
        let l = Layout::contiguous(&[2, 1, 3, 4]);
        assert_eq!(l.collapsed().shape[..], [24]);
        let s = l.slice(&[0, 0, 0, 0], &[2, 1, 3, 2], &[1, 1, 1, 1]);
        assert_eq!(s.collapsed().shape[..], [6, 2]);
        assert!(!s.is_contiguous());
    }

    #[test]
    fn empty_layouts_are_contiguous() {
        assert!(Layout::contiguous(&[3, 0, 5]).is_contiguous());
        assert!(
            Layout::contiguous(&[2, 3])
                .permute(&[1, 0])
                .slice(&[1, 0], &[1, 2], &[1, 1])
                .is_contiguous()
        );
    }

    #[test]
    fn for_each_visits_in_row_major_order() {
        let l = Layout::contiguous(&[2, 3]).permute(&[1, 0]);
        let mut seen = Vec::new();
        l.for_each(|i| seen.push(i));
        assert_eq!(seen, [0, 3, 1, 4, 2, 5]);
        let mut scalars = 0;
        Layout::contiguous(&[]).for_each(|_| scalars += 1);
        assert_eq!(scalars, 1);
        Layout::contiguous(&[0, 3]).for_each(|_| panic!("nothing to visit"));
    }

    #[test]
    fn broadcasting_follows_numpy() {
        let row = Layout::contiguous(&[3]);
        assert_eq!(row.broadcast(&[2, 3]).expect("rows repeat").strides[..], [0, 1]);
        assert!(row.broadcast(&[3, 2]).is_none());
        assert!(row.broadcast(&[]).is_none());
    }
}
