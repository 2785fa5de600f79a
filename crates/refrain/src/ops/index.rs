//! Choosing slices by index.

use super::{Caller, axis_of};
use crate::{Array, DType, Primitive};

pub(super) fn is_index(dtype: DType) -> bool {
    matches!(dtype, DType::U32 | DType::I32)
}

impl Array {
    /// The slices at `indices` (u32 or i32, any shape) along `axis` (negative ones count from the last),
    /// which the shape of `indices` replaces: `[.., n, ..]` → `[.., indices.., ..]`. An index outside
    /// the axis gives zeros. Invalid where there is no such axis, and for other indices.
    #[track_caller]
    pub fn take(&self, indices: &Array, axis: isize) -> Array {
        let operation = Caller::new("take");
        let Some(axis) = axis_of(self, axis).filter(|_| is_index(indices.dtype())) else {
            let of = (indices.dtype(), indices.shape(), self.shape());
            let what = format!("{}{:?} does not index axis {axis} of {:?}", of.0, of.1, of.2);
            return operation.invalid(&[self, indices], what);
        };
        let (before, after) = (&self.shape()[..axis], &self.shape()[axis + 1..]);
        let shape: Vec<usize> = [before, indices.shape(), after].concat();
        operation.node(Primitive::Take { axis }, &[self, indices], &shape, self.dtype())
    }
}
