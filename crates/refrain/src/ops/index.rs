//! Choosing elements by index, and writing rows of a state.

use super::axis_of;
use crate::{Array, DType, Primitive};

fn is_index(x: &Array) -> bool {
    matches!(x.dtype(), DType::U32 | DType::I32)
}

impl Array {
    /// The slices at `indices` (u32 or i32, any shape) along `axis`, which the shape of `indices`
    /// replaces. An index outside the axis gives zeros.
    #[track_caller]
    pub fn take(&self, indices: &Array, axis: isize) -> Array {
        let Some(axis) = axis_of(self, axis).filter(|_| is_index(indices)) else {
            let what = format!(
                "cannot take {}{:?} along axis {axis} of {:?}",
                indices.dtype(),
                indices.shape(),
                self.shape()
            );
            return Array::invalid(self, "take", what);
        };
        let (before, after) = (&self.shape()[..axis], &self.shape()[axis + 1..]);
        let shape: Vec<usize> = [before, indices.shape(), after].concat();
        Array::lazy(Primitive::Take { axis }, &[self, indices], &shape, self.dtype())
    }

    /// `result[.., j] = self[.., indices[.., j]]`: `[.., n]` and u32 or i32 indices `[.., m]` → `[.., m]`.
    #[track_caller]
    pub fn take_along(&self, indices: &Array) -> Array {
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
            return Array::invalid(self, "take_along", what);
        }
        Array::lazy(Primitive::TakeAlong, &[self, indices], indices.shape(), self.dtype())
    }

    /// The next version of this state `[N, ..]`, in place: row `slots[t]` becomes `rows[t]`
    /// (converted); slots (i32 `[T]`) outside 0..N are skipped. Older versions may not be read after.
    #[track_caller]
    pub fn write_rows(&self, rows: &Array, slots: &Array) -> Array {
        let fits = self.rank() > 0
            && rows.rank() == self.rank()
            && rows.shape()[1..] == self.shape()[1..]
            && slots.shape() == &rows.shape()[..1]
            && slots.dtype() == DType::I32;
        if !fits {
            let what = format!(
                "rows {:?} at {}{:?} do not go into {:?}",
                rows.shape(),
                slots.dtype(),
                slots.shape(),
                self.shape()
            );
            return Array::invalid(self, "write_rows", what);
        }
        if !self.is_state() {
            return Array::invalid(
                self,
                "write_rows",
                "only a state (or an update of one) is written in place".to_string(),
            );
        }
        let rows = if rows.dtype().is_float() == self.dtype().is_float() {
            rows.clone()
        } else {
            rows.astype(self.dtype())
        };
        Array::lazy(Primitive::WriteRows, &[self, &rows, slots], self.shape(), self.dtype())
    }
}
