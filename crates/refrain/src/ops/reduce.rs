//! Reductions.

use std::hash::{Hash, Hasher};

use refrain_kernels::reduce::{self, ReduceOp, output_dtype};

use super::{CallSite, axis_of};
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exact_inputs, spec,
};
use crate::{Array, DType};

/// (x) → x with its last `axes` dimensions reduced to one value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    /// How values are combined.
    pub op: ReduceOp,
    /// Number of trailing dimensions that are reduced.
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
        let [x] = exact_inputs(inputs)?;
        let dtype = output_dtype(self.op, x.dtype).ok_or_else(|| format!("it is not defined for {}", x.dtype))?;
        let kept = x.rank().checked_sub(self.axes);
        let kept = kept.ok_or_else(|| format!("there are no {} axes in {:?}", self.axes, x.shape))?;
        let reduced: Vec<usize> = (kept..x.rank()).collect();
        match check_not_empty(self.op, &x.shape, &reduced) {
            Some(what) => Err(what),
            None => Ok(vec![ArraySpec::new(&x.shape[..kept], dtype)]),
        }
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, out] = spec::operands(operands);
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

/// The axes of a reduction; negative axes count from the last. `&[0, 1]` converts to axes that disappear from the
/// result.
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
    /// Axes that stay in the result with extent 1, so that it broadcasts against the reduced array.
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

/// The error of a maximum or minimum over no elements.
fn check_not_empty(op: ReduceOp, shape: &[usize], reduced: &[usize]) -> Option<String> {
    let empty = reduced.iter().any(|&d| shape[d] == 0);
    let chooses = matches!(op, ReduceOp::Max | ReduceOp::Min);
    (empty && chooses).then(|| format!("cannot take the maximum or minimum of no elements: {shape:?}"))
}

impl Array {
    fn reduce(&self, call_site: CallSite, kind: ReduceOp, Axes { axes, keep }: Axes<'_>) -> Array {
        let Some(resolved) = axes.iter().map(|&a| axis_of(self, a)).collect::<Option<Vec<_>>>() else {
            return call_site.invalid(&[self], format!("there are no axes {axes:?} in {:?}", self.shape()));
        };
        let x = if kind == ReduceOp::Mean && !self.dtype().is_float() {
            self.astype(DType::F32)
        } else {
            self.clone()
        };
        let (kept, reduced): (Vec<usize>, Vec<usize>) = (0..self.rank()).partition(|d| !resolved.contains(d));
        if let Some(what) = check_not_empty(kind, self.shape(), &resolved) {
            return call_site.invalid(&[self], what);
        }
        let order: Vec<usize> = kept.into_iter().chain(reduced.iter().copied()).collect();
        let x = if order.is_sorted() {
            x
        } else {
            call_site.permute(&x, &order)
        };
        let axes = reduced.len();
        let result = call_site.apply(Reduce { op: kind, axes }, &[&x]);
        if !keep {
            return result;
        }
        let mut kept = self.shape().to_vec();
        reduced.into_iter().for_each(|d| kept[d] = 1);
        call_site.reshape(&result, &kept)
    }

    /// ln Σ eˣ over `axes` (negative axes count from the last), which disappear unless they are [`Axes::keepdims`].
    /// Floats keep their dtype; integers give f32. Does not overflow where eˣ would. With infinite elements, the result
    /// is ∞ if one of them is ∞, else −∞. Invalid if there is no such axis, or if there are no elements.
    ///
    /// ```
    /// # use refrain::{Array, Device};
    /// let x = Array::from_slice(&Device::cpu(), &[1000.0f32, 1000.0], &[2]);
    /// assert_eq!(x.logsumexp(&[0]).to_vec::<f32>().unwrap(), [1000.0 + 2f32.ln()]);
    /// ```
    #[track_caller]
    pub fn logsumexp<'a>(&self, axes: impl Into<Axes<'a>>) -> Array {
        let call_site = CallSite::new("logsumexp");
        let Axes { axes, keep } = axes.into();
        // Computed in f32 and rounded to the dtype only at the end.
        let x = self.astype(DType::F32);
        let largest = x.reduce(call_site, ReduceOp::Max, Axes::keepdims(axes));
        // Infinities and NaN are not subtracted; the exponential brings them back.
        let finite = largest.abs().lt(f32::INFINITY).select(&largest, 0.0);
        let sum = (&x - &finite)
            .exp()
            .reduce(call_site, ReduceOp::Sum, Axes { axes, keep });
        let finite = if keep {
            finite
        } else {
            call_site.reshape(&finite, sum.shape())
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
        impl Array { $($(#[$doc])* #[track_caller] pub fn $name<'a>(&self, axes: impl Into<Axes<'a>>) -> Array { self.reduce(CallSite::new(stringify!($name)), ReduceOp::$op, axes.into()) })* }
    };
}

reductions! {
    /// Sum over `axes` (negative axes count from the last), which disappear unless they are [`Axes::keepdims`]. f32,
    /// f16, bf16, i32 and u32 keep their dtype; bool and u8 give u32; integers wrap. 0 for no elements. Invalid if
    /// there is no such axis.
    sum => Sum;
    /// Mean over `axes`, which disappear; integers give f32. NaN for no elements. Invalid as [`Array::sum`].
    mean => Mean;
    /// Product over `axes`, which disappear; dtypes as [`Array::sum`]. 1 for no elements.
    prod => Prod;
    /// Maximum over `axes`, which disappear; NaN if any element is NaN. Invalid as [`Array::sum`], and for no
    /// elements.
    max => Max;
    /// Minimum over `axes`, which disappear; NaN if any element is NaN. Invalid as [`Array::max`].
    min => Min;
    /// Whether any element over `axes` is nonzero → bool. False for no elements. Invalid as [`Array::sum`].
    any => Any;
    /// Whether all elements over `axes` are nonzero → bool. True for no elements. Invalid as [`Array::sum`].
    all => All;
}
