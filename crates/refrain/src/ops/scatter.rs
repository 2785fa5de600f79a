//! Updates of rows of an array. The array itself is a value and does not change: the result is a new array.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain_kernels::combine_rows::{self, Combine};
use refrain_kernels::elementwise::{self, Expression};
use refrain_kernels::write_rows;

use super::CallSite;
use super::take::is_index;
use super::write_rows::WriteRows;
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs, renumber, spec,
};
use crate::{Array, DType};

/// Copies `from` to `to`, the operands with these numbers.
pub(super) fn copy(
    traits: &Traits,
    from: &OperandSpec,
    to: &OperandSpec,
    numbers: [usize; 2],
) -> Result<crate::operation::Call, Unsupported> {
    let mut call = elementwise::call(traits, &Expression::cast(from.dtype, to.dtype), &[from, to])?;
    renumber(&mut call, &numbers);
    Ok(call)
}

/// Replaces rows of `width` elements of `x` by those of `rows`; rows without an index are skipped.
pub(super) fn replace(x: &mut Values, rows: &Values, indices: impl Iterator<Item = Option<usize>>, width: usize) {
    fn each<T: Copy>(x: &mut [T], rows: &[T], indices: impl Iterator<Item = Option<usize>>, width: usize) {
        for (t, index) in indices.enumerate() {
            if let Some(row) = index.and_then(|index| x.get_mut(index * width..(index + 1) * width)) {
                row.copy_from_slice(&rows[t * width..(t + 1) * width]);
            }
        }
    }
    match (x, rows) {
        (Values::F32(x), Values::F32(rows)) => each(x, rows, indices, width),
        (Values::I32(x), Values::I32(rows)) => each(x, rows, indices, width),
        (Values::U32(x), Values::U32(rows)) => each(x, rows, indices, width),
        _ => unreachable!("both have one dtype"),
    }
}

/// (x `[N, ..]`, rows `[T, ..]`, slots i32 `[T]`) → x with rows `slots[t]` replaced by, or combined with, row t.
#[derive(Clone, Hash, Debug)]
pub struct ScatterRows {
    /// `None` replaces.
    pub combine: Option<Combine>,
}

impl Operation for ScatterRows {
    fn name(&self) -> &'static str {
        "scatter_rows"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, rows, slots] = exact_inputs(inputs)?;
        let fits = x.rank() > 0
            && rows.rank() == x.rank()
            && rows.shape[1..] == x.shape[1..]
            && rows.dtype == x.dtype
            && slots.shape[..] == rows.shape[..1]
            && slots.dtype == DType::I32;
        if fits {
            return Ok(vec![(*x).clone()]);
        }
        Err(format!("rows {rows} at {slots} do not fit into {x}"))
    }

    fn in_place(&self) -> Option<Arc<dyn Operation>> {
        self.combine
            .is_none()
            .then(|| Arc::new(WriteRows) as Arc<dyn Operation>)
    }

    fn has_in_place(&self) -> bool {
        self.combine.is_none()
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, rows, slots, out] = spec::operands(operands);
        if rows.layout.count() == 0 {
            return Ok(Kernels::one(copy(traits, x, out, [0, 3])?));
        }
        let Some(combine) = self.combine else {
            let mut write = write_rows::call(traits, rows, slots, out)?;
            renumber(&mut write, &[1, 2, 3]);
            return Ok(Kernels::chained(vec![copy(traits, x, out, [0, 3])?, write]));
        };
        Ok(Kernels::one(combine_rows::call(
            traits,
            combine,
            [x, rows, slots, out],
        )?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|inputs| {
            let (mut x, rows, slots) = (inputs.values(0), inputs.values(1), inputs.i32(2));
            let width = inputs.shape(0)[1..].iter().product();
            let Some(combine) = self.combine else {
                replace(
                    &mut x,
                    &rows,
                    slots.iter().map(|&slot| usize::try_from(slot).ok()),
                    width,
                );
                return x;
            };
            combine_rows::reference(combine, x, &rows, &slots, width)
        });
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let visited = if self.combine.is_some() {
            operands[1].layout.shape[0]
        } else {
            1
        };
        (operands[0].layout.count() as u64).saturating_mul(visited as u64)
    }

    fn detail(&self) -> String {
        self.combine.map_or(String::new(), |combine| format!(" {combine:?}"))
    }
}

impl Array {
    /// This array `[N, ..]` with row `slots[t]` replaced by row t of `rows` `[T, ..]`, which is converted to its dtype.
    /// Slots (u32 or i32 `[T]`) out of range are skipped; if slots are equal, any of their rows may win. Invalid if
    /// shapes do not fit.
    #[track_caller]
    pub fn scatter_rows(&self, rows: &Array, slots: &Array) -> Array {
        self.scattered(CallSite::new("scatter_rows"), rows, slots, None)
    }

    /// This array `[N, ..]` with row t of `rows` `[T, ..]`, which is converted to its dtype, combined into row
    /// `slots[t]`, in the order of t. Slots (u32 or i32 `[T]`) out of range are skipped. Invalid if shapes do not fit.
    ///
    /// ```
    /// # use refrain::{Array, Combine, DType, Device};
    /// let device = Device::cpu();
    /// let rows = Array::from_slice(&device, &[1.0f32, 2.0, 4.0], &[3]);
    /// let slots = Array::from_slice(&device, &[1, 0, 1], &[3]);
    /// let sums = Array::zeros(&device, DType::F32, &[2]).combine_rows(&rows, &slots, Combine::Add);
    /// assert_eq!(sums.to_vec::<f32>().unwrap(), [2.0, 5.0]);
    /// ```
    #[track_caller]
    pub fn combine_rows(&self, rows: &Array, slots: &Array, combine: Combine) -> Array {
        self.scattered(CallSite::new("combine_rows"), rows, slots, Some(combine))
    }

    fn scattered(&self, call_site: CallSite, rows: &Array, slots: &Array, combine: Option<Combine>) -> Array {
        if !is_index(slots.dtype()) {
            let what = format!("slots must be u32 or i32, not {}", slots.dtype());
            return call_site.invalid(&[self, rows, slots], what);
        }
        let (rows, slots) = (rows.astype(self.dtype()), slots.astype(DType::I32));
        call_site.apply(ScatterRows { combine }, &[self, &rows, &slots])
    }
}
