//! Many elements to one.

use refrain_kernels::reduce::{ReduceOp, output_dtype};

use super::{Caller, axis_of};
use crate::{Array, DType, Primitive};

/// What a reduction goes over; negative axes count from the last. `&[0, 1]` is such a thing too: dimensions that disappear.
///
/// ```
/// # use refrain::{Array, Axes, DType, Device};
/// let x = Array::arange(&Device::cpu(), DType::F32, 6).reshape(&[2, 3]);
/// let centred = &x - x.mean(Axes::keepdims(&[-1]));
/// assert_eq!(centred.to_vec::<f32>().unwrap(), [-1.0, 0.0, 1.0, -1.0, 0.0, 1.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Axes<'a> {
    axes: &'a [isize],
    keep: bool,
}

impl<'a> Axes<'a> {
    /// Dimensions that stay, with extent 1, so that the result broadcasts against what was reduced.
    pub fn keepdims(axes: &'a [isize]) -> Self {
        Axes { axes, keep: true }
    }
}

impl<'a> From<&'a [isize]> for Axes<'a> {
    fn from(axes: &'a [isize]) -> Self {
        Axes { axes, keep: false }
    }
}

impl<'a, const N: usize> From<&'a [isize; N]> for Axes<'a> {
    fn from(axes: &'a [isize; N]) -> Self {
        Axes::from(axes.as_slice())
    }
}

impl Array {
    fn reduce(&self, operation: Caller, kind: ReduceOp, Axes { axes, keep }: Axes<'_>) -> Array {
        let Some(resolved) = axes.iter().map(|&a| axis_of(self, a)).collect::<Option<Vec<_>>>() else {
            return operation.invalid(&[self], format!("there are no axes {axes:?} in {:?}", self.shape()));
        };
        let x = if kind == ReduceOp::Mean && !self.dtype().is_float() {
            self.astype(DType::F32)
        } else {
            self.clone()
        };
        let Some(dtype) = output_dtype(kind, x.dtype()) else {
            return operation.invalid(&[self], format!("it is not defined for {}", self.dtype()));
        };
        let (kept, reduced): (Vec<usize>, Vec<usize>) = (0..self.rank()).partition(|d| !resolved.contains(d));
        let shape: Vec<usize> = kept.iter().map(|&d| self.shape()[d]).collect();
        let empty = reduced.iter().any(|&d| self.shape()[d] == 0);
        if empty && matches!(kind, ReduceOp::Max | ReduceOp::Min) {
            return operation.invalid(
                &[self],
                format!("there is nothing to choose from in {:?}", self.shape()),
            );
        }
        let order: Vec<usize> = kept.into_iter().chain(reduced.iter().copied()).collect();
        let x = if order.is_sorted() {
            x
        } else {
            operation.permute(&x, &order)
        };
        let primitive = Primitive::Reduce {
            op: kind,
            axes: reduced.len(),
        };
        let result = operation.node(primitive, &[&x], &shape, dtype);
        if !keep {
            return result;
        }
        let mut kept = self.shape().to_vec();
        reduced.into_iter().for_each(|d| kept[d] = 1);
        operation.reshape(&result, &kept)
    }

    /// Largest index along the last dimension: `[.., n]` of any dtype → `[..]`, u32; the lowest of
    /// equals, NaN above all numbers. Invalid for scalars and n = 0.
    #[track_caller]
    pub fn argmax(&self) -> Array {
        let operation = Caller::new("argmax");
        match self.shape().split_last() {
            Some((&n, outer)) if n > 0 => operation.node(Primitive::ArgMax, &[self], outer, DType::U32),
            _ => operation.invalid(
                &[self],
                format!("there is nothing to choose from in {:?}", self.shape()),
            ),
        }
    }

    /// ln Σ eˣ over `axes` (negative ones count from the last), which disappear unless they are [`Axes::keepdims`]:
    /// floats keep their dtype, integers as f32. Exact where eˣ alone would overflow; of infinities ∞ if one is, else −∞.
    /// Invalid where there is no such axis, and of nothing.
    ///
    /// ```
    /// # use refrain::{Array, Device};
    /// let x = Array::from_slice(&Device::cpu(), &[1000.0f32, 1000.0], &[2]);
    /// assert_eq!(x.logsumexp(&[0]).to_vec::<f32>().unwrap(), [1000.0 + 2f32.ln()]);
    /// ```
    #[track_caller]
    pub fn logsumexp<'a>(&self, axes: impl Into<Axes<'a>>) -> Array {
        let caller = Caller::new("logsumexp");
        let Axes { axes, keep } = axes.into();
        // Rounded to the dtype at the end alone.
        let x = self.astype(DType::F32);
        let largest = x.reduce(caller, ReduceOp::Max, Axes::keepdims(axes));
        // What is no number there is none to subtract: it comes back by the exponential.
        let finite = largest.abs().lt(f32::INFINITY).select(&largest, 0.0);
        let sum = (&x - &finite).exp().reduce(caller, ReduceOp::Sum, Axes { axes, keep });
        let finite = if keep {
            finite
        } else {
            caller.reshape(&finite, sum.shape())
        };
        let dtype = if self.dtype().is_float() {
            self.dtype()
        } else {
            DType::F32
        };
        (sum.log() + finite).astype(dtype)
    }

    /// Softmax over the last dimension: floats `[.., n]` → the same, computed in f32. Invalid for
    /// scalars and integers.
    #[track_caller]
    pub fn softmax(&self) -> Array {
        let operation = Caller::new("softmax");
        if self.rank() == 0 || !self.dtype().is_float() {
            let what = format!(
                "floats along an axis are needed, not {}{:?}",
                self.dtype(),
                self.shape()
            );
            return operation.invalid(&[self], what);
        }
        operation.node(Primitive::Softmax, &[self], self.shape(), self.dtype())
    }
}

macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl Array { $($(#[$doc])* #[track_caller] pub fn $name<'a>(&self, axes: impl Into<Axes<'a>>) -> Array { self.reduce(Caller::new(stringify!($name)), ReduceOp::$op, axes.into()) })* }
    };
}

reductions! {
    /// Sum over `axes` (negative ones count from the last), which disappear unless they are [`Axes::keepdims`]: f32, f16, bf16, i32 and u32
    /// stay, bool and u8 add up as u32; integers wrap. Of nothing 0. Invalid where there is no such axis.
    sum => Sum;
    /// Mean over `axes`, which disappear; integers as f32. Of nothing NaN. Invalid as [`Array::sum`].
    mean => Mean;
    /// Product over `axes`, which disappear; dtypes as [`Array::sum`]. Of nothing 1.
    prod => Prod;
    /// Largest over `axes`, which disappear; NaN where there is one. Invalid as [`Array::sum`], and of
    /// nothing.
    max => Max;
    /// Smallest over `axes`, which disappear; NaN where there is one. Invalid as [`Array::max`].
    min => Min;
    /// Whether any element over `axes` is not zero → bool. Of nothing false. Invalid as [`Array::sum`].
    any => Any;
    /// Whether no element over `axes` is zero → bool. Of nothing true. Invalid as [`Array::sum`].
    all => All;
}
