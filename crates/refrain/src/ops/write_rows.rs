//! Row updates of a state.

use std::hash::Hasher;

use refrain_kernels::write_rows;

use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exact_inputs, renumber, spec,
};
use crate::{Array, DType};

/// (state `[N, ..]`, rows `[T, ..]`, slots `[T]`) → the state with `state[slots[t]] = rows[t]`; slots out of range are
/// skipped.
#[derive(Debug)]
pub struct WriteRows;

impl Operation for WriteRows {
    fn name(&self) -> &'static str {
        "write_rows"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [state, rows, slots] = exact_inputs(inputs)?;
        let fits = state.rank() > 0
            && rows.rank() == state.rank()
            && rows.shape[1..] == state.shape[1..]
            && slots.shape[..] == rows.shape[..1]
            && slots.dtype == DType::I32;
        if fits {
            return Ok(vec![]);
        }
        Err(format!(
            "rows {:?} at {slots} do not fit into {:?}",
            rows.shape, state.shape
        ))
    }

    fn updates(&self) -> &[usize] {
        &[0]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [state, rows, slots] = spec::operands(operands);
        if [state, rows].iter().any(|operand| operand.layout.count() == 0) {
            return Ok(Kernels::default());
        }
        let mut call = write_rows::call(traits, rows, slots, state)?;
        renumber(&mut call, &[1, 2, 0]);
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let (rows, slots) = (x.values(1), x.i32(2));
        drop(x);
        step.update_rows(0, &rows, &slots);
    }
}

impl Array {
    /// The next version of this state `[N, ..]`, updated in place: row `slots[t]` becomes `rows[t]`, converted to its
    /// dtype. Slots (i32 `[T]`) out of range are skipped; if slots are equal, any of their rows may win. Older versions
    /// cannot be read afterwards: evaluation returns [`crate::Error::StaleState`]. Invalid if shapes do not fit, or if
    /// this is not a state.
    #[track_caller]
    pub fn write_rows(&self, rows: &Array, slots: &Array) -> Array {
        let both_floats = rows.dtype().is_float() && self.dtype().is_float();
        let rows = if both_floats || rows.error().is_some() {
            rows.clone()
        } else {
            rows.astype(self.dtype())
        };
        let [next] = Array::apply(WriteRows, &[self, &rows, slots]);
        next
    }
}
