//! Choosing elements by index, and writing rows of a state.

use super::{Caller, axis_of};
use crate::{Array, DType, Primitive};

fn is_index(x: &Array) -> bool {
    matches!(x.dtype(), DType::U32 | DType::I32)
}

impl Array {
    /// The slices at `indices` (u32 or i32, any shape) along `axis` (negative ones count from the last),
    /// which the shape of `indices` replaces: `[.., n, ..]` → `[.., indices.., ..]`. An index outside
    /// the axis gives zeros. Invalid where there is no such axis, and for other indices.
    #[track_caller]
    pub fn take(&self, indices: &Array, axis: isize) -> Array {
        let operation = Caller::new("take");
        let Some(axis) = axis_of(self, axis).filter(|_| is_index(indices)) else {
            let of = (indices.dtype(), indices.shape(), self.shape());
            let what = format!("{}{:?} does not index axis {axis} of {:?}", of.0, of.1, of.2);
            return operation.invalid(&[self, indices], what);
        };
        let (before, after) = (&self.shape()[..axis], &self.shape()[axis + 1..]);
        let shape: Vec<usize> = [before, indices.shape(), after].concat();
        operation.node(Primitive::Take { axis }, &[self, indices], &shape, self.dtype())
    }

    /// `result[.., j] = self[.., indices[.., j]]`: `[.., n]` and u32 or i32 indices `[.., m]` → `[.., m]`.
    /// An index outside 0..n gives zero. Invalid unless the leading dimensions are equal.
    #[track_caller]
    pub fn take_along(&self, indices: &Array) -> Array {
        let operation = Caller::new("take_along");
        let fits = self.rank() > 0
            && self.rank() == indices.rank()
            && self.shape()[..self.rank() - 1] == indices.shape()[..self.rank() - 1];
        if !fits || !is_index(indices) {
            let what = format!(
                "{}{:?} does not index {:?}",
                indices.dtype(),
                indices.shape(),
                self.shape()
            );
            return operation.invalid(&[self, indices], what);
        }
        operation.node(Primitive::TakeAlong, &[self, indices], indices.shape(), self.dtype())
    }

    /// The next version of this state `[N, ..]`, in place: row `slots[t]` becomes `rows[t]`
    /// (converted); slots (i32 `[T]`) outside 0..N are skipped, and of equal ones any may win. Older
    /// versions may not be read after: evaluating that gives [`crate::Error::StaleState`]. Invalid when
    /// shapes do not fit, or this is no state.
    #[track_caller]
    pub fn write_rows(&self, rows: &Array, slots: &Array) -> Array {
        let operation = Caller::new("write_rows");
        let inputs = [self, rows, slots];
        let fits = self.rank() > 0
            && rows.rank() == self.rank()
            && rows.shape()[1..] == self.shape()[1..]
            && slots.shape() == &rows.shape()[..1]
            && slots.dtype() == DType::I32;
        if !fits {
            let of = (rows.shape(), slots.dtype(), slots.shape(), self.shape());
            let what = format!("rows {:?} at {}{:?} do not go into {:?}", of.0, of.1, of.2, of.3);
            return operation.invalid(&inputs, what);
        }
        let rows = if rows.dtype().is_float() && self.dtype().is_float() {
            rows.clone()
        } else {
            rows.astype(self.dtype())
        };
        let next = operation
            .results(Primitive::WriteRows, &[self, &rows, slots], vec![])
            .pop();
        next.expect("one state is updated")
    }
}
