//! Updates of rows of an array. The array itself is a value and does not change: the result is a new array.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use refrain_kernels::combine_rows::{self, Combine};
use refrain_kernels::elementwise::{self, Expression};

use super::CallSite;
use super::take::is_index;
use super::write_rows::WriteRows;
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exact_inputs, renumber, spec,
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
        let call = combine_rows::call(traits, self.combine(), [x, rows, slots, out])?;
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        step.result(|inputs| {
            let (x, rows, slots) = (inputs.values(0), inputs.values(1), inputs.i32(2));
            let width = inputs.shape(0)[1..].iter().product();
            combine_rows::reference(self.combine(), x, &rows, &slots, width)
        });
    }

    fn multiplications(&self, operands: &[OperandSpec]) -> u64 {
        let rows = operands[1].layout.shape[0];
        (operands[0].layout.count() as u64).saturating_mul(rows as u64)
    }

    fn detail(&self) -> String {
        self.combine.map_or(String::new(), |combine| format!(" {combine:?}"))
    }
}

impl ScatterRows {
    /// How rows are combined, if they do not replace those of x.
    fn combine(&self) -> Combine {
        self.combine
            .expect("the pass `overwrite` replaces an update that combines nothing")
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
