//! Elementwise indexing along the last axis.

use std::hash::Hasher;

use refrain_kernels::take_along;

use super::take::is_index;
use crate::Array;
use crate::operation::prelude::{
    ArraySpec, HostStep, Kernels, OperandSpec, Operation, Traits, Unsupported, exact_inputs, spec,
};

/// (x, indices) → elements of x along the last dimension.
#[derive(Debug)]
pub struct TakeAlong;

impl Operation for TakeAlong {
    fn name(&self) -> &'static str {
        "take_along"
    }

    fn key(&self, _state: &mut dyn Hasher) {}

    fn results(&self, inputs: &[&ArraySpec]) -> Result<Vec<ArraySpec>, String> {
        let [x, indices] = exact_inputs(inputs)?;
        let fits = x.rank() > 0
            && x.rank() == indices.rank()
            && x.shape[..x.rank() - 1] == indices.shape[..x.rank() - 1]
            && is_index(indices.dtype);
        if !fits {
            return Err(format!("{indices} does not index {:?}", x.shape));
        }
        let shape = indices.shape.clone();
        Ok(vec![ArraySpec { shape, dtype: x.dtype }])
    }

    fn lower(&self, traits: &Traits, operands: &[OperandSpec]) -> Result<Kernels, Unsupported> {
        let [x, indices, out] = spec::operands(operands);
        Ok(Kernels::one(take_along::call(traits, x, indices, out)?))
    }

    fn reference(&self, step: &HostStep<'_>) {
        let x = step.read();
        let taken = take_along::reference(&x.values(0), x.columns(0), &x.values(1), x.columns(1));
        drop(x);
        step.store(0, &taken);
    }
}

impl Array {
    /// `result[.., j] = self[.., indices[.., j]]`: `[.., n]` and u32 or i32 indices `[.., m]` → `[.., m]`.
    /// An index out of range gives zero. Invalid unless the leading dimensions are equal.
    #[track_caller]
    pub fn take_along(&self, indices: &Array) -> Array {
        let [taken] = Array::apply(TakeAlong, &[self, indices]);
        taken
    }
}
