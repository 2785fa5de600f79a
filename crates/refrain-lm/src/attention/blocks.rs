//! Writes of keys or values into a KV cache.

use std::hash::{Hash, Hasher};

use refrain::operation::{
    self, ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, Values, exact_inputs,
};
use refrain::{Array, DType};
use refrain_kernels::attention::{BlockFormat, store};

/// (state u32 `[N, KVH, words]`, rows `[T, KVH, D]`, slots `[T]`) → the state with the heads of `rows[t]`, in a block
/// format, in slot `slots[t]`; slots out of range are skipped.
#[derive(Hash, Debug)]
pub(super) struct StoreBlocks(pub BlockFormat);

impl Operation for StoreBlocks {
    fn name(&self) -> &'static str {
        "store_blocks"
    }

    fn key(&self, mut state: &mut dyn Hasher) {
        self.hash(&mut state);
    }

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [state, rows, slots] = exact_inputs(inputs)?;
        let fits = state.rank() == 3
            && rows.rank() == 3
            && state.dtype == DType::U32
            && rows.dtype.is_float()
            && slots.dtype == DType::I32
            && slots.shape[..] == rows.shape[..1]
            && self.0.supports(rows.dim(2))
            && state.shape[1..] == [rows.dim(1), self.0.words(rows.dim(2))];
        if fits {
            return Ok(vec![]);
        }
        let name = self.0.name;
        Err(format!("rows {rows} at {slots} do not fit into {state} as {name}"))
    }

    fn updates(&self) -> &[usize] {
        &[0]
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [state, rows, slots] = operation::operands(operands);
        let mut call = store::call(traits, [rows, slots, state], self.0)?;
        operation::renumber(&mut call, &[1, 2, 0]);
        Ok(Kernels::one(call))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let (rows, slots, dim) = (x.f32(1), x.i32(2), x.shape(1)[2]);
        drop(x);
        step.update_rows(0, &encoded(&Values::F32(rows), dim, Some(self.0)), &slots);
    }
}

/// Returns heads of `dim` values as a state in `format` stores them.
pub(super) fn encoded(rows: &Values, dim: usize, format: Option<BlockFormat>) -> Values {
    match format {
        Some(format) => Values::U32(format.encode(rows.f32(), dim)),
        None => rows.clone(),
    }
}

/// Returns the next version of a state of keys or values: heads of `rows` `[T, KVH, D]` in slots `slots` (i32 `[T]`), in
/// a block format, or, for `None`, in the state's dtype. Invalid if shapes do not fit.
#[track_caller]
pub fn store_rows(state: &Array, rows: &Array, slots: &Array, format: Option<BlockFormat>) -> Array {
    let Some(format) = format else {
        return state.write_rows(rows, slots);
    };
    let [next] = Array::apply(StoreBlocks(format), &[state, rows, slots]);
    next
}
