//! Many elements to one.

use std::hash::{Hash, Hasher};

use refrain_kernels::reduce::{self, ReduceOp, output_dtype};

use super::{Caller, axis_of};
use crate::operation::{ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exactly};
use crate::{Array, DType};

/// (x) → the last `axes` dimensions reduced to one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    /// How values are combined.
    pub op: ReduceOp,
    /// How many trailing dimensions disappear.
    pub axes: usize,
}

impl Operation for Reduce {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x] = exactly(inputs)?;
        let dtype = output_dtype(self.op, x.dtype).ok_or_else(|| format!("it is not defined for {}", x.dtype))?;
        let kept = x.rank().checked_sub(self.axes);
        let kept = kept.ok_or_else(|| format!("there are no {} axes in {:?}", self.axes, x.shape))?;
        let reduced: Vec<usize> = (kept..x.rank()).collect();
        match nothing_to_choose(self.op, &x.shape, &reduced) {
            Some(what) => Err(what),
            None => Ok(vec![ArraySpec {
                shape: x.shape[..kept].to_vec(),
                dtype,
            }]),
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, out] = operands else {
            unreachable!("an input and a result")
        };
        let made = reduce::calls(traits, self.op, x, self.axes, out)?;
        Ok(Kernels::with_workspace(made))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|x| {
            let (outer, inner) = x.shape(0).split_at(x.shape(0).len() - self.axes);
            reduce::reference(self.op, &x.values(0), outer.iter().product(), inner.iter().product())
        });
    }

    fn detail(&self) -> String {
        format!(" {:?} over {}", self.op, self.axes)
    }
}

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

/// That there is no largest or smallest of nothing.
fn nothing_to_choose(op: ReduceOp, shape: &[usize], reduced: &[usize]) -> Option<String> {
    let empty = reduced.iter().any(|&d| shape[d] == 0);
    let chooses = matches!(op, ReduceOp::Max | ReduceOp::Min);
    (empty && chooses).then(|| format!("there is nothing to choose from in {shape:?}"))
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
        let (kept, reduced): (Vec<usize>, Vec<usize>) = (0..self.rank()).partition(|d| !resolved.contains(d));
        if let Some(what) = nothing_to_choose(kind, self.shape(), &resolved) {
            return operation.invalid(&[self], what);
        }
        let order: Vec<usize> = kept.into_iter().chain(reduced.iter().copied()).collect();
        let x = if order.is_sorted() {
            x
        } else {
            operation.permute(&x, &order)
        };
        let axes = reduced.len();
        let result = operation.apply(Reduce { op: kind, axes }, &[&x]);
        if !keep {
            return result;
        }
        let mut kept = self.shape().to_vec();
        reduced.into_iter().for_each(|d| kept[d] = 1);
        operation.reshape(&result, &kept)
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
