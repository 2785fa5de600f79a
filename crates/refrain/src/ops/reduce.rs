//! Many elements to one.

use refrain_kernels::reduce::{ReduceOp, output_dtype};

use super::axis_of;
use crate::{Array, DType, Primitive};

impl Array {
    #[track_caller]
    fn reduce(&self, op: &'static str, kind: ReduceOp, axes: &[isize]) -> Array {
        let Some(resolved) = axes.iter().map(|&a| axis_of(self, a)).collect::<Option<Vec<_>>>() else {
            return Array::invalid(self, op, format!("no axes {axes:?} in {:?}", self.shape()));
        };
        let x = if kind == ReduceOp::Mean && !self.dtype().is_float() {
            self.astype(DType::F32)
        } else {
            self.clone()
        };
        let Some(dtype) = output_dtype(kind, x.dtype()) else {
            return Array::invalid(self, op, format!("not defined for {}", self.dtype()));
        };
        let (kept, reduced): (Vec<usize>, Vec<usize>) = (0..self.rank()).partition(|d| !resolved.contains(d));
        let shape: Vec<usize> = kept.iter().map(|&d| self.shape()[d]).collect();
        let empty = reduced.iter().any(|&d| self.shape()[d] == 0);
        if empty && matches!(kind, ReduceOp::Max | ReduceOp::Min) {
            return Array::invalid(self, op, format!("nothing to choose from in {:?}", self.shape()));
        }
        let order: Vec<usize> = kept.into_iter().chain(reduced.iter().copied()).collect();
        let x = if order.is_sorted() { x } else { x.permute(&order) };
        Array::lazy(
            Primitive::Reduce {
                op: kind,
                axes: reduced.len(),
            },
            &[&x],
            &shape,
            dtype,
        )
    }

    /// Largest index along the last dimension, u32; the lowest of equals.
    #[track_caller]
    pub fn argmax(&self) -> Array {
        match self.shape().split_last() {
            Some((&n, outer)) if n > 0 => Array::lazy(Primitive::ArgMax, &[self], outer, DType::U32),
            _ => Array::invalid(self, "argmax", format!("nothing to choose from in {:?}", self.shape())),
        }
    }

    /// Indices of the `k` largest elements along the last dimension, largest first, u32; the lower
    /// index first among equals. [`Array::take_along`] fetches the elements.
    #[track_caller]
    pub fn top_k(&self, k: usize) -> Array {
        match self.shape().split_last() {
            Some((&n, outer)) if k <= n => {
                let shape: Vec<usize> = outer.iter().copied().chain([k]).collect();
                Array::lazy(Primitive::TopK { k }, &[self], &shape, DType::U32)
            }
            _ => Array::invalid(self, "top_k", format!("no {k} largest in {:?}", self.shape())),
        }
    }

    /// Softmax over the last dimension.
    #[track_caller]
    pub fn softmax(&self) -> Array {
        if self.rank() == 0 || !self.dtype().is_float() {
            return Array::invalid(
                self,
                "softmax",
                format!("needs floats along an axis, not {}{:?}", self.dtype(), self.shape()),
            );
        }
        Array::lazy(Primitive::Softmax, &[self], self.shape(), self.dtype())
    }
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Array { $($(#[$doc])* #[track_caller] pub fn $name(&self, axes: &[isize]) -> Array { self.reduce(stringify!($name), ReduceOp::$op, axes) })* }
    };
}

reductions! {
    /// Sum over `axes`, which disappear; bool and u8 add up as u32.
    sum => Sum;
    /// Mean over `axes`; integers as f32.
    mean => Mean;
    /// Product over `axes`.
    prod => Prod;
    /// Largest over `axes`.
    max => Max;
    /// Smallest over `axes`.
    min => Min;
    /// Whether any is not zero.
    any => Any;
    /// Whether none is zero.
    all => All;
}
